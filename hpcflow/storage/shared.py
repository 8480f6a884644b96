"""Open and create files in directories that several users can write to.

A user who can write to a directory can replace any name in it at any moment, also by a link. So
each path is opened once, without following links, and then only its descriptor is used, also for
``chmod``.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hpcflow.runtime.reading import UnsafeFileError
from hpcflow.storage.files import FILE_MODE, FOLDER_MODE


@contextmanager
def open_folder(path: Path | str, *, within: int | None = None) -> Iterator[int]:
    """Open a directory for the length of a ``with`` block.

    Args:
        within: open descriptor of the directory that a relative ``path`` starts from.

    Raises:
        OSError: it does not exist; an :class:`UnsafeFileError` if it is not a directory.
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
            reason = "it is a symbolic link, or not a folder"
            raise UnsafeFileError(errno.EINVAL, reason, str(path)) from None
        raise


def make_folder(name: str, within: int, mode: int) -> None:
    """Make the directory ``name`` in an open directory, unless the name exists.

    The rename comes last, so a crash leaves no directory that other users cannot read.
    """
    new = f".{name[:50]}.{secrets.token_hex(8)}"  # ``name`` may have the maximum length
    os.mkdir(new, FOLDER_MODE, dir_fd=within)
    try:
        with open_folder(new, within=within) as folder:
            if mode & ~os.fstat(folder).st_mode:  # some file systems have one fixed mode
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
    """Check that the new directory was not replaced by another one of this user."""
    status = os.fstat(folder)
    is_closed = not stat.S_IMODE(status.st_mode) & 0o077
    if status.st_uid != os.geteuid() or not is_closed or os.listdir(folder):
        raise UnsafeFileError(errno.EINVAL, "another user replaced this folder", name)


def make_file(name: str, within: int, mode: int) -> None:
    """Make the empty file ``name`` in an open directory, unless the name exists.

    The link with its name comes last, as in :func:`make_folder`.
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
