"""Find other users who can change a file or directory, by owner, mode and ACL."""

from __future__ import annotations

import grp
import os
import pwd
import shlex
import stat
import struct
from collections.abc import Iterator
from functools import lru_cache

ROOT = 0

_ACL = "system.posix_acl_access"
_ACL_ENTRY = struct.Struct("<HHI")
_ACL_WRITE = 2
_ACL_USER, _ACL_GROUP = 0x02, 0x08


class OpenFolder(Exception):
    """Another user can create files in a folder from which Python would import."""

    def __init__(self, message: str, next_action: str) -> None:
        super().__init__(message)
        self.next_action = next_action


def require_closed(folder: str) -> None:
    """Check that no other user can create files in ``folder``, even if it is sticky.

    Raises:
        OpenFolder: another user can.
        OSError: the folder cannot be read.
    """
    folder = os.path.realpath(folder)
    status = os.stat(folder)  # noqa: PTH116 - as os.getxattr
    who = other_writer(folder, status)
    if who is None:
        return
    mode = f"{stat.S_IMODE(status.st_mode):04o}"
    word = shlex.quote(folder)
    is_own = status.st_uid == os.geteuid()
    close = f"remove the write permission: chmod -R go-w {word}; or " if is_own else ""
    raise OpenFolder(
        f"{who} can create files in {folder} (mode {mode}), and Python would import them as you",
        f"{close}move your Python files to a folder in which only you can write",
    )


def other_writer(path: str, status: os.stat_result) -> str | None:
    """Return the user or group that can change a file or folder, besides root and this user.

    Args:
        path: not a link.
    """
    owners = frozenset((ROOT, os.geteuid()))
    if status.st_uid not in owners:
        return user_name(status.st_uid)
    return writer_of(path, status, owners, frozenset())


def writer_of(
    path: str, status: os.stat_result, owners: frozenset[int], groups: frozenset[int]
) -> str | None:
    """Return the user or group that can write to ``path``, besides ``owners`` and ``groups``.

    A group whose only member is this user, or root, may write, too.
    """
    if status.st_mode & stat.S_IWOTH:
        return "every user"
    if status.st_mode & stat.S_IWGRP:  # an ACL that grants write access sets this bit too
        # Only now, because a name service takes seconds to list a group of thousands.
        groups = groups | private_groups()
        if status.st_gid not in groups:
            return group_name(status.st_gid)
        for kind, number in _acl_writers(path):
            if kind == _ACL_USER and number not in owners:
                return user_name(number)
            if kind == _ACL_GROUP and number not in groups:
                return group_name(number)
    return None


def _acl_writers(path: str) -> Iterator[tuple[int, int]]:
    """Yield kind and id of each user and group that the POSIX ACL of ``path`` lets write."""
    try:
        acl = os.getxattr(path, _ACL, follow_symlinks=False)
    except OSError:
        return  # no ACL
    for kind, allowed, number in _ACL_ENTRY.iter_unpack(acl[4 : 4 + (len(acl) - 4) // 8 * 8]):
        if allowed & _ACL_WRITE:
            yield kind, number


@lru_cache(maxsize=4)
def _private_group(uid: int) -> int | None:
    """Return the user's primary group if it has the user's name and no other member."""
    try:
        user = pwd.getpwuid(uid)
        group = grp.getgrgid(user.pw_gid)
    except KeyError:
        return None
    is_private = group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
    return group.gr_gid if is_private else None


def private_groups() -> frozenset[int]:
    """Return the ids of the private groups of this user and of root."""
    found = {_private_group(ROOT), _private_group(os.geteuid())}
    return frozenset(each for each in found if each is not None)


def user_name(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"uid {uid}"


def group_name(gid: int) -> str:
    try:
        return f"group {grp.getgrgid(gid).gr_name}"
    except KeyError:
        return f"gid {gid}"
