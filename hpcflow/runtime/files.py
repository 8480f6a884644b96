"""Write files that survive a crash of the node; remove and rename folders safely."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from hpcflow.runtime.checksum import Checksum
from hpcflow.runtime.reading import UnsafeFileError

_CHUNK_BYTES = 1 << 20

#: Bytes between two starts of writeback.
_WINDOW_BYTES = 16 << 20


def random_word() -> str:
    """Return 16 random hex digits, for a unique name.

    :mod:`secrets` is not used: its import takes a sixth of a job's start time.
    """
    return os.urandom(8).hex()


def random_bits(count: int) -> int:
    """Return a random number below 2**count; at most 64 bits."""
    return int(random_word(), 16) >> (64 - count)


@dataclass(frozen=True)
class Written:
    """A file's entry in a manifest; ``sha256`` as in :mod:`hpcflow.runtime.checksum`."""

    size_bytes: int
    sha256: str


class NewFile:
    """A file whose checksum is computed while it is written, not by reading it again.

    Hashing, copying to the kernel and writeback run at once, because each takes about as long as
    the others. Writes are sequential. Nothing is buffered, so that a process forked meanwhile holds
    no data. After an error of the disk, ``write`` does nothing and ``close`` raises, because
    torch's writer does not pass exceptions on well.

    Args:
        must_stop: called before each MiB; once it returns true, the rest is not written.
        hashers: threads that compute the checksum of large data.
        like: a checksum that this one will be compared with.
        mode: the exact mode of the file, regardless of umask and the folder's ACL; None for theirs.
    """

    def __init__(
        self,
        path: Path,
        must_stop: Callable[[], bool] | None = None,
        *,
        hashers: int = 1,
        like: str | None = None,
        mode: int | None = None,
    ) -> None:
        self._file = path.open("xb", buffering=0) if mode is None else create(path, mode)
        self._must_stop, self._hashers = must_stop, hashers
        self._checksum = Checksum(like)
        self._size_bytes = 0
        self._begun_bytes = 0
        self._error: OSError | None = None

    def write(self, data: bytes | memoryview) -> int:
        view = memoryview(data).cast("B")
        if self._error is None and len(view) <= _CHUNK_BYTES:
            self._checksum.update(view)  # too little data for the start of a thread
            self._error = self._write_all(view)
        elif self._error is None:
            hashing = self._checksum.begin(view, self._hashers)
            try:
                self._error = self._write_all(view)
                why = hashing.finish() if self._error is None else None
            finally:  # also after an interrupt: the memory that the threads read may be freed
                hashing.stop()
            if why is not None:
                self._error = OSError(f"no checksum could be computed: {why}")
        return len(view)

    def flush(self) -> None:
        """Nothing is buffered."""

    def close(self) -> Written:
        """Sync and close the file, and return its size and checksum.

        Raises:
            OSError: the disk is full or gone, or ``must_stop`` returned true.
        """
        with self._file:
            if self._error is None:
                os.fsync(self._file.fileno())
        if self._error is not None:
            raise self._error
        return Written(self._size_bytes, self._checksum.text())

    def _write_all(self, view: memoryview) -> OSError | None:
        try:
            for begin in range(0, len(view), _CHUNK_BYTES):
                self._write_chunk(view[begin : begin + _CHUNK_BYTES])
                self._begin_writeback()
        except OSError as error:
            return error
        return None

    def _write_chunk(self, chunk: memoryview) -> None:
        if self._must_stop is not None and self._must_stop():
            raise OSError("the program has ended")
        while chunk:
            written = self._file.write(chunk) or 0
            self._size_bytes += written
            chunk = chunk[written:]

    def _begin_writeback(self) -> None:
        """Start writeback, because Linux waits for fsync, or until much memory is dirty."""
        new_bytes = self._size_bytes - self._begun_bytes
        if new_bytes >= _WINDOW_BYTES and hasattr(os, "posix_fadvise"):
            with suppress(OSError):  # some file systems do not support it
                descriptor = self._file.fileno()
                os.posix_fadvise(descriptor, self._begun_bytes, new_bytes, os.POSIX_FADV_DONTNEED)
            self._begun_bytes = self._size_bytes


def create(path: Path, mode: int) -> FileIO:
    """Create ``path`` with exactly this mode, and open it for writing.

    It is created with mode 0600 first, because a folder's default ACL may open new files to others.
    On file systems without modes, it keeps the file system's mode.

    Raises:
        OSError: the file exists, or the disk is full or gone.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(str(path), flags, 0o600)
    with suppress(PermissionError):  # as on vfat
        os.fchmod(descriptor, mode)
    return FileIO(descriptor, "wb")


def write_new(path: Path, data: bytes) -> None:
    """Create ``path`` with ``data``, and sync it.

    Raises:
        OSError: the file exists, or the disk is full or gone.
    """
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def create_marker(path: Path) -> None:
    """Create an empty marker file; do not follow a link.

    Raises:
        OSError: the disk is full or gone.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    os.close(os.open(str(path), flags, 0o600))


