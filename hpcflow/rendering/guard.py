"""What a job script checks before it uses anything that lies on scratch."""

from __future__ import annotations

from dataclasses import dataclass

from hpcflow.model.state import DISTRUST_EXIT_CODE
from hpcflow.ownership import Trust, private_groups


@dataclass(frozen=True)
class Guard:
    """Whom the job trusts, and what it is to find.

    Attributes:
        users: ids of users who may own folders on the way, beside root and the job's own.
        groups: ids of groups that may write in them.
        runtime_sum: the checksum of ``runtime/``, as hpcflow.storage.runtime_copy makes it.
    """

    users: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()
    runtime_sum: str = ""

    @property
    def exit_code(self) -> int:
        """With which a job ends that does not trust its run directory."""
        return DISTRUST_EXIT_CODE


def make_guard(trust: Trust, runtime_sum: str = "") -> Guard:
    """The guard of a job of this user, on a site that trusts ``trust``."""
    groups = trust.groups | private_groups()
    return Guard(tuple(sorted(trust.users)), tuple(sorted(groups)), runtime_sum)
