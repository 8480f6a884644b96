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
    """The explanation of a pending job.

    Attributes:
        reason: Slurm's reason, in plain words.
        accounts: the user's accounts, the best first; empty if fair share is unknown.
        limits: the limits that the reason names, or that have no room for the job.
        partition: the job's partition, if known.
        sees_others: whether Slurm shows other users' jobs; otherwise the position is one among the
            user's own.
        obstacles: reservations ahead.
        to_try: what to do, the best first.
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
    """Explain why ``job`` is pending; ``standing`` and ``cluster`` are None if unknown."""
    reason = explain(job.reason)
    name = job.partitions[0] if job.partitions else None
    partition = cluster.partition(name) if cluster is not None and name is not None else None
    limits = binding(reason.limit, limits_on(job, standing, partition), job)
    if reason.limit is not None and reason.limit.passes:
        reason = _of_this_job(reason, limits, job)
    elif reason.kind is Kind.PARTITION and partition is not None and nodes_misfit(partition, job):
        reason = replace(reason, kind=Kind.TOO_LARGE)  # otherwise some of its nodes are not up
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
    """Return ``reason``, or, if the job asks for more than a limit allows, a reason saying so."""
    for limit in limits:
        wants = 0 if "Mins" in limit.name else job.wants.get(limit.resource, 0)
        if wants > limit.allowed:
            return exceeded(reason, excess_words(limit, wants))
    return reason


def _filled(text: str, names: dict[str, str]) -> str:
    """Fill in placeholders. Not with ``str.format``, because account names may contain braces."""
    for name, value in names.items():
        text = text.replace(f"{{{name}}}", value)
    return text
