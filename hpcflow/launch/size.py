"""Whether one job by itself asks for more than a limit ever allows. Pure.

Which limits are enforced at all, and which goes before which, is Slurm's: see "Hierarchy" in
https://slurm.schedmd.com/resource_limits.html. A limit of the partition's QOS goes before the same
one of the job's QOS (the other way round with the flag ``OverPartQOS``), and both before that of
the association and of the accounts above it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from hpcflow.launch.price import usage_of
from hpcflow.sites.live import PartitionInfo
from hpcflow.sites.placement import Placement
from hpcflow.sites.standing import MINUTES, Association, Limit, QosLimits, Standing

#: Limits that one job alone can exceed; what is left of a name without its ``PerJob``.
_OF_ONE_JOB: Final = frozenset(
    {"MaxTRES", "MaxWall", "MaxTRESPerUser", "MaxTRESPerAccount", "GrpTRES"}
)
#: The values of AccountingStorageEnforce with which limits are more than a note.
_ENFORCED: Final = frozenset({"limits", "safe", "all"})


def too_large(
    placement: Placement,
    standing: Standing,
    settings: Mapping[str, str],
    partition: PartitionInfo | None,
) -> str | None:
    """Which limit keeps the job from ever starting, in words; None if none is known to.

    Args:
        settings: the cluster's, as ``scontrol show config`` tells them.
        partition: the one that it goes to; None where nobody says.
    """
    enforced = settings.get("AccountingStorageEnforce", "").lower().split(",")
    if _ENFORCED.isdisjoint(enforced):
        return None
    asked = _asked(placement)
    for limit in _binding(placement, standing, partition):
        wanted = asked.get(limit.resource)
        if wanted is not None and wanted > limit.allowed:
            whose = f" of {limit.holder}" if limit.holder else ""
            return f"{wanted} {limit.resource}, and {limit.name}{whose} allows {limit.allowed}"
    return None


def _binding(
    placement: Placement, standing: Standing, partition: PartitionInfo | None
) -> Iterator[Limit]:
    """The limits that count, without those that another goes before."""
    association = standing.association(placement.account, placement.slurm_partition)
    said: set[tuple[str, str]] = set()
    for qos in _qos(placement, standing, association, partition):
        own = [limit for limit in qos.limits if _kind(limit)[0] in _OF_ONE_JOB]
        yield from (limit for limit in own if _kind(limit) not in said)
        said |= {_kind(limit) for limit in own}
    for limit in association.limits if association else ():
        if _kind(limit)[0] in _OF_ONE_JOB and _kind(limit) not in said:
            yield limit


def _qos(
    placement: Placement,
    standing: Standing,
    association: Association | None,
    partition: PartitionInfo | None,
) -> list[QosLimits]:
    """That of the partition and that of the job, the one first that goes before the other."""
    of_partition = standing.qos_named(partition.qos) if partition and partition.qos else None
    of_job = standing.qos_named(placement.qos or _default_qos(association))
    found = [each for each in (of_partition, of_job) if each is not None]
    if of_job is not None and "OverPartQOS" in of_job.flags:
        found.reverse()
    return found


def _default_qos(association: Association | None) -> str | None:
    """As Slurm decides it for a job that names none."""
    if association is None:
        return None
    if association.default_qos:
        return association.default_qos
    return association.qos[0] if len(association.qos) == 1 else "normal"


def _kind(limit: Limit) -> tuple[str, str]:
    return limit.name.removesuffix("PerJob"), limit.resource


def _asked(placement: Placement) -> dict[str, int]:
    """What a job asks for, by Slurm's names of resources. What it may get by default is not what it
    asks for."""
    usage = usage_of(placement)
    gpus = sum(usage.gpus.values())
    asked = {"node": usage.nodes, "cpu": usage.cpus}
    if placement.mem_mb is not None:
        asked["mem"] = placement.mem_mb * placement.nodes
    if gpus:
        asked["gres/gpu"] = gpus
        if placement.gres_name:
            asked[f"gres/gpu:{placement.gres_name}"] = gpus
    if placement.time_limit_min is not None:
        asked[MINUTES] = placement.time_limit_min
    return asked
