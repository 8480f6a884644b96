"""Find out how much can still be written to a path: free space, and quotas."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hpcflow.filesystem import kind_of
from hpcflow.storage import lustre
from hpcflow.storage.files import existing_parent

if TYPE_CHECKING:
    from hpcflow.runtime.quota import Quota


@dataclass(frozen=True)
class Space:
    """A file system, as one user sees it.

    Attributes:
        kind: what the kernel calls it; empty where it does not tell.
        total_bytes, free_bytes: free for users, not for root.
        quotas: those that have limits. Only Lustre is asked.
    """

    path: Path
    kind: str
    total_bytes: int
    free_bytes: int
    quotas: tuple[Quota, ...] = ()

    @property
    def left_bytes(self) -> int:
        """What this user can still write."""
        left = [quota.left_bytes for quota in self.quotas if quota.left_bytes is not None]
        return min([self.free_bytes, *left])

    @property
    def why(self) -> str:
        """What says so: ``the disk``, or whose quota."""
        tight = [each for each in self.quotas if each.left_bytes == self.left_bytes]
        if not tight or self.left_bytes == self.free_bytes:
            return "the disk"
        return f"the quota of {tight[0].whose}"


def look(path: Path, user: str) -> Space | None:
    """The file system of ``path``, or of the folder that it would be made in.

    Returns:
        None if it does not say how large it is, or cannot be looked at.
    """
    # Path.exists() raises where one may not look.
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
