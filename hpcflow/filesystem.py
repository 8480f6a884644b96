"""Look up the file system of a path, as the kernel reports it, and its nearest existing folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

LUSTRE: Final = "lustre"

#: Several machines may mount these. FUSE may serve a shared file system, so it counts.
SHARED: Final = frozenset(
    {"nfs", "nfs4", LUSTRE, "gpfs", "beegfs", "ceph", "cifs", "smb3", "smbfs", "afs", "9p"}
    | {"wekafs", "panfs", "pvfs2", "orangefs", "ocfs2", "gfs2", "glusterfs", "fuse"}
    | {"dvs", "fhgfs", "virtiofs", "autofs", "cvfs"}
)

_MOUNTS: Final = Path("/proc/self/mountinfo")
_SUPPORTED: Final = Path("/proc/filesystems")


def is_shared(path: Path, mountinfo: Path = _MOUNTS) -> bool:
    """Return whether other machines may see the file system of ``path``.

    SQLite's write-ahead log needs memory that all processes share, so True is the safe answer if
    the kernel does not tell.
    """
    kind = kind_of(path, mountinfo)
    return not kind or kind.partition(".")[0] in SHARED


def is_supported(kind: str, filesystems: Path = _SUPPORTED) -> bool:
    """Return whether the kernel can mount ``kind``; faster than :func:`kind_of`."""
    supported = _supported(filesystems)
    return supported is None or kind.encode() in supported


@lru_cache
def _supported(filesystems: Path) -> frozenset[bytes] | None:
    try:
        return frozenset(filesystems.read_bytes().split())
    except OSError:
        return None


@dataclass(frozen=True)
class Mount:
    """A mounted file system.

    Attributes:
        kind: the kernel's name of its type, such as ``lustre``, ``fuse.sshfs``; empty if unknown.
        options: its mount options, and those of its file system.
    """

    kind: str = ""
    options: frozenset[str] = frozenset()


def kind_of(path: Path, mountinfo: Path = _MOUNTS) -> str:
    """Return the kernel's name of the file system of ``path``; see :func:`mount_of`."""
    return mount_of(path, mountinfo).kind


def mount_of(path: Path, mountinfo: Path = _MOUNTS) -> Mount:
    """Return the mount of ``path``, or of its folder if it does not exist."""
    try:
        # Any user can put a line end of Python's splitlines() into the name of a mount point; the
        # kernel escapes only line feeds.
        lines = mountinfo.read_bytes().decode("utf-8", "surrogateescape").split("\n")
        target = str(path.resolve())
    except (OSError, RuntimeError):  # RuntimeError: a loop of links
        return Mount()
    best, found = "", Mount()
    for line in lines:
        mount, _, tail = line.partition(" - ")
        fields = mount.split(" ", 6)
        if len(fields) < 5:
            continue
        point = _unescape(fields[4]) if "\\" in fields[4] else fields[4]
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):  # a later mount on the same point hides the earlier
            kind, _, rest = tail.partition(" ")
            options = [*fields[5:6], *rest.split(" ")[1:]]
            best, found = point, Mount(kind, frozenset(",".join(options).split(",")))
    return found


def _unescape(text: str) -> str:
    """Undo the kernel's octal escapes of blank, tab, newline and backslash."""
    for code, character in (("040", " "), ("011", "\t"), ("012", "\n"), ("134", "\\")):
        text = text.replace(f"\\{code}", character)
    return text


def existing_parent(path: Path) -> Path:
    """Return the nearest existing folder above ``path``; skip those that this user cannot see."""
    for parent in path.parents:
        if os.path.lexists(parent):
            return parent
    return path
