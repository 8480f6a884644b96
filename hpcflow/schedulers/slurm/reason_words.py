"""A table of Slurm's pending reasons: their kind, a plain text, and what to try next.

The codes are those of ``enum job_state_reason``, Slurm 20.11 to 25.11, without those that name a
limit, which are read in reason_limits.py. In an advice ``{run}``, ``{job}`` and ``{partition}``
stand for theirs. Nothing is advised here that would have to be tried first: what to ask for
instead is tried in :mod:`hpcflow.launch.alternatives`.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class Kind(Enum):
    """What sort of thing it waits for."""

    TURN = "others are before it"
    ROOM = "no room"
    LIMIT = "a limit is full"
    TOO_LARGE = "it asks for more than it may"
    NEVER = "it will not start as it is"
    DEPENDENCY = "another job"
    HELD = "held"
    TIME = "a time"
    RESERVATION = "a reservation"
    NODES = "nodes that are not there"
    LICENCE = "licences"
    PARTITION = "its partition"
    STARTING = "it is about to start"
    ENDED = "how it ended"
    SYSTEM = "Slurm itself"
    UNKNOWN = "unknown"


_WAIT: Final = "wait: it starts by itself"
LIMITS: Final = "see your accounts, QOS and limits: hpcflow limits"
STAFF: Final = "ask the staff of the cluster, and show them this"
_RELEASE: Final = "let it go: scontrol release {job}"
_PARTITION: Final = "see what it takes: scontrol show partition {partition}"
_STATE: Final = "see when it is up again: sinfo --partition={partition}"
_THERE_IS: Final = "see the partitions: hpcflow site show"
_LOGS: Final = "see what happened: hpcflow history {run}"
FULL: Final = "wait until other jobs under this limit end; see its use: hpcflow limits"
USED_UP: Final = (
    "wait until the use decays or is reset, or ask a coordinator of the account for more"
)
_BURST: Final = "see what the burst buffer does: scontrol show burstbuffer"

CODES: Final[dict[str, tuple[Kind, str, str]]] = {
    "None": (Kind.SYSTEM, "Slurm has not evaluated it yet", "look again in a minute"),
    "Priority": (Kind.TURN, "jobs of higher priority are before it", _WAIT),
    "Resources": (
        Kind.ROOM,
        "it is among the first, and there is not enough room for it yet",
        _WAIT,
    ),
    "SchedDefer": (
        Kind.SYSTEM,
        "it requested to start at once or not at all, and Slurm had no time to schedule it",
        "send it without --immediate",
    ),
    "Dependency": (
        Kind.DEPENDENCY,
        "it waits for another job",
        "see which: squeue -j {job} -O Dependency; without it: scontrol update jobid={job}"
        " dependency=",
    ),
    "DependencyNeverSatisfied": (
        Kind.NEVER,
        "the job that it waits for has ended in another way than it wants",
        "without that: scontrol update jobid={job} dependency=; or hpcflow cancel {run}",
    ),
    "BeginTime": (
        Kind.TIME,
        "it is not to begin before its begin time",
        "let it begin: scontrol update jobid={job} StartTime=now",
    ),
    "JobHeldUser": (Kind.HELD, "it is held by its owner", _RELEASE),
    "JobHeldAdmin": (
        Kind.HELD,
        "it is held by the staff of the cluster, or by Slurm after a failure",
        "ask the staff why: only they can release it",
    ),
    "JobHoldMaxRequeue": (
        Kind.HELD,
        "Slurm has restarted it so often that it holds it now",
        f"find out why it fails: hpcflow logs {{run}}; then {_RELEASE}",
    ),
    "JobArrayTaskLimit": (
        Kind.LIMIT,
        "as many tasks of its array run as may at a time",
        "let all of them run: scontrol update jobid={job} ArrayTaskThrottle=0",
    ),
    "Licenses": (
        Kind.LICENCE,
        "the licences that it asks for are in use",
        "see them: scontrol show licenses",
    ),
    "Cleaning": (Kind.STARTING, "Slurm still cleans up after its last start", _WAIT),
    "Prolog": (Kind.STARTING, "its nodes are being made ready", _WAIT),
    "Reservation": (
        Kind.RESERVATION,
        "the reservation that it asks for has not begun, or has no room",
        "see it: scontrol show reservation",
    ),
    "ReservationDeleted": (
        Kind.NEVER,
        "the reservation that it asks for is gone",
        "without it: scontrol update jobid={job} reservationname=",
    ),
    "ReservationInvalid": (
        Kind.NEVER,
        "the reservation that it asks for does not take it",
        "without it: scontrol update jobid={job} reservationname=",
    ),
    "ReqNodeNotAvail": (
        Kind.NODES,
        "nodes that it needs are down, drained or reserved",
        "see them: sinfo -R; see reservations: scontrol show reservation",
    ),
    "FrontEndDown": (Kind.NODES, "no front end node is up", STAFF),
    "NodeDown": (Kind.NODES, "a node that it needs is down", "see which: sinfo -R"),
    "PowerNotAvail": (Kind.NODES, "there is not enough power for its nodes now", _WAIT),
    "PowerReserved": (Kind.NODES, "the power for its nodes is reserved", _WAIT),
    "MaxPoweredUpNodes": (
        Kind.NODES,
        "as many nodes are switched on as the site allows",
        _WAIT,
    ),
    "MpiPortsBusy": (Kind.NODES, "the ports that it asks for are in use", _WAIT),
    "NvidiaImexChannels": (Kind.NODES, "no IMEX channel, for GPU memory, is free", _WAIT),
    "FedJobLock": (Kind.SYSTEM, "clusters of the federation settle who starts it", _WAIT),
    "PartitionNodeLimit": (
        Kind.PARTITION,
        "it asks for more, or fewer, nodes than its partition takes, or for some that are not up",
        _PARTITION,
    ),
    "PartitionTimeLimit": (
        Kind.TOO_LARGE,
        "its time limit is longer than its partition takes",
        _PARTITION,
    ),
    "MaxMemPerLimit": (
        Kind.TOO_LARGE,
        "it asks for more memory, on a node or for a CPU, than its partition takes",
        _PARTITION,
    ),
    "PartitionDown": (Kind.PARTITION, "its partition is down: jobs wait, none start", _STATE),
    "PartitionInactive": (Kind.PARTITION, "its partition is inactive", _STATE),
    "PartitionConfig": (
        Kind.TOO_LARGE,
        "its partition does not take such a job: its account, QOS, size or time",
        _PARTITION,
    ),
    "BadConstraints": (
        Kind.NEVER,
        "no nodes of its partition fit what it asks for",
        _THERE_IS,
    ),
    "Constraints": (
        Kind.NODES,
        "no nodes fit what it asks for now",
        _THERE_IS,
    ),
    "AssociationJobLimit": (Kind.LIMIT, "its account has as many jobs as it may", FULL),
    "AssociationResourceLimit": (
        Kind.LIMIT,
        "its account has as much of a resource as it may",
        FULL,
    ),
    "AssociationTimeLimit": (Kind.LIMIT, "its account has used up its time", USED_UP),
    "QOSJobLimit": (Kind.LIMIT, "its QOS has as many jobs as it may", FULL),
    "QOSResourceLimit": (Kind.LIMIT, "its QOS has as much of a resource as it may", FULL),
    "QOSTimeLimit": (Kind.LIMIT, "its QOS has used up its time", USED_UP),
    "QOSUsageThreshold": (
        Kind.LIMIT,
        "its account has used more than its QOS tolerates (UsageThreshold)",
        LIMITS,
    ),
    "QOSNotAllowed": (
        Kind.NEVER,
        "its QOS may not be used with this account or in this partition",
        LIMITS,
    ),
    "AccountNotAllowed": (
        Kind.NEVER,
        "its account may not be used in this partition",
        LIMITS,
    ),
    "AccountingPolicy": (Kind.LIMIT, "a rule of accounting keeps it from starting", FULL),
    "InvalidAccount": (Kind.NEVER, "its account does not exist, or is not yours", LIMITS),
    "InvalidQOS": (Kind.NEVER, "its QOS does not exist, or is not yours", LIMITS),
    "BurstBufferResources": (Kind.ROOM, "there is no room in the burst buffer", _BURST),
    "BurstBufferStageIn": (Kind.STARTING, "its data are copied to the burst buffer", _WAIT),
    "BurstBufferOperation": (Kind.HELD, "something with its burst buffer failed", _BURST),
    "BlockMaxError": (Kind.NODES, "too many errors on its block of nodes", STAFF),
    "BlockFreeAction": (Kind.NODES, "its block of nodes is being freed", _WAIT),
    "SystemFailure": (Kind.ENDED, "Slurm, a disk or the network failed", _LOGS),
    "JobLaunchFailure": (Kind.ENDED, "it could not be started on its nodes", _LOGS),
    "NonZeroExitCode": (Kind.ENDED, "it ended with an exit code", _LOGS),
    "RaisedSignal": (Kind.ENDED, "a signal ended it", _LOGS),
    "TimeLimit": (Kind.ENDED, "its time was over", _LOGS),
    "InactiveLimit": (Kind.ENDED, "it was idle for too long", _LOGS),
    "DeadLine": (Kind.ENDED, "its deadline passed before it could end", _LOGS),
    "OutOfMemory": (Kind.ENDED, "it ran out of memory", _LOGS),
    "InvalidReason": (Kind.SYSTEM, "Slurm does not know why itself", STAFF),
}

#: Sentences that stand in the place of a code, by a part of them that all versions have.
SENTENCES: Final = {
    "Reserved for maintenance": (
        Kind.RESERVATION,
        "its nodes are reserved for maintenance before it would end",
        _WAIT,
    ),
    "May be reserved for other job": (
        Kind.RESERVATION,
        "the nodes that it needs are kept for a job of higher priority",
        _WAIT,
    ),
    "DOWN, DRAINED or reserved for jobs in higher priority partitions": (
        Kind.NODES,
        "the nodes that it needs are down, drained, or kept for jobs of partitions that come first",
        "see nodes that are down: sinfo -R",
    ),
    "launch failed requeued held": (
        Kind.HELD,
        "it could not be started on its nodes, and Slurm holds it now",
        f"{_LOGS}; then {_RELEASE}",
    ),
    "launch failure limit exceeded requeued held": CODES["JobHoldMaxRequeue"],
    "user env retrieval failed requeued held": (
        Kind.HELD,
        "your environment could not be made for it (--get-user-env), and Slurm holds it now",
        f"see that a login shell of yours starts and ends without an error; then {_RELEASE}",
    ),
    "job requeued in held state": (Kind.HELD, "it was requeued and held", _RELEASE),
    "not in group permitted to use this partition": (
        Kind.NEVER,
        "its partition is for a group that you are not in",
        STAFF,
    ),
    "account not permitted to use this partition": CODES["AccountNotAllowed"],
    "QOS not permitted to use this partition": CODES["QOSNotAllowed"],
    "which this job was running under, has ended": CODES["ReservationDeleted"],
    "was deleted": CODES["ReservationDeleted"],
    "is invalid": CODES["ReservationInvalid"],
    "Job is at or exceeds": (
        Kind.LIMIT,
        "it would run longer than what is left of a budget of minutes",
        USED_UP,
    ),
}  # fmt: skip
