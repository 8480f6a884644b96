"""Explain why a job is pending: every reason of slurm.h, with the next thing to try. Pure.

Codes are spelt as squeue prints them (job_reason_string in slurm_protocol_defs.c, later in
job_state_reason.c), Slurm 20.11 to 25.11; reason_limits.py parses those that name a limit. Slurm
may add text to a code, or print a sentence. An unknown reason is shown unchanged. No advice names
another request: :mod:`hpcflow.placement.alternatives` tests those.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final

from hpcflow.schedulers.slurm.reason_limits import NamedLimit, named_limit


class Kind(Enum):
    """What a pending job waits for."""

    TURN = "other jobs are before it"
    ROOM = "no room"
    LIMIT = "a limit is full"
    TOO_LARGE = "it requests more than allowed"
    NEVER = "it will not start as it is"
    DEPENDENCY = "another job"
    HELD = "held"
    TIME = "a time"
    RESERVATION = "a reservation"
    NODES = "nodes that are not available"
    LICENCE = "licences"
    PARTITION = "its partition"
    STARTING = "it is about to start"
    ENDED = "how it ended"
    SYSTEM = "Slurm itself"
    UNKNOWN = "unknown"


_WAIT: Final = "wait: it starts by itself"
LIMITS: Final = "see your accounts, QOS and limits: hpcflow limits"
STAFF: Final = "ask the staff of the cluster, and show them this"
_RELEASE: Final = "release it: scontrol release {job}"
_PARTITION: Final = "see its limits: scontrol show partition {partition}"
_STATE: Final = "see when it is up again: sinfo --partition={partition}"
_THERE_IS: Final = "see the partitions: hpcflow site show"
_LOGS: Final = "see what happened: hpcflow history {run}"
FULL: Final = "wait until other jobs under this limit end; see its use: hpcflow limits"
USED_UP: Final = (
    "wait until the use decays or is reset, or ask a coordinator of the account for more"
)
_BURST: Final = "see the burst buffer: scontrol show burstbuffer"

CODES: Final[dict[str, tuple[Kind, str, str]]] = {
    "None": (Kind.SYSTEM, "Slurm has not evaluated it yet", "look again in a minute"),
    "Priority": (Kind.TURN, "jobs of higher priority are before it", _WAIT),
    "Resources": (
        Kind.ROOM,
        "it is among the first jobs, but there is not enough room for it yet",
        _WAIT,
    ),
    "SchedDefer": (
        Kind.SYSTEM,
        "it requested to start at once or not at all, and Slurm had no time to schedule it",
        "submit it without --immediate",
    ),
    "Dependency": (
        Kind.DEPENDENCY,
        "it waits for another job",
        "see which: squeue -j {job} -O Dependency; remove the dependency: scontrol update"
        " jobid={job} dependency=",
    ),
    "DependencyNeverSatisfied": (
        Kind.NEVER,
        "its dependency can no longer be satisfied",
        "remove the dependency: scontrol update jobid={job} dependency=; or hpcflow cancel {run}",
    ),
    "BeginTime": (
        Kind.TIME,
        "it does not start before its begin time",
        "remove the begin time: scontrol update jobid={job} StartTime=now",
    ),
    "JobHeldUser": (Kind.HELD, "it is held by its owner", _RELEASE),
    "JobHeldAdmin": (
        Kind.HELD,
        "it is held by the staff of the cluster, or by Slurm after a failure",
        "ask the staff why: only they can release it",
    ),
    "JobHoldMaxRequeue": (
        Kind.HELD,
        "Slurm holds it because it was requeued too often",
        f"find out why it fails: hpcflow logs {{run}}; then {_RELEASE}",
    ),
    "JobArrayTaskLimit": (
        Kind.LIMIT,
        "its array already runs the maximum number of tasks",
        "remove the maximum: scontrol update jobid={job} ArrayTaskThrottle=0",
    ),
    "Licenses": (
        Kind.LICENCE,
        "the licences that it requests are in use",
        "see them: scontrol show licenses",
    ),
    "Cleaning": (Kind.STARTING, "Slurm still cleans up after its last start", _WAIT),
    "Prolog": (Kind.STARTING, "the prolog runs on its nodes", _WAIT),
    "Reservation": (
        Kind.RESERVATION,
        "its reservation has not begun, or has no room",
        "see the reservation: scontrol show reservation",
    ),
    "ReservationDeleted": (
        Kind.NEVER,
        "its reservation no longer exists",
        "remove it from the job: scontrol update jobid={job} reservationname=",
    ),
    "ReservationInvalid": (
        Kind.NEVER,
        "its reservation does not accept it",
        "remove it from the job: scontrol update jobid={job} reservationname=",
    ),
    "ReqNodeNotAvail": (
        Kind.NODES,
        "nodes that it needs are down, drained or reserved",
        "see them: sinfo -R; see reservations: scontrol show reservation",
    ),
    "FrontEndDown": (Kind.NODES, "no front-end node is up", STAFF),
    "NodeDown": (Kind.NODES, "a node that it needs is down", "see which: sinfo -R"),
    "PowerNotAvail": (Kind.NODES, "there is not enough power for its nodes now", _WAIT),
    "PowerReserved": (Kind.NODES, "the power for its nodes is reserved", _WAIT),
    "MaxPoweredUpNodes": (
        Kind.NODES,
        "as many nodes are switched on as the site allows",
        _WAIT,
    ),
    "MpiPortsBusy": (Kind.NODES, "the ports that it requests are in use", _WAIT),
    "NvidiaImexChannels": (Kind.NODES, "no IMEX channel, for GPU memory, is free", _WAIT),
    "FedJobLock": (Kind.SYSTEM, "the federation is choosing the cluster that starts it", _WAIT),
    "PartitionNodeLimit": (
        Kind.PARTITION,
        "it requests more or fewer nodes than its partition allows, or nodes that are not up",
        _PARTITION,
    ),
    "PartitionTimeLimit": (
        Kind.TOO_LARGE,
        "its time limit is longer than its partition allows",
        _PARTITION,
    ),
    "MaxMemPerLimit": (
        Kind.TOO_LARGE,
        "it requests more memory per node or per CPU than its partition allows",
        _PARTITION,
    ),
    "PartitionDown": (Kind.PARTITION, "its partition is down and starts no jobs", _STATE),
    "PartitionInactive": (Kind.PARTITION, "its partition is inactive", _STATE),
    "PartitionConfig": (
        Kind.TOO_LARGE,
        "its partition does not accept its account, QOS, size or time limit",
        _PARTITION,
    ),
    "BadConstraints": (
        Kind.NEVER,
        "no nodes of its partition fit its request",
        _THERE_IS,
    ),
    "Constraints": (
        Kind.NODES,
        "no nodes fit its request now",
        _THERE_IS,
    ),
    "AssociationJobLimit": (Kind.LIMIT, "its account has the maximum number of jobs", FULL),
    "AssociationResourceLimit": (
        Kind.LIMIT,
        "its account uses the maximum of a resource",
        FULL,
    ),
    "AssociationTimeLimit": (Kind.LIMIT, "its account has used up its time", USED_UP),
    "QOSJobLimit": (Kind.LIMIT, "its QOS has the maximum number of jobs", FULL),
    "QOSResourceLimit": (Kind.LIMIT, "its QOS uses the maximum of a resource", FULL),
    "QOSTimeLimit": (Kind.LIMIT, "its QOS has used up its time", USED_UP),
    "QOSUsageThreshold": (
        Kind.LIMIT,
        "its account has used more than its QOS allows (UsageThreshold)",
        LIMITS,
    ),
    "QOSNotAllowed": (
        Kind.NEVER,
        "its QOS is not allowed with this account or in this partition",
        LIMITS,
    ),
    "AccountNotAllowed": (
        Kind.NEVER,
        "its account is not allowed in this partition",
        LIMITS,
    ),
    "AccountingPolicy": (Kind.LIMIT, "an accounting limit keeps it from starting", FULL),
    "InvalidAccount": (Kind.NEVER, "its account does not exist, or is not yours", LIMITS),
    "InvalidQOS": (Kind.NEVER, "its QOS does not exist, or is not yours", LIMITS),
    "BurstBufferResources": (Kind.ROOM, "there is no room in the burst buffer", _BURST),
    "BurstBufferStageIn": (Kind.STARTING, "its data are copied to the burst buffer", _WAIT),
    "BurstBufferOperation": (Kind.HELD, "an operation of its burst buffer failed", _BURST),
    "BlockMaxError": (Kind.NODES, "too many errors on its block of nodes", STAFF),
    "BlockFreeAction": (Kind.NODES, "its block of nodes is being freed", _WAIT),
    "SystemFailure": (Kind.ENDED, "Slurm, a disk or the network failed", _LOGS),
    "JobLaunchFailure": (Kind.ENDED, "it could not be started on its nodes", _LOGS),
    "NonZeroExitCode": (Kind.ENDED, "it ended with a nonzero exit code", _LOGS),
    "RaisedSignal": (Kind.ENDED, "a signal ended it", _LOGS),
    "TimeLimit": (Kind.ENDED, "it reached its time limit", _LOGS),
    "InactiveLimit": (Kind.ENDED, "it was idle for too long", _LOGS),
    "DeadLine": (Kind.ENDED, "its deadline passed before it could end", _LOGS),
    "OutOfMemory": (Kind.ENDED, "it ran out of memory", _LOGS),
    "InvalidReason": (Kind.SYSTEM, "Slurm has no valid reason", STAFF),
}

#: Part of a sentence, common to all versions, that Slurm prints in place of a code.
SENTENCES: Final = {
    "Reserved for maintenance": (
        Kind.RESERVATION,
        "its nodes are reserved for maintenance before it would end",
        _WAIT,
    ),
    "May be reserved for other job": (
        Kind.RESERVATION,
        "the nodes that it needs are reserved for a job of higher priority",
        _WAIT,
    ),
    "DOWN, DRAINED or reserved for jobs in higher priority partitions": (
        Kind.NODES,
        "the nodes that it needs are down, drained, or reserved for partitions of higher priority",
        "see nodes that are down: sinfo -R",
    ),
    "launch failed requeued held": (
        Kind.HELD,
        "Slurm holds it because it could not be started on its nodes",
        f"{_LOGS}; then {_RELEASE}",
    ),
    "launch failure limit exceeded requeued held": CODES["JobHoldMaxRequeue"],
    "user env retrieval failed requeued held": (
        Kind.HELD,
        "Slurm holds it because it could not load your environment (--get-user-env)",
        f"check that your login shell starts and exits without an error; then {_RELEASE}",
    ),
    "job requeued in held state": (Kind.HELD, "it was requeued and held", _RELEASE),
    "not in group permitted to use this partition": (
        Kind.NEVER,
        "its partition is only for groups that you are not in",
        STAFF,
    ),
    "account not permitted to use this partition": CODES["AccountNotAllowed"],
    "QOS not permitted to use this partition": CODES["QOSNotAllowed"],
    "which this job was running under, has ended": CODES["ReservationDeleted"],
    "was deleted": CODES["ReservationDeleted"],
    "is invalid": CODES["ReservationInvalid"],
    "Job is at or exceeds": (
        Kind.LIMIT,
        "it would run longer than the remaining minutes of a limit",
        USED_UP,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Reason:
    """A pending reason.

    Attributes:
        code: Slurm's whole text.
        words: the reason in plain words.
        advice: what to type or do next, with placeholders ``{run}``, ``{job}``, ``{partition}``.
    """

    code: str
    kind: Kind
    words: str
    advice: str
    limit: NamedLimit | None = None

    @property
    def can_start(self) -> bool:
        """Return whether the job can start without a change."""
        return self.kind not in (Kind.NEVER, Kind.TOO_LARGE, Kind.HELD, Kind.ENDED)


@lru_cache(maxsize=1024)  # a queue of thousands of jobs has some ten different reasons
def explain(text: str | None) -> Reason:
    """Explain Slurm's reason.

    Args:
        text: as in squeue: a code, a code with more text after a comma or a colon, or a sentence.
    """
    full = (text or "None").strip().strip("()")
    # Older versions print underscores in place of blanks.
    flat = full.replace("_", " ")
    for part, (kind, words, advice) in SENTENCES.items():
        if part in flat:
            return Reason(full, kind, words, advice)
    for code in dict.fromkeys((full, full.partition(",")[0], full.partition(":")[0])):
        if code in CODES:
            return Reason(full, *CODES[code])
        if (limit := named_limit(code)) is not None:
            return _of_limit(full, limit)
    return Reason(full, Kind.UNKNOWN, f"Slurm says: {full}", "look it up: man squeue; " + STAFF)


def _of_limit(code: str, limit: NamedLimit) -> Reason:
    if limit.passes:
        is_budget = limit.name.endswith("Mins") or limit.name == "GrpWall"
        is_budget = is_budget and not limit.name.endswith("RunMins")
        return Reason(code, Kind.LIMIT, limit.words, USED_UP if is_budget else FULL, limit)
    return _too_large(code, limit, limit.words)


def exceeded(reason: Reason, words: str) -> Reason:
    """Return ``reason`` for a job that exceeds the limit by itself; Slurm has one code for both."""
    assert reason.limit is not None
    return _too_large(reason.code, reason.limit, words)


def _too_large(code: str, limit: NamedLimit, words: str) -> Reason:
    return Reason(code, Kind.TOO_LARGE, words, LIMITS, limit)
