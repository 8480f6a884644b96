"""The integrity check of a job script, before it uses anything on scratch."""

from __future__ import annotations

from dataclasses import dataclass

from hpcflow.model.state import UNTRUSTED_EXIT_CODE
from hpcflow.ownership import Trust, private_groups


@dataclass(frozen=True)
class IntegrityCheck:
    """The users and groups that a job trusts, and the checksum that it expects.

    Attributes:
        users: ids of users who may own directories on the path, besides root and the job's user.
        groups: ids of groups that may write to them.
        runtime_sum: the checksum of ``runtime/``, from hpcflow.storage.runtime_copy.
    """

    users: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()
    runtime_sum: str = ""

    @property
    def exit_code(self) -> int:
        """The exit code of a job that does not trust its run directory."""
        return UNTRUSTED_EXIT_CODE


def make_integrity_check(trust: Trust, runtime_sum: str = "") -> IntegrityCheck:
    """Return the integrity check for this user's jobs, on a site with this ``trust``."""
    groups = trust.groups | private_groups()
    return IntegrityCheck(tuple(sorted(trust.users)), tuple(sorted(groups)), runtime_sum)
