"""Write, append and read files so that a crash leaves none half written.

A file is either complete, under its name and on the disk, or does not exist.
Functions that read, or write durably, raise StorageError; others that write raise OSError.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from hpcflow.runtime.reading import (
    MAX_LINE_BYTES,
    UnsafeFileError,
    open_file,
    open_regular,
    require_safe,
)
from hpcflow.storage.disk_errors import storage_error, storage_errors

#: Private, because scratch is shared.
FILE_MODE = 0o600
FOLDER_MODE = 0o700

#: To create a file in a folder, it need not be readable.
_AS_PLACE = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_COPIED_BYTES = 1 << 20
#: A temporary folder older than this was left by a killed process.
LEFTOVER_S = 7 * 86400.0
_NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS})


def make_folders(
    folder: Path,
    undo: list[Callable[[], object]] | None = None,
    check: Callable[[], object] | None = None,
) -> None:
    """Make a private folder and its missing parents.

    ``Path.mkdir(mode, parents=True)`` would leave the mode of the parents to the umask.

    Args:
        undo: receives functions that remove the new folders.
        check: raises if another user could replace a folder on the path. It is called while the
            nearest existing folder is open, so that no folder is made behind another user's link,
            and again when all folders are made.

    Raises:
        UnsafeFileError: another user replaced a folder on the path.
    """
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    if not missing:
        if check is not None:
            check()
        return
    at = os.open(folder, _AS_PLACE)
    try:
        if check is not None:
            check()
        if not os.path.samestat(os.fstat(at), folder.stat()):
            raise UnsafeFileError(errno.ESTALE, "it was just replaced by another", str(folder))
        for path in reversed(missing):
            with suppress(FileExistsError):  # another process made the same
                os.mkdir(path.name, FOLDER_MODE, dir_fd=at)
                if undo is not None:
                    undo.append(path.rmdir)  # fails if another process uses it
            below = os.open(path.name, _AS_PLACE | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = below
            if os.fstat(at).st_uid not in (0, os.geteuid()):
                raise UnsafeFileError(errno.EPERM, "another user has just made it", str(path))
    finally:
        os.close(at)
    if check is not None:
        check()


def fsync_folder(path: Path) -> None:
    """Sync a folder: the names created, renamed or deleted in it. Raise OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_new(path: Path, data: bytes) -> None:
    """Create and sync the file ``path``, but not its folder. Raise OSError.

    For files below a folder that no reader uses yet.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        write_all(file.fileno(), data)
        os.fsync(file.fileno())


def write_durably(path: Path, data: bytes | str) -> None:
    """Replace ``path`` atomically by ``data`` (text as UTF-8), and sync it."""
    content = data.encode() if isinstance(data, str) else data
    temporary = path.parent / f".{secrets.token_hex(8)}.tmp"
    with storage_errors("write", path):
        try:
            write_new(temporary, content)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        fsync_folder(path.parent)


def replace_unsynced(path: Path, data: bytes) -> None:
    """Replace ``path`` atomically by ``data``, without syncing it. Raise OSError.

    If the machine crashes, ``path`` can be empty.
    """
    temporary = path.parent / f".{secrets.token_hex(8)}.tmp"
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        try:
            write_all(descriptor, data)
        finally:
            os.close(descriptor)  # NFS can report only here that the disk is full
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def link_tree(source: Path, target: Path) -> None:
    """Make ``target`` from the files of ``source``, hard-linked or copied, and sync it.

    The files must never change. Anything that is neither file nor folder is skipped.
    """
    target.mkdir(mode=FOLDER_MODE, parents=True)
    with os.scandir(source) as entries:
        for entry in entries:
            path = target / entry.name
            if entry.is_dir(follow_symlinks=False):
                link_tree(Path(entry.path), path)
            elif entry.is_file(follow_symlinks=False):
                try:
                    os.link(entry.path, path, follow_symlinks=False)
                except OSError as error:
                    if error.errno in (errno.ENOENT, errno.ENOSPC, errno.EDQUOT):
                        raise
                    _copy(entry.path, path)
    fsync_folder(target)


def remove_leftovers(folder: Path) -> None:
    """Remove the folders ``.*.tmp`` older than a week in ``folder``; ignore errors.

    Killed processes left them. No other user may write in ``folder``.
    """
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") and entry.name.endswith(".tmp"):
                with suppress(OSError):
                    age_s = time.time() - entry.stat(follow_symlinks=False).st_mtime
                    if age_s > LEFTOVER_S and entry.is_dir(follow_symlinks=False):
                        remove_readonly(Path(entry.path))


def remove_readonly(folder: Path) -> None:
    """Remove a folder, including read-only folders in it; ignore errors."""
    for path, _, _ in os.walk(folder):
        with suppress(OSError):
            os.chmod(path, FOLDER_MODE)  # noqa: PTH101 - as os.walk
    shutil.rmtree(folder, ignore_errors=True)


def _copy(source: Path | str, target: Path) -> None:
    """Copy and sync a file of any size. Raise OSError."""
    with open_file(source) as old:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        with os.fdopen(descriptor, "wb", buffering=0) as new:
            while data := old.read(_COPIED_BYTES):
                write_all(new.fileno(), data)
            os.fsync(new.fileno())


def append_line_durably(
    path: Path,
    line: bytes | str,
    *,
    any_owner: bool = False,
    within: int | None = None,
    must_exist: bool = False,
) -> None:
    """Append one line to ``path``, create it if missing, and sync it.

    If a crash or a full disk truncated the last line, the new line still begins on its own line.

    Args:
        any_owner: whether another user may own the file, as in a shared folder.
        within: open descriptor of the folder that contains the file; the file must exist. The
            caller holds another lock, because any reader could hold that of a shared file forever.

    Raises:
        StorageError: it is a link, not a regular file, or could not be written. A part of the
            line may be written; readers ignore it.
    """
    content = (line.encode() if isinstance(line, str) else line).rstrip(b"\n") + b"\n"
    with storage_errors("append to", path):
        is_new = within is None and not must_exist and not path.exists()
        flags = os.O_RDWR | os.O_APPEND | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        if within is None:
            descriptor = os.open(path, flags if must_exist else flags | os.O_CREAT, FILE_MODE)
        else:
            descriptor = os.open(path.name, flags, dir_fd=within)
        try:
            require_safe(descriptor, path, any_owner=any_owner)
            if within is None:
                _lock_if_possible(descriptor)
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                content = b"\n" + content
            write_all(descriptor, content)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if is_new:
            fsync_folder(path.parent)


def read_from(path: Path | str, offset: int, max_bytes: int, *, any_owner: bool = False) -> bytes:
    """Return up to ``max_bytes`` of a file from byte ``offset``; empty at its end or if missing."""
    try:
        descriptor = open_regular(path, any_owner=any_owner)
        try:
            return os.pread(descriptor, max_bytes, offset)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise storage_error("read", Path(path), error) from error


def last_line(path: Path | str) -> bytes:
    """Return the last complete line of ``path``, without newline; empty if missing or too long."""
    begin = max(0, (size_of(path) or 0) - MAX_LINE_BYTES)
    whole, _, _ = read_from(path, begin, MAX_LINE_BYTES).rpartition(b"\n")
    _, newline, line = whole.rpartition(b"\n")
    return line if newline or not begin else b""


def size_of(path: Path | str) -> int | None:
    """Return the size of ``path`` in bytes; None if it does not exist."""
    try:
        return os.stat(path).st_size  # noqa: PTH116 - faster than a Path, for thousands of files
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise storage_error("read the size of", Path(path), error) from error


def size_below(folder: Path) -> int:
    """Return the bytes of all files below ``folder``; skip files that disappear meanwhile."""
    return sum(file.st_size for file in files_below(folder))


def files_below(folder: Path) -> Iterator[os.stat_result]:
    """Yield the status of each file below ``folder``; skip files that disappear meanwhile.

    It does not recurse, as ``os.walk`` does up to Python 3.11: folders may be a thousand deep.
    """
    waiting = [str(folder)]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        yield entry.stat(follow_symlinks=False)


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all of ``data``, with one write unless the system accepts only a part of it."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _lock_if_possible(descriptor: int) -> None:
    """Lock the file if the file system supports it, because NFS does not append atomically.

    Without locks (Lustre mounted without flock), only O_APPEND separates two appenders.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
