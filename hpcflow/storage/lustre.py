"""What Lustre alone can do: stripes for the files of a folder, and quotas. Elsewhere: nothing.

Lustre is known by what the kernel says of the file system, never by a path. All of it is advice:
where ``lfs`` is missing, old, or does not answer, nothing is set and nothing is known.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hpcflow.filesystem import LUSTRE, kind_of

#: A progressive layout: how many storage targets a file is spread over grows with the file, so
#: nobody has to know beforehand how large it will be. Up to 1 GiB one, up to 16 GiB four, beyond
#: eight, which is what https://wiki.lustre.org/Lustre_Striping_Best_Practices recommends for files
#: of these sizes that one client writes. The options are those of "Managing File Layout (Striping)
#: and Free Space" in the Lustre Operations Manual, https://doc.lustre.org/lustre_manual.xhtml.
LAYOUT: Final = (
    *("-E", "1G", "-c", "1", "-S", "4M"),
    *("-E", "16G", "-c", "4", "-S", "4M"),
    *("-E", "-1", "-c", "8", "-S", "4M"),
)

#: Seconds for one answer. A target that is down lets lfs wait much longer.
_TIMEOUT_S: Final = 10.0
_KIB: Final = 1024
#: ``309200*`` is over its quota; ``[1041408]`` is what could be found out with a target missing.
_NUMBER: Final = r"\[?([0-9]{1,18})\]?\*?"
_NUMBERS: Final = rf"{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}"
_ROW: Final = re.compile(
    rf"^\s*Filesystem .*grace\s*\n\s*\S.*?\s{_NUMBERS}\s+\S+\s+{_NUMBERS}(?:\s|$)",
    re.ASCII | re.MULTILINE | re.DOTALL,
)
_PROJECT: Final = re.compile(r"\s*([1-9][0-9]{0,9})\s+[P-]\s", re.ASCII)


@dataclass(frozen=True)
class Quota:
    """How much somebody may have on a file system, and has.

    Attributes:
        whose: ``user ada``, ``group 1003``, ``project 110255``.
        limit_bytes, limit_files: beyond these nothing is written; None for no limit.
        soft_bytes: beyond this, only for the time of grace; None for no such limit.
    """

    whose: str
    used_bytes: int
    soft_bytes: int | None
    limit_bytes: int | None
    used_files: int | None
    limit_files: int | None

    @property
    def left_bytes(self) -> int | None:
        """What may still be written; None where there is no limit."""
        limits = [limit for limit in (self.soft_bytes, self.limit_bytes) if limit is not None]
        return max(0, min(limits) - self.used_bytes) if limits else None


def is_lustre(path: Path) -> bool:
    """Whether ``path`` lies on Lustre."""
    return kind_of(path) == LUSTRE


def set_layout(folder: Path) -> bool:
    """Let files and folders that are made in ``folder`` from now on have :data:`LAYOUT`.

    Where the site has set a progressive layout itself, that one stays: it knows its targets.

    Returns:
        Whether it was set.
    """
    if not is_lustre(folder):
        return False
    current = _lfs("getstripe", "-d", str(folder))
    if current is None or "lcm_entry_count" in current:
        return False
    return _lfs("setstripe", *LAYOUT, str(folder)) is not None


def quotas(path: Path, user: str) -> list[Quota]:
    """The quotas for what ``user`` writes at ``path``: the user's, the group's, the project's.

    Those that have no limits are left out, and so is what cannot be found out.
    """
    if not is_lustre(path):
        return []
    found = []
    for option, name, word in _whose(path, user):
        said = _lfs("quota", option, name, str(path))
        quota = parse_quota(said, f"{word} {name}") if said is not None else None
        if quota is not None and (quota.left_bytes is not None or quota.limit_files is not None):
            found.append(quota)
    return found


def parse_quota(text: str, whose: str) -> Quota | None:
    """What ``lfs quota`` prints for one user, group or project; None where there is no such row.

    The row has nine columns: file system, kbytes, quota, limit, grace, files, quota, limit, grace.
    Of a long name it makes a line of its own. No limit is 0.
    """
    row = _ROW.search(text)
    if row is None:
        return None
    used, soft, limit, files, _, files_limit = (int(number) for number in row.groups())
    return Quota(
        whose, used * _KIB, soft * _KIB or None, limit * _KIB or None, files, files_limit or None
    )


def _whose(path: Path, user: str) -> Iterator[tuple[str, str, str]]:
    """Option of ``lfs quota``, its argument, and what that is."""
    yield "-u", user, "user"
    try:
        yield "-g", str(path.stat().st_gid), "group"
    except OSError:
        return
    project = _PROJECT.match(_lfs("project", "-d", str(path)) or "")
    if project is not None:
        yield "-p", project[1], "project"


def _lfs(*arguments: str) -> str | None:
    """What ``lfs`` prints; None if it is missing, fails, or does not answer in time."""
    program = shutil.which("lfs")
    if program is None:
        return None
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