def sync(path: Path) -> None:
    """Sync a file or a folder. File systems that cannot sync folders, such as some on FUSE, are
    accepted: they return EINVAL."""
    descriptor = os.open(str(path), os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL or not path.is_dir():
            raise
    finally:
        os.close(descriptor)


def files_below(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield every file below ``folder``, in order, as its name (``a/b.pt``) and its path.

    Raises:
        OSError: an entry is neither a plain file nor a folder, such as a link.
    """
    for name in sorted(sizes_below(folder)):
        yield name, folder / name


def sizes_below(folder: Path | str) -> dict[str, int]:
    """Return the size in bytes of every file below ``folder``; follow and open none.

    Raises:
        OSError: an entry is neither a plain file nor a folder, such as a link.
    """
    sizes: dict[str, int] = {}
    todo = [""]
    while todo:  # no recursion: paths can be deeper than Python's stack
        below = todo.pop()
        with os.scandir(f"{folder}/{below}") as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    sizes[below + entry.name] = entry.stat(follow_symlinks=False).st_size
                elif entry.is_dir(follow_symlinks=False):
                    todo.append(f"{below}{entry.name}/")
                else:
                    raise OSError(f"{entry.path} is neither a plain file nor a folder")
    return sizes


def names_in(folder: Path | str, pattern: re.Pattern[str]) -> list[str]:
    """Return the names in ``folder`` that match ``pattern``, unordered.

    Raises:
        OSError: the folder cannot be read.
    """
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if pattern.fullmatch(entry.name)]


def folders_below(folder: Path) -> Iterator[Path]:
    """Yield every folder below ``folder``, each before those in it; follow no link.

    Raises:
        OSError: a folder cannot be read.
    """
    todo = [folder]
    while todo:  # no rglob(): in Python 3.11 it recurses for each level
        with os.scandir(todo.pop()) as entries:
            inner = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
        yield from inner
        todo += inner


def sync_folders(folder: Path) -> None:
    """Sync ``folder`` and all folders below it, but not their files."""
    for path in folders_below(folder):
        sync(path)
    sync(folder)


def remove_tree(folder: Path) -> None:
    """Remove ``folder``; ignore errors, since a hidden rest takes only space."""
    with suppress(RecursionError):  # deeper than any folder of hpcflow
        shutil.rmtree(str(folder), ignore_errors=True)


@contextmanager
def opened_folder(folder: Path) -> Iterator[Path]:
    """Open a folder of this user; yield a path that leads to it even after renames by others.

    On file systems that give all files to one owner, such as a CIFS mount with ``uid=0`` or an NFS
    export with ``all_squash``, that owner counts as this user.

    Raises:
        OSError: the folder does not exist; an :class:`UnsafeFileError` if it is a link or another
            user's.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(str(folder), flags)
    try:
        owner = os.fstat(descriptor).st_uid
        if owner != os.geteuid() and owner != _owner_of_new_files(descriptor):
            raise UnsafeFileError(errno.EPERM, "it belongs to another user", str(folder))
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _owner_of_new_files(folder: int) -> int | None:
    """Return the owner that a new file in an open folder gets; None if no file can be created."""
    name = f".hpcflow-{os.urandom(8).hex()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, 0o600, dir_fd=folder)
    except OSError:
        return None
    try:
        return os.fstat(descriptor).st_uid
    finally:
        os.close(descriptor)
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Create a folder only for its owner, and yield a path as :func:`opened_folder` does.

    After an error it is removed again.

    Raises:
        OSError: the folder cannot be created.
    """
    folder.mkdir(0o700)
    with opened_folder(folder) as opened:
        if list(opened.iterdir()):
            raise _replaced(folder)
        if opened.stat().st_mode & 0o022:
            # On file systems with modes, other users can no longer write there.
            with suppress(PermissionError):
                opened.chmod(0o700)
            if list(opened.iterdir()):
                raise _replaced(folder)
        try:
            yield opened
        except BaseException as error:
            if isinstance(error, OSError) and isinstance(error.filename, str):
                error.filename = error.filename.replace(str(opened), str(folder), 1)
            remove_opened(folder, opened)
            raise


def rename_opened(folder: Path, opened: Path, target: Path) -> None:
    """Rename ``folder`` to ``target``, and check that it was the open one.

    Raises:
        OSError: another user has replaced it.
    """
    status = opened.stat()
    if not _is(folder, status):
        raise _replaced(folder)
    folder.rename(target)
    if not _is(target, status):
        raise _replaced(target)


def remove_opened(folder: Path, opened: Path) -> None:
    """Remove the content of an open folder, and the folder itself if it still has this name."""
    with suppress(RecursionError):
        # With /. because `opened` is a link, and rmtree() refuses links.
        shutil.rmtree(f"{opened}/.", ignore_errors=True)
    if _is(folder, opened.stat()):
        with suppress(OSError):
            folder.rmdir()


def _is(folder: Path, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(folder.lstat(), status)
    except OSError:
        return False


def _replaced(folder: Path) -> UnsafeFileError:
    return UnsafeFileError(errno.EPERM, "another user has replaced it", str(folder))
