"""Suggest what to change so that a pending job starts earlier, or at all. Pure.

:mod:`hpcflow.schedulers.slurm.reasons` has the general advice for a reason; this module has advice
for one job. :mod:`hpcflow.placement.alternatives` tests other requests before they are suggested.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from hpcflow.errors import shell_word
from hpcflow.pending.account import Account
from hpcflow.pending.ahead import Obstacle
from hpcflow.pending.bounds import association_of, has_room, limits_on, nodes_that_fit
from hpcflow.schedulers.slurm.reasons import Kind, Reason
from hpcflow.schedulers.waiting import WaitingJob
from hpcflow.sites.live import PartitionInfo
from hpcflow.sites.standing import Limit, Standing

#: Another account is worth a resubmission, which loses the position in the queue, if its factor is
#: better by this.
_MUCH_BETTER: Final = 0.1
#: Tolerance, as a share of the gained points: jobs that are otherwise equal differ by a few points
#: for age.
_TIE: Final = 0.01
_AGAIN: Final = "hpcflow cancel {run}, then hpcflow resume {run} --set "
_OF_THE_QUEUE: Final = (Kind.TURN, Kind.ROOM)


def advise(
    job: WaitingJob,
    reason: Reason,
    standing: Standing | None,
    partition: PartitionInfo | None,
    accounts: Sequence[Account],
    *,
    sees_others: bool,
) -> list[str]:
    """Return advice, with the same placeholders as the advice of a reason."""
    account = None
    if sees_others:
        account = _by_fair_share(job, reason, standing, partition, accounts)
    return [reason.advice] if account is None else [account, reason.advice]


def sizes_that_fit(
    job: WaitingJob,
    limits: Sequence[Limit],
    partition: PartitionInfo | None,
    ahead: Sequence[Obstacle],
) -> Iterator[tuple[str, Any]]:
    """Yield keys of ``resources``, each with the value nearest to the job's that a limit, the
    partition or a reservation ahead allows."""
    limits_min = [each.fits_min for each in ahead if each.fits_min is not None]
    limits_min += [each.allowed for each in limits if each.name == "MaxWall"]
    if partition is not None and partition.time_limit_max_min is not None:
        limits_min.append(partition.time_limit_max_min)
    for minutes in limits_min:
        if job.time_limit_min is not None and 0 < minutes < job.time_limit_min:
            yield "time_limit", minutes
    if partition is not None and (nodes := nodes_that_fit(partition, job)) is not None:
        yield "nodes", nodes
    for limit in limits:
        if "Mins" in limit.name or job.wants.get(limit.resource, 0) <= limit.allowed:
            continue
        if limit.resource == "node" and limit.allowed:
            yield "nodes", limit.allowed
        if limit.resource.startswith("gres/gpu") and limit.allowed >= (job.nodes or 1):
            yield "gpus_per_node", limit.allowed // (job.nodes or 1)


def _by_fair_share(
    job: WaitingJob,
    reason: Reason,
    standing: Standing | None,
    partition: PartitionInfo | None,
    accounts: Sequence[Account],
) -> str | None:
    """Return advice to use an account in which the job would start earlier; None if none."""
    own = next((each for each in accounts if each.is_own), None)
    if standing is None or own is None or reason.kind not in _OF_THE_QUEUE:
        return None
    if job.position == 1:
        return None
    for account in accounts:
        if account.factor < own.factor + _MUCH_BETTER:
            return None
        moved = replace(job, account=account.name)
        if _is_earlier(job, own, account) and _would_start(moved, job, standing, partition):
            known = account.points is not None and own.points is not None
            more = (account.points or 0) - (own.points or 0) - _age(job) if known else 0
            points = f": {more} points more" if more > 0 else ""
            if points and job.priority_ahead is not None:
                points += ", enough to reach the job just ahead"
            words = f"account {account.name} has a better fair share{points}"
            return f"{words}: {_AGAIN}resources.account={shell_word(account.name)}"
    return None


def _age(job: WaitingJob) -> int:
    """Return the points for age, which a job loses when it is resubmitted."""
    return sum(each.points for each in job.factors if each.name == "age")


def _is_earlier(job: WaitingJob, own: Account, other: Account) -> bool:
    """Return whether the job would reach the priority of the one just before it, without points for
    age; true if the accounts' points are unknown."""
    if own.points is None or other.points is None:
        return True
    if not job.factors:
        return False  # its points for age are unknown
    more = other.points - own.points - _age(job)
    if more <= 0:
        return False
    if job.priority is None or job.priority_ahead is None:
        return True
    return job.priority + more * (1 + _TIE) >= job.priority_ahead


def _would_start(
    moved: WaitingJob, job: WaitingJob, standing: Standing, partition: PartitionInfo | None
) -> bool:
    """Return whether the job may use the account and the QOS of ``moved``, and has room there."""
    there = association_of(moved, standing)
    if there is None or (there.qos and moved.qos is not None and moved.qos not in there.qos):
        return False
    if partition is not None and not partition.admits(moved.account, moved.qos):
        return False
    counted = limits_on(job, standing, partition).every
    return all(
        has_room(limit, moved)
        # A limit on submitted jobs that does not count the job now must have room for it.
        and not ("Submit" in limit.name and limit.is_full and limit not in counted)
        for limit in limits_on(moved, standing, partition).every
    )
