"""Look up the file system type of a path as the kernel reports it, never by the path's name."""

from __future__ import annotations

from pathlib import Path
from typing import Final

LUSTRE: Final = "lustre"

#: Seen by several machines at once. What FUSE serves may be, so it counts.
SHARED: Final = frozenset(
    {"nfs", "nfs4", LUSTRE, "gpfs", "beegfs", "ceph", "cifs", "smb3", "smbfs", "afs", "9p"}
    | {"wekafs", "panfs", "pvfs2", "orangefs", "ocfs2", "gfs2", "glusterfs", "fuse"}
    | {"dvs", "fhgfs", "virtiofs", "autofs", "cvfs"}
)

_MOUNTS: Final = Path("/proc/self/mountinfo")
_SUPPORTED: Final = Path("/proc/filesystems")


def is_shared(path: Path, mountinfo: Path = _MOUNTS) -> bool:
    """Whether other machines may see the file system that ``path``, or its folder, lies on.

    SQLite's write-ahead log needs memory that all who use it share. When the kernel does not tell,
    the answer is True: it is the safe one.
    """
    kind = kind_of(path, mountinfo)
    return not kind or kind.partition(".")[0] in SHARED


def is_supported(kind: str, filesystems: Path = _SUPPORTED) -> bool:
    """Whether the kernel can mount this kind, such as ``lustre``; faster than :func:`kind_of`."""
    try:
        return kind.encode() in filesystems.read_bytes().split()
    except OSError:
        return True


def kind_of(path: Path, mountinfo: Path = _MOUNTS) -> str:
    """What the kernel calls the file system of ``path``, such as ``lustre`` or ``fuse.sshfs``.

    ``path`` need not exist: then it is that of the folder it would be made in. Empty when the
    kernel does not tell.
    """
    try:
        # Any user can mount something under a name that holds a line end of Python's splitlines();
        # the kernel escapes line feeds alone.
        lines = mountinfo.read_bytes().decode("utf-8", "surrogateescape").split("\n")
        target = str(path.resolve())
    except (OSError, RuntimeError):  # RuntimeError: links that lead in a circle
        return ""
    best, kind = "", ""
    for line in lines:
        mount, _, tail = line.partition(" - ")
        fields = mount.split(" ", 5)
        if len(fields) < 5:
            continue
        point = _unescape(fields[4]) if "\\" in fields[4] else fields[4]
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):  # a later mount on the same point hides the earlier
            best, kind = point, tail.split(" ")[0]
    return kind


def _unescape(text: str) -> str:
    """Undo the kernel's octal escapes of blank, tab, newline and backslash."""
    for code, character in (("040", " "), ("011", "\t"), ("012", "\n"), ("134", "\\")):
        text = text.replace(f"\\{code}", character)
    return text
