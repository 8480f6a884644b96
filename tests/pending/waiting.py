"""A user of two accounts, ``physics`` and ``biology``, whose job waits on a full cluster."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from decimal import Decimal

from hpcflow.schedulers.waiting import PriorityFactor, WaitingJob
from hpcflow.sites.live import ClusterInfo, NodeKind, PartitionInfo
from hpcflow.sites.standing import (
    Association,
    FairShare,
    Limit,
    QosLimits,
    Reservation,
    Standing,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
NODES = ("n1", "n2", "n3", "n4")

GPU = PartitionInfo(
    *("gpu", True, True, 1440),
    kinds=(NodeKind(4, 8, 8192, {"a100": 4}),),
    qos="part",
    node_names=NODES,
)
CLUSTER = ClusterInfo("big", "22.05.8", (GPU,), {"PriorityWeightFairShare": "100000"})

GPUS = Limit("GrpTRES", "gres/gpu", 16, 16, "account physics")
JOBS = Limit("MaxJobs", "jobs", 20, 4, "user ada in account physics")
QOS_GPUS = Limit("MaxTRESPerUser", "gres/gpu", 4, 4, "user ada in QOS tight")
PARTITION_NODES = Limit("GrpTRES", "node", 4, 4, "QOS part")

STANDING = Standing(
    "ada",
    (
        Association("biology", None, "normal", ("normal", "tight")),
        Association(
            "physics", None, "normal", ("normal", "tight"), (JOBS, GPUS), {"jobs": 4}, True
        ),
    ),
    (
        QosLimits("normal"),
        QosLimits("tight", 10, limits=(QOS_GPUS,), usage_factor=Decimal(2)),
    ),
    (
        FairShare("biology", None, None, 30, 0.3, 600, 0.03, 0.03),
        FairShare("biology", "ada", None, 5, 0.83, 0, 0.0, 0.0, 0.75),
        FairShare("physics", None, None, 70, 0.69, 20000, 0.97, 0.97),
        FairShare("physics", "ada", None, 1, 1.0, 20000, 0.97, 1.0, 0.25, 1.0),
    ),
    other_qos=(QosLimits("part", limits=(PARTITION_NODES,)),),
)

JOB = WaitingJob(
    job_id="4711",
    partitions=("gpu",),
    reason="Priority",
    user="ada",
    account="physics",
    qos="normal",
    time_limit_min=600,
    nodes=1,
    wants={"cpu": 1, "mem": 1024},
    eligible_at=NOW - timedelta(minutes=90),
    expected_start=NOW + timedelta(hours=2),
    expected_nodes=("n2",),
    priority=25007,
    position=3,
    rivals=5,
    priority_ahead=75000,
    priority_first=75001,
    factors=(PriorityFactor("fair share", 25000), PriorityFactor("age", 7)),
)


def reservation(
    begins_in_min: int, length_min: int = 120, nodes: tuple[str, ...] = NODES
) -> Reservation:
    """Maintenance, unless it is changed."""
    start = NOW + timedelta(minutes=begins_in_min)
    end = start + timedelta(minutes=length_min)
    return Reservation("maint", start, end, nodes, ("MAINT",), ("root",))


def job(reason: str, **changes: object) -> WaitingJob:
    """JOB with another reason."""
    return replace(JOB, reason=reason, **changes)  # type: ignore[arg-type]
