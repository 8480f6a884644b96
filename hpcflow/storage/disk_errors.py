"""Describe errors of a disk: it is full, a quota is full, it is read-only, or access is denied."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hpcflow.errors import StorageError, shell_word
from hpcflow.filesystem import existing_parent

#: errno -> what to do next; ``{folder}`` is the folder of the file.
_NEXT = {
    errno.ENOSPC: "delete what you no longer need there; then repeat the command",
    errno.EDQUOT: "see your quota (lfs quota, quota -s), delete something, then try again",
    errno.EROFS: "wait until it is writable again, or use another scratch",
    errno.EACCES: "see who owns it: ls -ld {folder}",
    errno.EPERM: "see who owns it: ls -ld {folder}, or use a directory of your own",
    errno.ESTALE: "repeat the command",
}


def storage_error(doing: str, path: Path, error: OSError) -> StorageError:
    """Return ``error`` as a message: ``cannot DOING PATH``, with ``doing`` a verb like ``read``."""
    named = Path(error.filename2 or error.filename or path)
    # The error of a file opened with dir_fd has only the last part of its name.
    folder = shell_word(existing_parent(named if named.is_absolute() else path))
    return StorageError(
        f"cannot {doing} {path}: {error.strerror or error}",
        next_action=_NEXT.get(error.errno or 0, "look at the folder: ls -la {folder}").format(
            folder=folder
        ),
    )


@contextmanager
def storage_errors(doing: str, path: Path) -> Iterator[None]:
    """Raise an OSError of the block as :func:`storage_error`."""
    try:
        yield
    except OSError as error:
        raise storage_error(doing, path, error) from error
