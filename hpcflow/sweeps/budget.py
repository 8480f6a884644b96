"""Whether the budget of a sweep allows another trial. Pure.

What is under way is counted with what it may come to: the longest that any trial has taken so far,
or is taking; and at least all of its time limit, until three have come to their end. So a budget of
GPU hours or money is not passed, unless a trial takes longer than all before it, or is one of the
first and needs several attempts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from hpcflow.clock import CONFIRMED_AFTER
from hpcflow.model.sweep import Budget
from hpcflow.model.units import counted
from hpcflow.resources import doc_page
from hpcflow.sweeps.state import SweepProgress, TrialState

#: So many trials must have come to their end before the next is judged by them. Those that were
#: pruned, failed or never ran are over first, and tell little of what a whole one takes.
_ENOUGH = 3


@dataclass(frozen=True)
class Rate:
    """What one trial takes in its whole time limit, all repeats; None where nobody can tell."""

    gpu_hours: float | None
    cost_usd: Decimal | None


@dataclass(frozen=True)
class Taken:
    """What a trial under way has taken so far.

    Attributes:
        failed: by its runs that failed and were trained again.
        running: by those that count.
    """

    failed: Rate
    running: Rate

    def of_failed(self, name: str) -> Decimal:
        return _amount(self.failed, name)

    def of_running(self, name: str) -> Decimal:
        return _amount(self.running, name)


#: Nothing yet.
NOTHING = Taken(Rate(None, None), Rate(None, None))


@dataclass(frozen=True)
class Room:
    """How many more trials may begin now; ``why`` there never will be more, if so."""

    trials: int
    why: str | None = None


LATE: Final = "its deadline has passed"


@dataclass(frozen=True)
class Complaint:
    """What is wrong with one key of a budget."""

    key: str
    message: str
    next_action: str


def complaint(budget: Budget, rate: Rate) -> Complaint | None:
    """What is wrong with a budget for trials that take so much; None if nothing is."""
    if budget.cost_usd is not None and rate.cost_usd is None:
        return Complaint(
            "cost_usd",
            "the cost of a trial is not known: the site has no price in money for its partition, "
            "or the trial has no time limit",
            f"take `gpu_hours`, or write `price` into the site file: {doc_page('costs')}",
        )
    if budget.gpu_hours is not None and not rate.gpu_hours:
        return Complaint(
            "gpu_hours",
            "the base run asks for no GPUs, or has no time limit: it would never take any",
            "take `trials` or `deadline`",
        )
    return None


def end_of(progress: SweepProgress, now: datetime) -> str | None:
    """Why nothing more is begun, whatever it would take; None if it may be."""
    budget, best = progress.budget, progress.best()
    if budget.target is not None and best is not None and best.values:
        value = best.values[0]
        if not progress.is_better(budget.target, value):
            name = progress.spec.goals[0].metric
            return f"trial {best.number} has reached {name} {value:.6g}"
    return LATE if is_late(progress, now) and not is_doubtful(progress, now) else None


def is_late(progress: SweepProgress, now: datetime) -> bool:
    """Whether the deadline has passed, by this clock."""
    deadline_s = progress.budget.deadline_s
    return deadline_s is not None and now >= progress.started_at + timedelta(seconds=deadline_s)


def is_doubtful(progress: SweepProgress, now: datetime) -> bool:
    """Whether the deadline has passed by this clock, and no round long enough ago found the same.

    Then nothing is begun, and nothing is concluded that cannot be taken back.
    """
    since = progress.late_at
    return is_late(progress, now) and (since is None or not since <= now - CONFIRMED_AFTER)


def room(
    progress: SweepProgress, rate: Rate, now: datetime, taken: Mapping[int, Taken] | None = None
) -> Room:
    """How many trials may be asked for.

    Args:
        rate: what a trial takes in its whole time limit.
        taken: trial -> what it has taken so far, of those under way.
    """
    if (why := end_of(progress, now)) is not None:
        return Room(0, why)
    if is_doubtful(progress, now):
        return Room(0)
    budget = progress.budget
    free = max(0, progress.parallel - len(progress.open))
    if budget.trials is not None:
        left = budget.trials - sum(not trial.is_void for trial in progress.trials)
        if left <= 0:
            return Room(0, f"it has its {counted(budget.trials, 'trial')}")
        free = min(free, left)
    for name, limit, unit in _limits(budget):
        used, one = _used(progress, rate, name, taken or {})
        fits = 0 if used >= limit else int((limit - used) / one) if one > 0 else free
        if fits <= 0 and not progress.open:
            return Room(0, f"another trial may pass the budget of {limit} {unit}")
        free = min(free, fits)
    return Room(free)


def no_room_for(progress: SweepProgress, rate: Rate, taken: Mapping[int, Taken]) -> str | None:
    """Why there is no room for a run that has failed to be trained again; None if there is.

    Args:
        taken: as it is once that has begun.
    """
    for name, limit, unit in _limits(progress.budget):
        used, _ = _used(progress, rate, name, taken)
        if used > limit:
            return f"training it again may pass the budget of {limit} {unit}"
    return None


def _limits(budget: Budget) -> list[tuple[str, Decimal, str]]:
    """Name, limit and unit of each amount that is limited."""
    found = [
        ("gpu_hours", budget.gpu_hours, "GPU hours"),
        ("cost_usd", budget.cost_usd, "USD"),
    ]
    return [(name, limit, unit) for name, limit, unit in found if limit is not None]


def _used(
    progress: SweepProgress, rate: Rate, name: str, taken: Mapping[int, Taken]
) -> tuple[Decimal, Decimal]:
    """What is spent, or may be by those under way; and what one trial more may take."""
    closed = [
        (trial, Decimal(str(value)))
        for trial in progress.trials
        if trial.closed is not None and (value := getattr(trial.closed, name)) is not None
    ]
    under_way = [taken.get(trial.number, NOTHING) for trial in progress.open]
    spent = [value for _, value in closed]
    one = max([*spent, *(each.of_running(name) for each in under_way)], default=Decimal(0))
    whole = sum(trial.state is TrialState.COMPLETE and value > 0 for trial, value in closed)
    if whole < _ENOUGH:
        one = max(one, _amount(rate, name))
    may_come_to = [each.of_failed(name) + max(one, each.of_running(name)) for each in under_way]
    return sum(spent, Decimal(0)) + sum(may_come_to, Decimal(0)), one


def _amount(rate: Rate, name: str) -> Decimal:
    value = getattr(rate, name)
    return Decimal(0) if value is None else Decimal(str(value))
