"""Which limit applies if several are set. Pure.

Which are enforced at all, and which goes before which, is Slurm's: see "Hierarchy" in
https://slurm.schedmd.com/resource_limits.html. A limit of the partition's QOS goes before the same
one of the job's QOS (the other way round with the flag ``OverPartQOS``), and both before that of
the association and of the accounts above it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from hpcflow.sites.standing import JOBS, Association, Limit, QosLimits, Standing

#: The values of AccountingStorageEnforce with which limits are more than a note.
_ENFORCED: Final = frozenset({"limits", "safe", "all"})
#: What goes before ``MaxJobs`` of an association (acct_policy_job_runnable_pre_select).
_OF_JOBS: Final = frozenset({("MaxJobsPerUser", JOBS), ("MaxJobsPerAccount", JOBS)})


def are_enforced(settings: Mapping[str, str]) -> bool:
    """Whether limits are, by the cluster's settings as ``scontrol show config`` tells them."""
    enforced = settings.get("AccountingStorageEnforce", "").lower().split(",")
    return not _ENFORCED.isdisjoint(enforced)


def qos_in_order(
    standing: Standing, of_partition: str | None, of_job: str | None
) -> list[QosLimits]:
    """The QOS of the partition and that of the job, the one first that goes before the other."""
    found = [each for each in map(standing.qos_named, (of_partition, of_job)) if each is not None]
    if found and found[-1].name == of_job and "OverPartQOS" in found[-1].flags:
        found.reverse()
    return found


def default_qos(association: Association | None) -> str | None:
    """As Slurm decides it for a job that names none."""
    if association is None:
        return None
    if association.default_qos:
        return association.default_qos
    return association.qos[0] if len(association.qos) == 1 else "normal"


def in_force(
    of_qos: Sequence[Sequence[Limit]], of_association: Sequence[Limit]
) -> tuple[tuple[Limit, ...], tuple[Limit, ...]]:
    """The limits that count: those of the QOS, and those of the association.

    Args:
        of_qos: of each QOS, in the order of :func:`qos_in_order`.
    """
    said: set[tuple[str, str]] = set()
    found: list[Limit] = []
    for limits in of_qos:
        found += [limit for limit in limits if _kind(limit) not in said]
        said |= {_kind(limit) for limit in limits}
    if said & _OF_JOBS:
        said.add(("MaxJobs", JOBS))
    return tuple(found), tuple(limit for limit in of_association if _kind(limit) not in said)


def _kind(limit: Limit) -> tuple[str, str]:
    return limit.name.removesuffix("PerJob"), limit.resource
