"""Why a job waits: all that is known of it put together, and what to try next. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from hpcflow.model.units import write_duration
from hpcflow.outlook.ahead import Obstacle, obstacles
from hpcflow.outlook.bounds import binding, limits_on
from hpcflow.schedulers.slurm.reasons import Kind, Reason, explain
from hpcflow.schedulers.waiting import WaitingJob
from hpcflow.sites.live import ClusterInfo, PartitionInfo
from hpcflow.sites.standing import Limit, Reservation, Standing

#: Another account is worth a resubmission, and the place in the queue, if its factor is this much
#: better.
_MUCH_BETTER: Final = 0.1
_WEIGHT: Final = "PriorityWeightFairShare"


@dataclass(frozen=True)
class Account:
    """One of the user's accounts, by its fair share.

    Attributes:
        points: what its factor adds to the priority of a job; None where nobody says.
        is_own: whether it is the job's.
    """

    name: str
    factor: float
    points: int | None
    is_own: bool


@dataclass(frozen=True)
class Wait:
    """A job that waits, explained.

    Attributes:
        reason: Slurm's, in plain words.
        accounts: the user's, the best first; empty where fair share is not known.
        limits: those that bind: that the reason names, or that are full.
        partition: that it waits in, as far as the cluster tells of it.
        obstacles: reservations ahead.
        to_try: what to do about it, the best first; ``{run}`` and ``{job}`` are filled in.
    """

    job: WaitingJob
    reason: Reason
    accounts: tuple[Account, ...]
    limits: tuple[Limit, ...]
    partition: PartitionInfo | None
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
    accounts = _accounts(job, standing, cluster)
    ahead = obstacles(job, reservations, partition, now)
    names = {"run": run_id, "job": job.job_id, "partition": name or "NAME"}
    to_try = [*_better(job, reason, standing, accounts, ahead), reason.advice]
    filled = dict.fromkeys(each.format(**names) for each in to_try)
    return Wait(job, reason, accounts, limits, partition, ahead, tuple(filled))


def _accounts(
    job: WaitingJob, standing: Standing | None, cluster: ClusterInfo | None
) -> tuple[Account, ...]:
    if standing is None:
        return ()
    weight = _weight(cluster)
    shares = [share for share in map(standing.share, _names(standing)) if share is not None]
    found = [
        Account(
            share.account,
            share.factor,
            None if weight is None else round(weight * share.factor),
            share.account == job.account,
        )
        for share in shares
        if share.factor is not None
    ]
    return tuple(sorted(found, key=lambda each: -each.factor))


def _names(standing: Standing) -> list[str]:
    """Of the accounts, those first that it is a member of."""
    known = [each.account for each in standing.associations]
    told = [each.account for each in standing.shares if each.user]
    return list(dict.fromkeys([*known, *told]))


def _weight(cluster: ClusterInfo | None) -> int | None:
    settings = cluster.settings if cluster is not None else {}
    # The capitals of the S differ between versions.
    text = next((value for key, value in settings.items() if key.lower() == _WEIGHT.lower()), "")
    return int(text) if text.isdecimal() else None


def _better(
    job: WaitingJob,
    reason: Reason,
    standing: Standing | None,
    accounts: Sequence[Account],
    ahead: Sequence[Obstacle],
) -> list[str]:
    """What can be said of this very job, before the general advice."""
    again = "hpcflow cancel {run}, then hpcflow resume {run} --set "
    found = []
    in_the_way = [each for each in ahead if each.takes_all or reason.kind is Kind.RESERVATION]
    fits = [each.fits_min for each in in_the_way if each.fits_min is not None]
    if fits and reason.kind in (Kind.RESERVATION, Kind.TURN, Kind.ROOM):
        limit = write_duration(min(fits) * 60)
        found.append(
            f"a time limit of {limit} or less would end before the reservation begins: "
            f"{again}resources.time_limit={limit}"
        )
    other = _other_account(job, reason, standing, accounts)
    if other is not None:
        found.append(f"{other[1]}: {again}resources.account={other[0]}")
    return found


def _other_account(
    job: WaitingJob,
    reason: Reason,
    standing: Standing | None,
    accounts: Sequence[Account],
) -> tuple[str, str] | None:
    """One in which it would come earlier, and why."""
    if standing is None:
        return None
    if reason.limit is not None and reason.limit.level == "association" and reason.limit.passes:
        for each in standing.associations:
            is_full = any(limit.is_full for limit in binding(reason.limit, each.limits, job))
            if each.account != job.account and not is_full and _takes(standing, each.account, job):
                return each.account, f"account {each.account} has no such limit, or room under it"
        return None
    if reason.kind not in (Kind.TURN, Kind.ROOM):
        return None
    own = next((each for each in accounts if each.is_own), None)
    for account in accounts:
        if own is None or account.factor < own.factor + _MUCH_BETTER:
            return None
        if _takes(standing, account.name, job):
            more = (account.points or 0) - (own.points or 0)
            words = f"account {account.name} has the better fair share"
            return account.name, f"{words}: {more} points more" if more > 0 else words
    return None


def _takes(standing: Standing, account: str, job: WaitingJob) -> bool:
    """Whether a job may have its QOS and its partition in another account."""
    there = standing.association(account, job.partitions[0] if job.partitions else None)
    return there is not None and (not there.qos or job.qos is None or job.qos in there.qos)
