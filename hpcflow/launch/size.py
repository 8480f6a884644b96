"""Whether one job by itself asks for more than a limit ever allows. Pure.

Which limits count, and which goes before which, is in :mod:`hpcflow.sites.precedence`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from hpcflow.launch.price import usage_of
from hpcflow.sites.live import PartitionInfo
from hpcflow.sites.placement import Placement
from hpcflow.sites.precedence import are_enforced, default_qos, in_force, qos_in_order
from hpcflow.sites.standing import MINUTES, Limit, Standing

#: Limits that one job alone can exceed; what is left of a name without its ``PerJob``.
_OF_ONE_JOB: Final = frozenset(
    {"MaxTRES", "MaxWall", "MaxTRESPerUser", "MaxTRESPerAccount", "GrpTRES"}
)


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
    if not are_enforced(settings):
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
    of_job = placement.qos or default_qos(association)
    qos = qos_in_order(standing, partition.qos if partition else None, of_job)
    own = association.limits if association else ()
    for limits in in_force([each.limits for each in qos], own):
        yield from (limit for limit in limits if limit.name.removesuffix("PerJob") in _OF_ONE_JOB)


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
