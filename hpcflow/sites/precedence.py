"""Decide which limit applies if several are set. Pure.

The order is Slurm's: see "Hierarchy" in https://slurm.schedmd.com/resource_limits.html. A limit of
the partition's QOS overrides the same one of the job's QOS (the reverse with the flag
``OverPartQOS``). Both override that of the association and its parent accounts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from hpcflow.sites.standing import JOBS, Association, Limit, QosLimits, Standing

#: The values of AccountingStorageEnforce that enforce limits.
_ENFORCED: Final = frozenset({"limits", "safe", "all"})
#: These override ``MaxJobs`` of an association (acct_policy_job_runnable_pre_select).
_OF_JOBS: Final = frozenset({("MaxJobsPerUser", JOBS), ("MaxJobsPerAccount", JOBS)})


def are_enforced(settings: Mapping[str, str]) -> bool:
    """Return whether the settings of ``scontrol show config`` enforce limits."""
    enforced = settings.get("AccountingStorageEnforce", "").lower().split(",")
    return not _ENFORCED.isdisjoint(enforced)


def qos_in_order(
    standing: Standing, of_partition: str | None, of_job: str | None
) -> list[QosLimits]:
    """Return the QOS of the partition and that of the job, the overriding one first."""
    found = [each for each in map(standing.qos_named, (of_partition, of_job)) if each is not None]
    if found and found[-1].name == of_job and "OverPartQOS" in found[-1].flags:
        found.reverse()
    return found


def default_qos(association: Association | None) -> str | None:
    """Return the QOS that Slurm gives to a job that names none."""
    if association is None:
        return None
    if association.default_qos:
        return association.default_qos
    return association.qos[0] if len(association.qos) == 1 else "normal"


def in_force(
    of_qos: Sequence[Sequence[Limit]], of_association: Sequence[Limit]
) -> tuple[tuple[Limit, ...], tuple[Limit, ...]]:
    """Return the limits that apply: those of the QOS, and those of the association.

    Args:
        of_qos: of each QOS, in the order of :func:`qos_in_order`.
    """
    overridden: set[tuple[str, str]] = set()
    found: list[Limit] = []
    for limits in of_qos:
        found += [limit for limit in limits if _kind(limit) not in overridden]
        overridden |= {_kind(limit) for limit in limits}
    if overridden & _OF_JOBS:
        overridden.add(("MaxJobs", JOBS))
    return tuple(found), tuple(limit for limit in of_association if _kind(limit) not in overridden)


def _kind(limit: Limit) -> tuple[str, str]:
    return limit.name.removesuffix("PerJob"), limit.resource
