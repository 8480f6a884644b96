"""What a quota of Lustre leaves, asked before a checkpoint is written.

It takes a program, ``lfs``, and the time that this needs: so a job asks on the thread that writes,
and only where there is Lustre. Whatever cannot be found out is no reason not to write.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hpcflow.runtime.room import needed_bytes, size_text

#: ``LL_SUPER_MAGIC`` in Lustre's lustre_user.h: what statfs says of it.
_LUSTRE = 0x0BD00BD3

#: Seconds for one answer. A target that is down lets lfs wait much longer.
_TIMEOUT_S = 10.0
_KIB = 1024
#: ``309200*`` is over its quota; ``[1041408]`` is what could be found out with a target missing.
_NUMBER = r"\[?([0-9]{1,18})\]?\*?"
_NUMBERS = rf"{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}"
_ROW = re.compile(
    rf"^\s*Filesystem .*grace\s*\n\s*\S.*?\s{_NUMBERS}\s+(\S+)\s+{_NUMBERS}(?:\s|$)",
    re.ASCII | re.MULTILINE | re.DOTALL,
)
_PROJECT = re.compile(r"\s*([1-9][0-9]{0,9})\s+[P-]\s", re.ASCII)


@dataclass(frozen=True)
class Quota:
    """How much somebody may have on a file system, and has.

    Attributes:
        whose: ``user ada``, ``group 1003``, ``project 110255``.
        limit_bytes, limit_files: beyond these nothing is written; None for no limit.
        soft_bytes: beyond this, only for the time of grace; None for no such limit.
        is_grace_over: whether it is beyond that, and has been for as long.
    """

    whose: str
    used_bytes: int
    soft_bytes: int | None
    limit_bytes: int | None
    used_files: int | None
    limit_files: int | None
    is_grace_over: bool = False

    @property
    def left_bytes(self) -> int | None:
        """What may still be written, and stay written; None where there is no limit."""
        limits = [limit for limit in (self.soft_bytes, self.limit_bytes) if limit is not None]
        return max(0, min(limits) - self.used_bytes) if limits else None

    @property
    def writable_bytes(self) -> int | None:
        """What can be written now: more than is left, as long as the time of grace lasts."""
        if self.is_grace_over:
            return 0
        return None if self.limit_bytes is None else max(0, self.limit_bytes - self.used_bytes)


def require_quota(folder: Path, size_bytes: int) -> None:
    """Whether the quotas leave room for a checkpoint of ``size_bytes`` in ``folder``, on Lustre.

    Raises:
        OSError: no.
    """
    if not is_lustre(folder):
        return
    for quota in quotas(folder, str(os.getuid())):
        left_bytes = quota.writable_bytes
        if left_bytes is not None and left_bytes < needed_bytes(size_bytes):
            raise OSError(
                errno.EDQUOT,
                f"a checkpoint takes {size_text(size_bytes)}, and the quota of {quota.whose} "
                f"leaves {size_text(left_bytes)}",
                str(folder),
            )


def is_lustre(folder: Path) -> bool:
    """Whether ``folder`` lies on Lustre."""
    try:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        statfs = ctypes.create_string_buffer(1024)  # far more than the structure takes
        if libc.statfs(os.fsencode(str(folder)), statfs) != 0:
            return False
        return ctypes.c_long.from_buffer(statfs).value == _LUSTRE
    except (ImportError, OSError, AttributeError):
        return False


def quotas(folder: Path, user: str) -> list[Quota]:
    """The quotas for what ``user`` writes in ``folder``: the user's, the group's, the project's.

    Those that have no limits are left out, and so is what cannot be found out.
    """
    found = []
    for option, name, word in _whose(folder, user):
        said = lfs("quota", option, name, str(folder))
        quota = parse_quota(said, f"{word} {name}") if said is not None else None
        if quota is not None and (quota.left_bytes is not None or quota.limit_files is not None):
            found.append(quota)
    return found


def parse_quota(text: str, whose: str) -> Quota | None:
    """What ``lfs quota`` prints for one user, group or project; None where there is no such row.

    The row has nine columns: file system, kbytes, quota, limit, grace, files, quota, limit, grace.
    Of a long name it makes a line of its own. No limit is 0. Grace is ``none`` when it is over, and
    ``-`` where nothing is exceeded.
    """
    row = _ROW.search(text)
    if row is None:
        return None
    grace = row[4]
    used, soft, limit, files, _, files_limit = (int(row[each]) for each in (1, 2, 3, 5, 6, 7))
    return Quota(
        whose,
        used * _KIB,
        soft * _KIB or None,
        limit * _KIB or None,
        files,
        files_limit or None,
        grace == "none",
    )


def _whose(path: Path, user: str) -> Iterator[tuple[str, str, str]]:
    """Option of ``lfs quota``, its argument, and what that is."""
    yield "-u", user, "user"
    try:
        yield "-g", str(path.stat().st_gid), "group"
    except OSError:
        return
    project = _PROJECT.match(lfs("project", "-d", str(path)) or "")
    if project is not None:
        yield "-p", project[1], "project"


def lfs(*arguments: str) -> str | None:
    """What ``lfs`` prints; None if it is missing, fails, or does not answer in time."""
    program = shutil.which("lfs")
    if program is None:
        return None
    import subprocess  # the start of a job has no use for it

    try:
        process = subprocess.Popen(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
            text=True,
            errors="replace",
        )
    except OSError:
        return None
    try:
        out, _ = process.communicate(timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        with suppress(subprocess.TimeoutExpired):  # one that hangs in the kernel does not die
            process.communicate(timeout=1)
        return None
    return out if process.returncode == 0 else None
