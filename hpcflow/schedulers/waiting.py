"""What a scheduler reports about pending, running and planned jobs. Plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True)
class PriorityFactor:
    """A part of a job's priority: ``fair share``, ``age``, ``job size``, ``partition``, ``QOS`` ….

    Attributes:
        points: with its weight applied; all of them together are the priority.
    """

    name: str
    points: int


@dataclass(frozen=True)
class WaitingJob:
    """A job that waits. None where nobody says.

    Attributes:
        reason: why, in the scheduler's words, as they came.
        partitions: those that it may start in, as a rule one.
        time_limit_min: the longest it may run.
        nodes: how many it wants, at least.
        wants: what it asks for, all nodes together, by Slurm's names: ``cpu``, ``gres/gpu`` …; of
            memory MiB.
        required_nodes: those that it must have, by name.
        expected_nodes: those that the scheduler means to give it.
        expected_start: when the scheduler means to start it; as `squeue --start` says.
        position: its place among those jobs of its (first) partition that could start if there were
            room, 1 is next; None for a job that could not. Tasks of an array count each.
        rivals: how many those are, it included.
        priority_ahead: that of the job just before it; None for the first.
        priority_first: that of the first of them.
        factors: what its priority is made of; empty where nobody says.
        dependency: what must happen first, in the scheduler's notation.
        reservation: that it asked for.
    """

    job_id: str
    partitions: tuple[str, ...] = ()
    reason: str | None = None
    user: str | None = None
    account: str | None = None
    qos: str | None = None
    time_limit_min: int | None = None
    nodes: int | None = None
    wants: Mapping[str, int] = field(default_factory=dict)
    required_nodes: tuple[str, ...] = ()
    expected_nodes: tuple[str, ...] = ()
    expected_start: datetime | None = None
    eligible_at: datetime | None = None
    priority: int | None = None
    position: int | None = None
    rivals: int | None = None
    priority_ahead: int | None = None
    priority_first: int | None = None
    factors: tuple[PriorityFactor, ...] = ()
    dependency: str | None = None
    reservation: str | None = None


@dataclass(frozen=True)
class PredictedStart:
    """When a job that is not sent would start."""

    starts_at: datetime
    partition: str | None = None
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunningJob:
    """A job of anybody that runs. None where nobody says.

    Attributes:
        uses: what it has, all nodes together, by Slurm's names, as in :class:`WaitingJob`.
        ends_at: when its time limit ends it.
    """

    job_id: str
    partition: str | None = None
    user: str | None = None
    account: str | None = None
    qos: str | None = None
    uses: Mapping[str, int] = field(default_factory=dict)
    ends_at: datetime | None = None


@dataclass(frozen=True)
class ClusterQueue:
    """Everybody's jobs, as far as the site shows them.

    Attributes:
        waiting: those that compete, in the order in which the scheduler takes them; without those
            that are held, or wait for a time or another job.
    """

    waiting: tuple[WaitingJob, ...] = ()
    running: tuple[RunningJob, ...] = ()


@dataclass(frozen=True)
class IdleNode:
    """What of a node that takes jobs is not in use.

    Attributes:
        partitions: by which it is reached.
        idle: by Slurm's names, as in :class:`WaitingJob`.
        is_empty: whether no job is on it.
    """

    name: str
    partitions: tuple[str, ...]
    idle: Mapping[str, int]
    is_empty: bool
