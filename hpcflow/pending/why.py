"""Explain why a job is pending, and what to try next. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from hpcflow.errors import shell_word
from hpcflow.pending.account import Account, accounts_of
from hpcflow.pending.advice import advise
from hpcflow.pending.ahead import Obstacle, obstacles
from hpcflow.pending.bounds import binding, excess_words, limits_on, nodes_misfit
from hpcflow.schedulers.slurm.reasons import Kind, Reason, exceeded, explain
from hpcflow.schedulers.waiting import WaitingJob
from hpcflow.sites.live import ClusterInfo, PartitionInfo
from hpcflow.sites.standing import Limit, Reservation, Standing


@dataclass(frozen=True)
class Wait:
    """A job that waits, explained.

    Attributes:
        reason: Slurm's, in plain words.
        accounts: the user's, the best first; empty where fair share is not known.
        limits: those that bind: that the reason names, or under which it has no room.
        partition: that it waits in, as far as the cluster tells of it.
        sees_others: whether the site shows other people's jobs; else the position is one among the
            user's own.
        obstacles: reservations ahead.
        to_try: what to do about it, the best first.
    """

    job: WaitingJob
    reason: Reason
    accounts: tuple[Account, ...]
    limits: tuple[Limit, ...]
    partition: PartitionInfo | None
    sees_others: bool
    obstacles: tuple[Obstacle, ...]
    to_try: tuple[str, ...]


def explain_wait(
    job: WaitingJob,
    run_id: str,
    *,
    standing: Standing | None,
    cluster: ClusterInfo | None,
    reservations: Sequence[Reservation],
    now: datetime,
) -> Wait:
    """Put it together.

    Args:
        standing: None where nobody says.
        cluster: the same.
    """
    reason = explain(job.reason)
    name = job.partitions[0] if job.partitions else None
    partition = cluster.partition(name) if cluster is not None and name is not None else None
    limits = binding(reason.limit, limits_on(job, standing, partition), job)
    if reason.limit is not None and reason.limit.passes:
        reason = _of_this_job(reason, limits, job)
    elif reason.kind is Kind.PARTITION and partition is not None and nodes_misfit(partition, job):
        reason = replace(reason, kind=Kind.TOO_LARGE)  # else some of its nodes are not up
    accounts = accounts_of(job, standing, cluster)
    ahead = obstacles(job, reservations, partition, now)
    names = {
        "run": shell_word(run_id),
        "job": shell_word(job.job_id),
        "partition": name or "",
    }
    sees_others = cluster is None or not cluster.hides_jobs
    ideas = advise(job, reason, standing, partition, accounts, sees_others=sees_others)
    to_try = [_filled(each, names) for each in ideas]
    return Wait(job, reason, accounts, limits, partition, sees_others, ahead, tuple(to_try))


def _of_this_job(reason: Reason, limits: Sequence[Limit], job: WaitingJob) -> Reason:
    """Whether other jobs fill a limit, or this one asks for more than it allows them all."""
    for limit in limits:
        wants = 0 if "Mins" in limit.name else job.wants.get(limit.resource, 0)
        if wants > limit.allowed:
            return exceeded(reason, excess_words(limit, wants))
    return reason


def _filled(text: str, names: dict[str, str]) -> str:
    """Not str.format: names of accounts may hold braces."""
    for name, value in names.items():
        text = text.replace(f"{{{name}}}", value)
    return text
