"""Check that free space and quotas have room for a checkpoint before it is written.

A save without room would fill the disk for all users, and then fail. Quotas are read on Lustre by
the program ``lfs``, which is slow: a job does it on the thread that writes. A quota that cannot be
read is ignored.
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

#: ``LL_SUPER_MAGIC`` in Lustre's lustre_user.h: the type that statfs returns.
_LUSTRE = 0x0BD00BD3

#: Seconds for one call. If a target is down, lfs waits much longer.
_TIMEOUT_S = 10.0
_KIB = 1024
#: ``309200*`` is over its quota; ``[1041408]`` is incomplete, because a target is down.
_NUMBER = r"\[?([0-9]{1,18})\]?\*?"
_NUMBERS = rf"{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}"
_ROW = re.compile(
    rf"^\s*Filesystem .*grace\s*\n\s*\S.*?\s{_NUMBERS}\s+(\S+)\s+{_NUMBERS}(?:\s|$)",
    re.ASCII | re.MULTILINE | re.DOTALL,
)
_PROJECT = re.compile(r"\s*([1-9][0-9]{0,9})\s+[P-]\s", re.ASCII)


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


@dataclass(frozen=True)
class Quota:
    """The quota and usage of a user, group or project on a file system.

    Attributes:
        whose: ``user ada``, ``group 1003``, ``project 110255``.
        limit_bytes, limit_files: the hard limits; None for no limit.
        soft_bytes: the soft limit, which may be exceeded for the grace time; None for no limit.
        is_grace_over: whether the grace time of the soft limit has expired.
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
        """Return the bytes left below both limits; None without a limit."""
        limits = [limit for limit in (self.soft_bytes, self.limit_bytes) if limit is not None]
        return max(0, min(limits) - self.used_bytes) if limits else None

    @property
    def writable_bytes(self) -> int | None:
        """Return the bytes that can be written now: up to the hard limit, during the grace time."""
        if self.is_grace_over:
            return 0
        return None if self.limit_bytes is None else max(0, self.limit_bytes - self.used_bytes)


def require_quota(folder: Path, size_bytes: int) -> None:
    """Check that Lustre quotas leave room for a checkpoint of ``size_bytes`` in ``folder``.

    Raises:
        OSError: they do not.
    """
    if not is_lustre(folder):
        return
    for quota in quotas(folder, str(os.getuid())):
        left_bytes = quota.writable_bytes
        if left_bytes is not None and left_bytes < needed_bytes(size_bytes):
            raise OSError(
                errno.EDQUOT,
                f"a checkpoint takes {size_text(size_bytes)}, but the quota of {quota.whose} "
                f"leaves {size_text(left_bytes)}",
                str(folder),
            )


def is_lustre(folder: Path) -> bool:
    try:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        statfs = ctypes.create_string_buffer(1024)  # the structure is far smaller
        if libc.statfs(os.fsencode(str(folder)), statfs) != 0:
            return False
        return ctypes.c_long.from_buffer(statfs).value == _LUSTRE
    except (ImportError, OSError, AttributeError):
        return False


def quotas(folder: Path, user: str) -> list[Quota]:
    """Return the quotas that apply to files of ``user`` in ``folder``: user, group and project.

    Quotas without limits, and those that cannot be read, are left out.
    """
    found = []
    for option, name, word in _whose(folder, user):
        output = lfs("quota", option, name, str(folder))
        quota = parse_quota(output, f"{word} {name}") if output is not None else None
        if quota is not None and (quota.left_bytes is not None or quota.limit_files is not None):
            found.append(quota)
    return found


def parse_quota(text: str, whose: str) -> Quota | None:
    """Parse ``lfs quota`` for one user, group or project; None if there is no such row.

    The row has nine columns: file system, kbytes, quota, limit, grace, files, quota, limit, grace.
    A long file system name is on its own line. 0 means no limit. Grace is ``none`` if it has
    expired, and ``-`` if nothing is exceeded.
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
    """Yield the option of ``lfs quota``, its argument, and the kind of that."""
    yield "-u", user, "user"
    try:
        yield "-g", str(path.stat().st_gid), "group"
    except OSError:
        return
    project = _PROJECT.match(lfs("project", "-d", str(path)) or "")
    if project is not None:
        yield "-p", project[1], "project"


def lfs(*arguments: str) -> str | None:
    """Return the output of ``lfs``; None if it is missing, fails, or times out."""
    program = shutil.which("lfs")
    if program is None:
        return None
    import subprocess  # slow, and not needed at the start of a job

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
        with suppress(subprocess.TimeoutExpired):  # a process that hangs in the kernel stays
            process.communicate(timeout=1)
        return None
    return out if process.returncode == 0 else None
