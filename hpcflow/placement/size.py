"""Describe a job that is not submitted yet, and check whether limits ever allow it. Pure.

Which limits bind a job is in :mod:`hpcflow.pending.bounds`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hpcflow.pending.bounds import excess_words
from hpcflow.placement.price import usage_of
from hpcflow.schedulers.waiting import WaitingJob
from hpcflow.sites.placement import Placement
from hpcflow.sites.precedence import default_qos
from hpcflow.sites.standing import MINUTES, Limit, Standing

#: Limits that one job alone can exceed; names without their suffix ``PerJob``.
_OF_ONE_JOB: Final = frozenset(
    {"MaxTRES", "MaxWall", "MaxTRESPerUser", "MaxTRESPerAccount", "GrpTRES"}
)


def as_job(placement: Placement, standing: Standing | None) -> WaitingJob:
    """Return the job for this placement.

    Args:
        standing: has the default account and QOS.
    """
    name = placement.slurm_partition
    known = standing.association(placement.account, name) if standing is not None else None
    usage = usage_of(placement)
    gpus = sum(usage.gpus.values())
    # Every job uses at least 1 of each, even if the amount is unknown.
    wants = {"node": usage.nodes, "cpu": usage.cpus, "mem": 1, "billing": 1}
    if placement.mem_mb is not None:
        wants["mem"] = placement.mem_mb * placement.nodes
    if gpus:
        wants["gres/gpu"] = gpus
        if placement.gres_name:
            wants[f"gres/gpu:{placement.gres_name}"] = gpus
    return WaitingJob(
        job_id="",
        partitions=(name,) if name is not None else (),
        user=standing.user if standing is not None else None,
        account=placement.account or (known.account if known is not None else None),
        qos=placement.qos or default_qos(known),
        time_limit_min=placement.time_limit_min,
        nodes=usage.nodes,
        wants=wants,
    )


def too_large(job: WaitingJob, limits: Sequence[Limit]) -> str | None:
    """Return the limit that the job can never meet, as text; None if none is known."""
    for limit in limits:
        if limit.name.removesuffix("PerJob") not in _OF_ONE_JOB:
            continue
        if limit.resource == MINUTES:
            wants = job.time_limit_min or 0
        else:
            wants = job.wants.get(limit.resource, 0)
        if wants > limit.allowed:
            return excess_words(limit, wants)
    return None
