"""Return how much a user can still write to a path: free space and quotas."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hpcflow.filesystem import existing_parent, kind_of
from hpcflow.storage import lustre

if TYPE_CHECKING:
    from hpcflow.runtime.disk_quota import Quota


@dataclass(frozen=True)
class Space:
    """A file system, as one user sees it.

    Attributes:
        kind: the kernel's name of its type; empty if unknown.
        free_bytes: free for users other than root.
        quotas: the quotas that have limits; only Lustre is asked.
    """

    path: Path
    kind: str
    total_bytes: int
    free_bytes: int
    quotas: tuple[Quota, ...] = ()

    @property
    def left_bytes(self) -> int:
        """Return how much this user can still write."""
        left = [quota.left_bytes for quota in self.quotas if quota.left_bytes is not None]
        return min([self.free_bytes, *left])

    @property
    def why(self) -> str:
        """Return what limits ``left_bytes``: ``the disk``, or the name of a quota."""
        tight = [each for each in self.quotas if each.left_bytes == self.left_bytes]
        if not tight or self.left_bytes == self.free_bytes:
            return "the disk"
        return f"the quota of {tight[0].whose}"


def look(path: Path, user: str) -> Space | None:
    """Return the file system of ``path`` or of its nearest existing parent; None if unknown."""
    # Path.exists() raises PermissionError.
    folder = path if os.path.exists(path) else existing_parent(path)  # noqa: PTH110
    try:
        disk = os.statvfs(folder)
    except OSError:
        return None
    if not disk.f_blocks:
        return None
    size = disk.f_frsize
    return Space(
        folder,
        kind_of(folder),
        disk.f_blocks * size,
        disk.f_bavail * size,
        tuple(lustre.quotas(folder, user)),
    )
