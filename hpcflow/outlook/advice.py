"""What to try so that a waiting job starts earlier, or at all: the best first. Pure.

What is said in general of a reason is in :mod:`hpcflow.schedulers.slurm.reasons`; here is what can
be said of this very job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hpcflow.model.units import write_duration
from hpcflow.outlook.account import Account
from hpcflow.outlook.ahead import Obstacle
from hpcflow.outlook.bounds import has_room, qos_limits
from hpcflow.schedulers.slurm.reasons import Kind, Reason
from hpcflow.schedulers.waiting import WaitingJob
from hpcflow.sites.standing import Standing

#: Another account is worth a resubmission, and the place in the queue, if its factor is this much
#: better.
_MUCH_BETTER: Final = 0.1
_AGAIN: Final = "hpcflow cancel {run}, then hpcflow resume {run} --set "
_OF_THE_QUEUE: Final = (Kind.TURN, Kind.ROOM)


def advise(
    job: WaitingJob,
    reason: Reason,
    standing: Standing | None,
    accounts: Sequence[Account],
    ahead: Sequence[Obstacle],
) -> list[str]:
    """What to type, with the same places to be filled in as in the advice of a reason."""
    ideas = (
        _before_reservations(reason, ahead),
        _elsewhere(job, reason, standing),
        _by_fair_share(job, reason, standing, accounts),
    )
    found = [each for each in ideas if each is not None]
    return found if found and reason.kind is Kind.RESERVATION else [*found, reason.advice]


def _before_reservations(reason: Reason, ahead: Sequence[Obstacle]) -> str | None:
    if reason.kind not in (*_OF_THE_QUEUE, Kind.RESERVATION, Kind.NODES):
        return None
    in_the_way = [each for each in ahead if each.takes_all or reason.kind is Kind.RESERVATION]
    fits = [each.fits_min for each in in_the_way if each.fits_min is not None]
    if not fits:
        return None
    limit = write_duration(min(fits) * 60)
    words = f"a time limit of {limit} or less would end before the reservation begins"
    return f"{words}: {_AGAIN}resources.time_limit={limit}"


def _elsewhere(job: WaitingJob, reason: Reason, standing: Standing | None) -> str | None:
    """Another account or QOS whose limit of that name is not full."""
    if standing is None or reason.limit is None or not reason.limit.passes:
        return None
    if reason.limit.level == "association":
        for each in standing.associations:
            if each.account != job.account and _takes(standing, each.account, job):
                words = f"account {each.account} has no such limit, or room under it"
                return f"{words}: {_AGAIN}resources.account={each.account}"
        return None
    association = standing.association(job.account, job.partitions[0] if job.partitions else None)
    for name in association.qos if association else ():
        other = standing.qos_named(name)
        limits = qos_limits(other, job.account) if other else ()
        if other is not None and name != job.qos and all(has_room(each, job) for each in limits):
            words = f"QOS {name} has no such limit, or room under it"
            return f"{words}: {_AGAIN}resources.qos={name}"
    return None


def _by_fair_share(
    job: WaitingJob,
    reason: Reason,
    standing: Standing | None,
    accounts: Sequence[Account],
) -> str | None:
    """An account in which it would come earlier."""
    own = next((each for each in accounts if each.is_own), None)
    if standing is None or own is None or reason.kind not in _OF_THE_QUEUE:
        return None
    if job.position == 1:
        return None  # nobody is before it
    for account in accounts:
        if account.factor < own.factor + _MUCH_BETTER:
            return None
        if _takes(standing, account.name, job):
            more = (account.points or 0) - (own.points or 0)
            points = f": {more} points more" if more > 0 else ""
            words = f"account {account.name} has the better fair share{points}"
            return f"{words}: {_AGAIN}resources.account={account.name}"
    return None


def _takes(standing: Standing, account: str, job: WaitingJob) -> bool:
    """Whether a job may have its QOS and its partition in another account, and has room there."""
    there = standing.association(account, job.partitions[0] if job.partitions else None)
    if there is None or not all(has_room(limit, job) for limit in there.limits):
        return False
    return not there.qos or job.qos is None or job.qos in there.qos
