"""Whether a disk has room for a checkpoint, before its writing begins.

A save that cannot end well would fill the disk to its last byte, also for everybody else who writes
there, and then be thrown away. A quota is not seen here: see quota.py.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path


def require_room(folder: Path, size_bytes: int) -> None:
    """Whether ``size_bytes`` and a little more could be written below ``folder``.

    Raises:
        OSError: no. A disk that does not say how much is free is no reason.
    """
    try:
        disk = os.statvfs(str(folder))
    except OSError:
        return
    free_bytes = disk.f_bavail * disk.f_frsize
    if disk.f_blocks and free_bytes < needed_bytes(size_bytes):
        raise OSError(
            errno.ENOSPC,
            f"a checkpoint takes {size_text(size_bytes)}, and {size_text(free_bytes)} are free",
            str(folder),
        )


def needed_bytes(size_bytes: int) -> int:
    """What must be free for a checkpoint of this size: blocks are whole, and folders take some."""
    return size_bytes + size_bytes // 50 + (64 << 10)


def size_text(size_bytes: int) -> str:
    """``1.5 GiB``: for people."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
