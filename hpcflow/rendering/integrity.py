"""The integrity check of a job script, before it uses anything on scratch."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hpcflow.model.state import UNTRUSTED_EXIT_CODE
from hpcflow.ownership import Trust, is_open_to_others
from hpcflow.runtime.creators import private_groups

#: The checksum of no file.
NO_COMPILED: Final = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True)
class IntegrityCheck:
    """The users and groups that a job trusts, and the checksum that it expects.

    Attributes:
        users: ids of users who may own directories on the path, besides root and the job's user.
        groups: ids of groups that may write to them.
        runtime_sum: the checksum of ``runtime/``, from hpcflow.storage.runtime_copy.
        compiled_sum: the same of the compiled files in it; the job removes others.
        opens_log: whether the script opens its log itself, after the check. Slurm opens a log and
            enters a directory before the script can check anything.
    """

    users: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()
    runtime_sum: str = ""
    compiled_sum: str = NO_COMPILED
    opens_log: bool = False

    @property
    def exit_code(self) -> int:
        """The exit code of a job that does not trust its run directory."""
        return UNTRUSTED_EXIT_CODE


def make_integrity_check(
    folder: Path, trust: Trust, runtime_sum: str = "", compiled_sum: str = NO_COMPILED
) -> IntegrityCheck:
    """Return the integrity check for a job that writes its log below ``folder``."""
    groups = trust.groups | private_groups()
    return IntegrityCheck(
        tuple(sorted(trust.users)),
        tuple(sorted(groups)),
        runtime_sum,
        compiled_sum,
        opens_log=is_open_to_others(folder, trust),
    )
