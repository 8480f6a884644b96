"""Data classes for a scheduler's report of pending, running and planned jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True)
class PriorityFactor:
    """A part of a job's priority: ``fair share``, ``age``, ``job size``, ``partition``, ``QOS`` ….

    Attributes:
        points: weighted; the sum of all factors is the priority.
    """

    name: str
    points: int


@dataclass(frozen=True)
class WaitingJob:
    """A pending job. None means unknown.

    Attributes:
        reason: the scheduler's unchanged pending reason.
        partitions: the partitions that it may start in, usually one.
        nodes: the minimum number of nodes.
        wants: its request for all nodes, by Slurm's names: ``cpu``, ``gres/gpu`` …; memory in MiB.
        required_nodes: the names of nodes that the job must have.
        expected_nodes: the nodes that the scheduler plans for it.
        expected_start: as in `squeue --start`.
        position: its position among the eligible jobs of its (first) partition, 1 is next; None if
            it is not eligible. Each array task counts.
        rivals: the number of these jobs, including this one.
        priority_ahead: the priority of the job just before it; None for the first.
        priority_first: the priority of the first of them.
        factors: the parts of its priority; empty if unknown.
        dependency: in the scheduler's notation.
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
    """When and where a job would start that is not submitted."""

    starts_at: datetime
    partition: str | None = None
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunningJob:
    """A running job of any user. None means unknown.

    Attributes:
        uses: its allocation on all nodes, by Slurm's names, as in :class:`WaitingJob`.
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
    """The jobs of all users, as far as the site shows them.

    Attributes:
        waiting: the eligible jobs in the scheduler's order, without jobs that are held, or wait for
            a begin time or a dependency.
    """

    waiting: tuple[WaitingJob, ...] = ()
    running: tuple[RunningJob, ...] = ()


@dataclass(frozen=True)
class IdleNode:
    """The idle resources of a node that accepts jobs.

    Attributes:
        idle: by Slurm's names, as in :class:`WaitingJob`.
        is_empty: whether no job is on it.
    """

    name: str
    partitions: tuple[str, ...]
    idle: Mapping[str, int]
    is_empty: bool
