"""What to try so that a waiting job starts earlier, or at all: the best first. Pure.

What is said in general of a reason is in :mod:`hpcflow.schedulers.slurm.reasons`; here is what can
be said of this very job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from hpcflow.errors import shell_word
from hpcflow.model.units import write_duration
from hpcflow.outlook.account import Account
from hpcflow.outlook.ahead import Obstacle
from hpcflow.outlook.bounds import association_of, has_room, limits_on
from hpcflow.schedulers.slurm.reasons import Kind, Reason
from hpcflow.schedulers.waiting import WaitingJob
from hpcflow.sites.live import PartitionInfo
from hpcflow.sites.standing import Standing

#: Another account is worth a resubmission, and the place in the queue, if its factor is this much
#: better.
_MUCH_BETTER: Final = 0.1
#: Points for age part what is alike in all else by a few: so much of what is won counts as nothing.
_TIE: Final = 0.01
_AGAIN: Final = "hpcflow cancel {run}, then hpcflow resume {run} --set "
_OF_THE_QUEUE: Final = (Kind.TURN, Kind.ROOM)


def advise(
    job: WaitingJob,
    reason: Reason,
    standing: Standing | None,
    partition: PartitionInfo | None,
    accounts: Sequence[Account],
    ahead: Sequence[Obstacle],
) -> list[str]:
    """What to type, with the same places to be filled in as in the advice of a reason."""
    ideas = (
        _before_reservations(reason, ahead),
        _elsewhere(job, reason, standing, partition),
        _by_fair_share(job, reason, standing, partition, accounts),
    )
    found = [each for each in ideas if each is not None]
    return found if found and reason.kind is Kind.RESERVATION else [*found, reason.advice]


def _before_reservations(reason: Reason, ahead: Sequence[Obstacle]) -> str | None:
    if reason.kind not in (*_OF_THE_QUEUE, Kind.RESERVATION, Kind.NODES):
        return None
    in_the_way = [each for each in ahead if each.takes_all or reason.kind is Kind.RESERVATION]
    fits = [each.fits_min for each in in_the_way if each.fits_min is not None]
    if not fits or any(each.takes_all and each.fits_min is None for each in in_the_way):
        return None
    limit = write_duration(min(fits) * 60)
    words = f"a time limit of {limit} or less would end before the reservation begins"
    return f"{words}: {_AGAIN}resources.time_limit={limit}"


def _elsewhere(
    job: WaitingJob, reason: Reason, standing: Standing | None, partition: PartitionInfo | None
) -> str | None:
    """Another account or QOS in which no limit is full."""
    if standing is None or not standing.is_use_known:
        return None
    if reason.limit is None or not reason.limit.passes:
        return None
    if reason.limit.level == "association":
        for account in dict.fromkeys(each.account for each in standing.associations):
            moved = replace(job, account=account)
            if account != job.account and _would_start(moved, job, standing, partition):
                words = f"account {account} has no such limit, or room under it"
                return f"{words}: {_AGAIN}resources.account={shell_word(account)}"
        return None
    association = association_of(job, standing)
    for name in association.qos if association else ():
        moved = replace(job, qos=name)
        is_known = standing.qos_named(name) is not None
        if name != job.qos and is_known and _would_start(moved, job, standing, partition):
            words = f"QOS {name} has no such limit, or room under it"
            return f"{words}: {_AGAIN}resources.qos={shell_word(name)}"
    return None


def _by_fair_share(
    job: WaitingJob,
    reason: Reason,
    standing: Standing | None,
    partition: PartitionInfo | None,
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
        moved = replace(job, account=account.name)
        if _is_earlier(job, own, account) and _would_start(moved, job, standing, partition):
            more = (account.points or 0) - (own.points or 0)
            points = f": {more} points more" if more > 0 else ""
            words = f"account {account.name} has the better fair share{points}"
            return f"{words}: {_AGAIN}resources.account={shell_word(account.name)}"
    return None


def _is_earlier(job: WaitingJob, own: Account, other: Account) -> bool:
    """Whether the job would come up with the one just before it, without the points for its age,
    which a new one has not; as far as that is known."""
    if own.points is None or other.points is None:
        return True
    age = sum(each.points for each in job.factors if each.name == "age")
    more = other.points - own.points - age
    if more <= 0:
        return False
    if job.priority is None or job.priority_ahead is None:
        return True
    return job.priority + more * (1 + _TIE) >= job.priority_ahead


def _would_start(
    moved: WaitingJob, job: WaitingJob, standing: Standing, partition: PartitionInfo | None
) -> bool:
    """Whether the job may have the account and the QOS of ``moved``, and has room there."""
    there = association_of(moved, standing)
    if there is None or (there.qos and moved.qos is not None and moved.qos not in there.qos):
        return False
    if partition is not None and not partition.admits(moved.account, moved.qos):
        return False
    counted = limits_on(job, standing, partition).every
    return all(
        has_room(limit, moved)
        # Where it does not wait now, it must be taken first.
        and not ("Submit" in limit.name and limit.is_full and limit not in counted)
        for limit in limits_on(moved, standing, partition).every
    )
