"""Folders that several users write in: opened and made so that no name in them leads elsewhere.

Whoever may write in a folder may exchange any name in it at any moment, for a link too. So a path
is looked up once: what it names is opened, without following a link, and from then on only the
descriptor is used. Nothing is ever changed (``chmod``) by its path.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hpcflow.storage.files import FILE_MODE, FOLDER_MODE, UnsafeFileError


@contextmanager
def open_folder(path: Path | str, *, within: int | None = None) -> Iterator[int]:
    """The descriptor of a folder, for the length of a ``with`` block.

    Args:
        within: the open folder that a relative ``path`` begins at.

    Raises:
        OSError: there is none; an :class:`UnsafeFileError` where it is a link, or no folder.
    """
    descriptor = _open(path, within)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open(path: Path | str, within: int | None) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags, dir_fd=within)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            reason = "it is a symbolic link, or no folder"
            raise UnsafeFileError(errno.EINVAL, reason, str(path)) from None
        raise


def make_folder(name: str, within: int, mode: int) -> None:
    """Make the folder ``name`` in an open one, unless there is something of that name.

    It gets its name last: whoever is killed leaves none that is closed to the others.
    """
    new = f".{name}.{secrets.token_hex(8)}"
    os.mkdir(new, FOLDER_MODE, dir_fd=within)
    try:
        with open_folder(new, within=within) as folder:
            _require_new(folder, new)
            os.fchmod(folder, mode)
        os.rename(new, name, src_dir_fd=within, dst_dir_fd=within)
    except OSError as error:
        with suppress(OSError):
            os.rmdir(new, dir_fd=within)
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise
    os.fsync(within)


def _require_new(folder: int, name: str) -> None:
    """Another folder of ours, moved to this name meanwhile, must not be opened to others.

    Raises:
        UnsafeFileError: it is not the one that was just made.
    """
    status = os.fstat(folder)
    is_closed = not stat.S_IMODE(status.st_mode) & 0o077
    if status.st_uid != os.geteuid() or not is_closed or os.listdir(folder):
        raise UnsafeFileError(errno.EINVAL, "somebody else put another folder there", name)


def make_file(name: str, within: int, mode: int) -> None:
    """Make the empty file ``name`` in an open folder, unless there is something of that name.

    It gets its name last, as a folder does.
    """
    new = f".{name}.{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(new, flags, FILE_MODE, dir_fd=within)
    try:
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)
        with suppress(FileExistsError):
            os.link(new, name, src_dir_fd=within, dst_dir_fd=within, follow_symlinks=False)
    finally:
        os.close(descriptor)
        with suppress(FileNotFoundError):
            os.unlink(new, dir_fd=within)
    os.fsync(within)
