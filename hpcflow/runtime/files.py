"""Writing so that it is still there after a crash of the node."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

_CHUNK_BYTES = 1 << 20


def write_new(path: Path, data: bytes) -> None:
    """Create ``path`` with ``data``, on disk when this returns.

    Raises:
        OSError: it exists, or the disk is full or gone.
    """
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync(path: Path) -> None:
    """Return when ``path``, a file or a folder, is on disk."""
    descriptor = os.open(str(path), os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def files_below(folder: Path) -> Iterator[tuple[str, Path]]:
    """Every file below ``folder``, in order, as its name (``a/b.pt``) and its path.

    Raises:
        OSError: something there is neither a plain file nor a folder, such as a link.
    """
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise OSError(f"{path} is neither a plain file nor a folder")
        if path.is_file():
            yield path.relative_to(folder).as_posix(), path


def sync_tree(folder: Path) -> None:
    """Return when ``folder`` and all below it are on disk."""
    for path in sorted(folder.rglob("*")):
        sync(path)
    sync(folder)


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for chunk in iter(lambda: file.read(_CHUNK_BYTES), b""):
            digest.update(chunk)
    return digest.hexdigest()


def remove_tree(folder: Path) -> None:
    """Remove ``folder`` as far as that works; what stays is hidden and takes only space."""
    shutil.rmtree(str(folder), ignore_errors=True)
