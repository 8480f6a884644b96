"""Check that a disk has room for a checkpoint before it is written.

A save without room would fill the disk for all users, and then fail. For quotas see quota.py.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path


def require_room(folder: Path, size_bytes: int) -> None:
    """Check that ``size_bytes``, and a margin, can be written below ``folder``.

    A file system that does not report its free space passes.

    Raises:
        OSError: there is no room.
    """
    try:
        disk = os.statvfs(str(folder))
    except OSError:
        return
    free_bytes = disk.f_bavail * disk.f_frsize
    if disk.f_blocks and free_bytes < needed_bytes(size_bytes):
        raise OSError(
            errno.ENOSPC,
            f"a checkpoint takes {size_text(size_bytes)}, but {size_text(free_bytes)} are free",
            str(folder),
        )


def needed_bytes(size_bytes: int) -> int:
    """Return the free space needed for a checkpoint of this size, with its blocks and folders."""
    return size_bytes + size_bytes // 50 + (64 << 10)


def size_text(size_bytes: int) -> str:
    """Return a size for people: ``1.5 GiB``."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
