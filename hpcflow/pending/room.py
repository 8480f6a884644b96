"""Predict when there is room for a job that is not submitted yet. Pure.

It considers idle nodes, pending jobs, and full limits.

``sbatch --test-only`` ignores limits that other jobs fill. It counts running jobs. But if jobs of
higher priority are pending in the partition, it only divides their nodes × time limits by the
number of nodes, regardless of idle ones (seen on 22.05; jobs that a limit holds count, too).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from hpcflow.pending.ahead import MARGIN, Obstacle, fits_min
from hpcflow.pending.bounds import has_room
from hpcflow.schedulers.slurm.reasons import Kind, explain
from hpcflow.schedulers.waiting import (
    ClusterQueue,
    IdleNode,
    PredictedStart,
    RunningJob,
    WaitingJob,
)
from hpcflow.sites.live import ClusterInfo
from hpcflow.sites.standing import JOBS, MINUTES, Limit

#: Reasons of pending jobs that take the next free nodes.
_FOR_ROOM: Final = (Kind.TURN, Kind.ROOM, Kind.RESERVATION, Kind.SYSTEM)


def is_rough(job: WaitingJob, waiting: Sequence[WaitingJob]) -> bool:
    """Return whether the prediction for ``job`` is that rough figure."""
    names = set(job.partitions)
    return any(not names.isdisjoint(each.partitions) for each in waiting)


def idle_now(
    job: WaitingJob,
    nodes: Sequence[IdleNode],
    queue: ClusterQueue,
    cluster: ClusterInfo | None,
    ahead: Sequence[Obstacle],
    now: datetime,
    *,
    empty_only: bool = False,
) -> tuple[str, ...]:
    """Return nodes on which a job could start now without delaying a pending job or running into a
    reservation; none if there are too few.

    Args:
        ahead: reservations that the job would run into.
        empty_only: whether only nodes without jobs count. True if the partition gives whole nodes,
            or caps the CPUs of a node: Slurm does not report how many CPUs are left under the cap.
    """
    count = job.nodes or 1
    kept = {name for each in ahead for name in each.reservation.nodes}
    reach: dict[tuple[str, ...], frozenset[str]] = {}
    for each in in_the_way(job, PredictedStart(now), queue, cluster):
        if each.expected_nodes:
            kept.update(each.expected_nodes)
            continue
        if not set(each.partitions).isdisjoint(job.partitions):
            return ()  # it may take any of them
        kept |= _nodes_of(each.partitions, cluster, reach)
    # Without a memory request, the partition's default applies.
    empty_only = empty_only or job.wants.get("mem", 0) <= 1
    free = [
        node.name
        for node in nodes
        if node.name not in kept
        and (node.is_empty or not empty_only)
        and not set(node.partitions).isdisjoint(job.partitions)
        and all(
            node.idle.get(name, 0) * count >= wants
            for name, wants in job.wants.items()
            if name not in ("node", "billing")
        )
    ]
    return tuple(free[:count]) if len(free) >= count else ()


def in_the_way(
    job: WaitingJob, start: PredictedStart, queue: ClusterQueue, cluster: ClusterInfo | None
) -> list[WaitingJob]:
    """Return the jobs that the scheduler would start before ``job``, assumed to be the last.

    Slurm's backfill starts a job before others if it delays none of them: on nodes that none of
    them will get, or if its time limit ends before they start. Jobs that a limit holds take no
    room.

    Args:
        start: when and where there is room between the running jobs.
    """
    ends_at = None
    if job.time_limit_min is not None:
        ends_at = start.starts_at + timedelta(minutes=job.time_limit_min) + MARGIN
    nodes = set(start.nodes)
    reach: dict[tuple[str, ...], frozenset[str]] = {}
    return [
        each
        for each in queue.waiting
        if explain(each.reason).kind in _FOR_ROOM
        and not _is_apart(each, job, nodes, cluster, reach)
        and (each.expected_start is None or ends_at is None or each.expected_start < ends_at)
    ]


def gap_min(
    job: WaitingJob, queue: ClusterQueue, cluster: ClusterInfo | None, now: datetime
) -> int | None:
    """Return the longest time limit with which ``job``, if it started now, would end before a
    pending job starts; None if no pending job has an expected start, or it is too soon."""
    before = in_the_way(replace(job, time_limit_min=None), PredictedStart(now), queue, cluster)
    starts = [each.expected_start for each in before if each.expected_start is not None]
    return fits_min(min(starts), now) if starts else None


def _is_apart(
    other: WaitingJob,
    job: WaitingJob,
    nodes: set[str],
    cluster: ClusterInfo | None,
    reach: dict[tuple[str, ...], frozenset[str]],
) -> bool:
    """Return whether two jobs cannot use the same nodes."""
    if other.expected_nodes and nodes:
        return nodes.isdisjoint(other.expected_nodes)
    if not set(other.partitions).isdisjoint(job.partitions):
        return False
    own = nodes or _nodes_of(job.partitions, cluster, reach)
    return _nodes_of(other.partitions, cluster, reach).isdisjoint(own)


def _nodes_of(
    partitions: tuple[str, ...],
    cluster: ClusterInfo | None,
    reach: dict[tuple[str, ...], frozenset[str]],
) -> frozenset[str]:
    """Return the nodes of partitions; ``reach`` is a cache, because there are thousands of jobs."""
    if partitions not in reach:
        found = [cluster.partition(name) for name in partitions] if cluster is not None else []
        reach[partitions] = frozenset(
            name for each in found if each is not None for name in each.node_names
        )
    return reach[partitions]


def room_under(limit: Limit, job: WaitingJob, running: Sequence[RunningJob]) -> datetime | None:
    """Return when enough jobs that fill ``limit`` reach their time limits for ``job`` to have room.

    None if unknown: for budgets of minutes, or if not all of those jobs are visible.
    """
    if limit.resource == MINUTES or "Mins" in limit.name or limit.used is None:
        return None
    for counted in _groups(limit, job, running):
        if sum(_uses(each, limit) for each in counted) == limit.used:
            return _enough_ended(limit, job, counted)
    return None


def _groups(limit: Limit, job: WaitingJob, running: Sequence[RunningJob]) -> list[list[RunningJob]]:
    """Return groups of jobs that may be those counted; Slurm reports only their total usage."""
    own = [each for each in running if each.user == job.user]
    whole = [own, list(running)]
    groups = [
        [each for each in jobs if value is not None and getattr(each, name) == value]
        for name, value in (
            ("account", job.account),
            ("qos", job.qos),
            ("partition", job.partitions[0] if job.partitions else None),
        )
        for jobs in whole
    ]
    if limit.name.endswith("PerUser"):
        groups = [[each for each in group if each.user == job.user] for group in groups]
    if limit.name.endswith("PerAccount"):
        groups = [[each for each in group if each.account == job.account] for group in groups]
    return [group for group in groups if group]


def _enough_ended(limit: Limit, job: WaitingJob, counted: Sequence[RunningJob]) -> datetime | None:
    used = limit.used or 0
    ends = [(each.ends_at, _uses(each, limit)) for each in counted if each.ends_at is not None]
    for ends_at, count in sorted(ends):
        used -= count
        if has_room(replace(limit, used=used), job):
            return ends_at
    return None


def _uses(job: RunningJob, limit: Limit) -> int:
    return 1 if limit.resource == JOBS else job.uses.get(limit.resource, 0)
