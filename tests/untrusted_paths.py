"""Paths with safe directories, and with directories that another user could replace."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

EVE, LAB = 4711, 4712


def folders(root: Path) -> Path:
    path = root / "shared/ada/hpcflow"
    path.mkdir(parents=True, mode=0o755)
    for each in (path, path.parent, path.parent.parent):
        each.chmod(0o755)
    return path


def own(root: Path) -> None:
    (root / "shared").chmod(0o755)


def of_eve(root: Path) -> None:
    os.chown(root / "shared/ada", EVE, -1)


def open_to_all(root: Path) -> None:
    (root / "shared/ada").chmod(0o777)


def open_to_a_group(root: Path) -> None:
    os.chown(root / "shared/ada", -1, LAB)
    (root / "shared/ada").chmod(0o2775)


def open_and_sticky(root: Path) -> None:
    (root / "shared").chmod(0o1777)


def open_and_sticky_with_a_folder_of_eve(root: Path) -> None:
    (root / "shared").chmod(0o1777)
    os.chown(root / "shared/ada", EVE, -1)


def open_to_root_alone(root: Path) -> None:
    (root / "shared/ada").chmod(0o775)


def a_link_to_an_open_folder(root: Path) -> None:
    (root / "open").mkdir()
    (root / "shared/ada").rename(root / "open/ada")
    (root / "open").chmod(0o777)
    (root / "shared/ada").symlink_to("../open/ada")


def a_link_through_an_open_folder(root: Path) -> None:
    """The last link is in a folder where others can replace it; what both lead to is closed."""
    (root / "closed").mkdir(mode=0o755)
    (root / "open").mkdir()
    (root / "shared/ada").rename(root / "closed/ada")
    (root / "open/there").symlink_to(root / "closed/ada")
    (root / "open").chmod(0o777)
    (root / "shared/ada").symlink_to(root / "open/there")


def a_link_to_a_closed_folder(root: Path) -> None:
    (root / "closed").mkdir(mode=0o755)
    (root / "shared/ada").rename(root / "closed/ada")
    (root / "shared/ada").symlink_to("./x/../../closed/ada")
    (root / "shared/x").mkdir(mode=0o755)


def eves_link_in_a_sticky_folder(root: Path) -> None:
    a_link_to_a_closed_folder(root)
    (root / "shared").chmod(0o1777)
    os.chown(root / "shared/ada", EVE, -1, follow_symlinks=False)


def everybody(folder: Path) -> None:
    folder.chmod(0o777)


def everybody_though_it_is_sticky(folder: Path) -> None:
    folder.chmod(0o1777)


def a_group(folder: Path) -> None:
    os.chown(folder, -1, LAB)
    folder.chmod(0o770)


def a_group_though_it_is_sticky(folder: Path) -> None:
    os.chown(folder, -1, LAB)
    folder.chmod(0o1775)


def its_owner(folder: Path) -> None:
    os.chown(folder, EVE, -1)


def a_user_by_an_acl(folder: Path) -> None:
    _set_acl(folder, (0x02, 7, EVE))


def a_group_by_an_acl(folder: Path) -> None:
    _set_acl(folder, (0x08, 7, LAB))
    folder.chmod(folder.stat().st_mode | stat.S_ISVTX)


def _set_acl(folder: Path, *entries: tuple[int, int, int]) -> None:
    try:
        os.setxattr(folder, "system.posix_acl_access", acl(*entries))
    except OSError:
        pytest.skip("no ACLs on this file system")


#: What lets others create files in a folder -> who they are.
CREATORS: dict[Callable[[Path], None], str] = {
    everybody: "every user",
    everybody_though_it_is_sticky: "every user",
    a_group: f"gid {LAB}",
    a_group_though_it_is_sticky: f"gid {LAB}",
    its_owner: f"uid {EVE}",
    a_user_by_an_acl: f"uid {EVE}",
    a_group_by_an_acl: f"gid {LAB}",
}


def acl(*entries: tuple[int, int, int]) -> bytes:
    every = sorted([(0x01, 7, 0xFFFFFFFF), (0x04, 5, 0xFFFFFFFF), (0x10, 7, 0xFFFFFFFF)])
    every += [*entries, (0x20, 5, 0xFFFFFFFF)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *each) for each in sorted(every))


def open_to_eve_by_an_acl(root: Path) -> None:
    try:
        os.setxattr(root / "shared/ada", "system.posix_acl_access", acl((0x02, 7, EVE)))
    except OSError:
        pytest.skip("no ACLs on this file system")
    assert (root / "shared/ada").stat().st_mode & 0o020, "the mask"


def open_to_a_group_by_an_acl(root: Path) -> None:
    try:
        os.setxattr(root / "shared/ada", "system.posix_acl_access", acl((0x08, 7, LAB)))
    except OSError:
        pytest.skip("no ACLs on this file system")


def open_what_is_made_in(folder: Path) -> None:
    """Set an ACL that opens all that is made there to everybody, whatever the umask."""
    every = [(kind, 7, 0xFFFFFFFF) for kind in (0x01, 0x04, 0x10, 0x20)]
    found = struct.pack("<I", 2) + b"".join(
        struct.pack("<HHI", *each) for each in sorted([*every, (0x02, 7, EVE)])
    )
    try:
        os.setxattr(folder, "system.posix_acl_default", found)
    except OSError:
        pytest.skip("no ACLs on this file system")


def is_open_to_others(path: Path) -> bool:
    """Whether the mode, which an ACL cannot go beyond, opens ``path`` to others."""
    return bool(path.stat().st_mode & 0o077)


def readable_to_eve_by_an_acl(root: Path) -> None:
    try:
        os.setxattr(root / "shared/ada", "system.posix_acl_access", acl((0x02, 5, EVE)))
    except OSError:
        pytest.skip("no ACLs on this file system")


SAFE: tuple[Callable[[Path], None], ...] = (
    own,
    open_and_sticky,
    open_to_root_alone,
    a_link_to_a_closed_folder,
    readable_to_eve_by_an_acl,
)
#: Layout -> what is said of it.
UNSAFE: dict[Callable[[Path], None], str] = {
    of_eve: f"shared/ada belongs to uid {EVE}",
    open_to_all: "every user can write to .*shared/ada",
    open_to_a_group: f"gid {LAB} can write to .*shared/ada",
    open_and_sticky_with_a_folder_of_eve: f"shared/ada belongs to uid {EVE}",
    a_link_to_an_open_folder: "every user can write to .*/open",
    a_link_through_an_open_folder: "every user can write to .*/open",
    eves_link_in_a_sticky_folder: f"shared/ada belongs to uid {EVE}",
    open_to_eve_by_an_acl: f"uid {EVE} can write to .*shared/ada",
    open_to_a_group_by_an_acl: f"gid {LAB} can write to .*shared/ada",
}
