"""The path check: find a directory on a path that another user could replace.

A user who owns a directory, or can write to it, can rename its entries and put others in their
place. So a path is as safe as its weakest directory. The job script applies the same rules in bash:
``templates/parts/path_check.j2``.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from hpcflow.errors import InputError, StorageError, shell_word
from hpcflow.runtime.creators import ROOT, OpenFolder, require_closed, user_name, writer_of

if TYPE_CHECKING:
    import tempfile

#: The limit of Linux itself.
_MOST_LINKS: Final = 40


@dataclass(frozen=True)
class Trust:
    """The ids that may replace a directory on a path, besides root and this user.

    Attributes:
        users: users that may own directories.
        groups: groups that may write to them.
    """

    users: frozenset[int] = frozenset()
    groups: frozenset[int] = frozenset()


NO_TRUST: Final = Trust()


@dataclass(frozen=True)
class WeakPoint:
    """A directory on a path that another user could replace.

    Attributes:
        who: the other user or group: ``user eve``, ``group lab``, or ``every user``.
        is_owner: whether ``who`` owns the directory; else ``who`` can write to it.
        is_own: whether this user owns it, and so can correct its mode.
    """

    folder: Path
    who: str
    is_owner: bool
    is_own: bool

    def __str__(self) -> str:
        if self.is_owner:
            return f"{self.folder} belongs to {self.who}"
        return f"{self.who} can write to {self.folder}"

    @property
    def remedy(self) -> str:
        folder = shell_word(self.folder)
        if self.is_own:
            return f"remove the write permission: chmod go-w {folder}"
        return f"find its owner: ls -ld {folder}"


def weak_point(path: Path, trust: Trust = NO_TRUST) -> WeakPoint | None:
    """Return the first directory on ``path``, the last included, that another user could replace.

    The check covers every component, and those that links lead to. Root, this user or a trusted
    user must own each one. No other user may write to it, unless it is sticky as ``/tmp`` is: there
    users can rename only their own files. A missing component is accepted.

    Raises:
        OSError: a directory cannot be read, or links form a loop.
    """
    owners = trust.users | {ROOT, os.geteuid()}
    for part in _parts(path):
        weak = _foreign(part, owners)
        if weak is None and part.status.st_mode & 0o022 and not part.is_link:
            weak = _weakness(part.path, part.status, owners, trust.groups)
        if weak is not None:
            return weak
    return None


def is_open_to_others(path: Path, trust: Trust = NO_TRUST) -> bool:
    """Return whether another user can create an entry in ``path`` or a directory on it.

    Sticky directories count: there another user cannot replace what exists, but can create what a
    purge has removed. A path that cannot be read counts as open.
    """
    owners = trust.users | {ROOT, os.geteuid()}
    try:
        return any(
            _foreign(part, owners) or writer_of(part.path, part.status, owners, trust.groups)
            for part in _parts(path)
            if not part.is_link
        )
    except OSError:
        return True


def require_closed_folder(folder: Path) -> None:
    """Refuse to let jobs import from ``folder`` if another user can create files in it.

    The job checks it again: :func:`hpcflow.runtime.calling.look_in`.

    Raises:
        InputError: another user can create files in it.
    """
    try:
        require_closed(str(folder))
    except OpenFolder as problem:
        raise InputError(str(problem), next_action=problem.next_action) from None
    except OSError:
        return  # nothing can be imported from there


def foreign_part(path: Path, trust: Trust = NO_TRUST) -> WeakPoint | None:
    """Return the first directory or link on ``path`` that another user has made.

    :func:`weak_point` also finds each of these, so no path that a submission accepted is refused
    later. This function queries no name service, so it is fast enough for every run.
    """
    owners = trust.users | {ROOT, os.geteuid()}
    found = (_foreign(part, owners) for part in _parts(path))
    return next((weak for weak in found if weak is not None), None)


class _Part(NamedTuple):
    """A component of a path, or of the target of a link on it.

    Attributes:
        is_open: whether users other than its owner can write to the directory that it is in.
    """

    path: str
    status: os.stat_result
    is_open: bool

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.status.st_mode)


def _foreign(part: _Part, owners: frozenset[int]) -> WeakPoint | None:
    """Return a directory of another user, or a link that this user could have made there."""
    uid = part.status.st_uid
    if uid in owners or (part.is_link and not part.is_open):
        return None
    return WeakPoint(Path(part.path), user_name(uid), is_owner=True, is_own=False)


def _parts(path: Path) -> Iterator[_Part]:
    """Yield each component of ``path`` that exists, and those that its links lead to."""
    at, ahead, links = "/", list(reversed(path.parts[1:])), 0
    status = os.lstat(at)
    yield _Part(at, status, is_open=False)
    while ahead:
        name = ahead.pop()
        if name == "..":
            at = os.path.dirname(at)  # noqa: PTH120 - `at` holds no link
            status = os.lstat(at)
            continue
        child = f"{at}/{name}" if at != "/" else f"/{name}"
        try:
            found = os.lstat(child)
        except (FileNotFoundError, NotADirectoryError):
            return
        part = _Part(child, found, is_open=bool(status.st_mode & 0o022))
        yield part
        if not part.is_link:
            at, status = child, found
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), child)
        target = Path(os.readlink(child))  # noqa: PTH115
        ahead.extend(reversed(target.parts[1:] if target.is_absolute() else target.parts))
        if target.is_absolute():
            at = "/"
            status = os.lstat(at)


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a new temporary directory, which no other user can replace.

    With a full ``/tmp``, Python takes the working directory, in which others may be able to write.
    If there is no safe place, this raises StorageError.
    """
    import tempfile  # takes 10 ms, and few commands need it

    try:
        top = Path(tempfile.gettempdir())
        weak = weak_point(top)
        if weak is None:
            return tempfile.TemporaryDirectory(prefix="hpcflow-", dir=top)
        why = str(weak)
    except OSError as error:
        why = error.strerror or str(error)
    raise StorageError(
        f"no temporary directory can be made: {why}",
        next_action="free space in /tmp, or name another directory: export TMPDIR=...",
    )


def _weakness(
    path: str, status: os.stat_result, owners: frozenset[int], groups: frozenset[int]
) -> WeakPoint | None:
    """Return ``path`` if users other than its owner can replace what is in it."""
    if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX:
        return None
    who = writer_of(path, status, owners, groups)
    if who is None:
        return None
    return WeakPoint(Path(path), who, is_owner=False, is_own=status.st_uid == os.geteuid())
