"""Whether the budget of a sweep allows another trial. Pure.

An open trial counts with the most that any trial has taken so far; and with at least its whole time
limit, until three trials are complete. So a sweep stays in its budget of GPU hours or money, unless
a trial takes longer than all before it, or one of the first needs several attempts.
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

#: Complete trials needed to estimate the next. Pruned and failed trials end first, and say little
#: about the cost of a complete one.
_ENOUGH = 3


@dataclass(frozen=True)
class Rate:
    """Cost of one trial at its time limit, all repeats; None if unknown."""

    gpu_hours: float | None
    cost_usd: Decimal | None


@dataclass(frozen=True)
class Taken:
    """Cost of an open trial so far.

    Attributes:
        failed: of its runs that failed and were retried.
        running: of its current runs.
    """

    failed: Rate
    running: Rate

    def of_failed(self, name: str) -> Decimal:
        return _amount(self.failed, name)

    def of_running(self, name: str) -> Decimal:
        return _amount(self.running, name)


NOTHING = Taken(Rate(None, None), Rate(None, None))


@dataclass(frozen=True)
class Room:
    """How many trials may begin now; ``why`` is set if no more will ever begin."""

    trials: int
    why: str | None = None


LATE: Final = "its deadline has passed"


@dataclass(frozen=True)
class Complaint:
    key: str
    message: str
    next_action: str


def complaint(budget: Budget, rate: Rate) -> Complaint | None:
    """Return what is wrong with a budget for trials of this cost; None if nothing is."""
    if budget.cost_usd is not None and rate.cost_usd is None:
        return Complaint(
            "cost_usd",
            "the cost of a trial is unknown: the site has no price in money for its partition, "
            "or the trial has no time limit",
            f"use `gpu_hours`, or write `price` into the site file: {doc_page('costs')}",
        )
    if budget.gpu_hours is not None and not rate.gpu_hours:
        return Complaint(
            "gpu_hours",
            "the base run asks for no GPUs, or has no time limit, so it uses no GPU hours",
            "use `trials` or `deadline`",
        )
    return None


def end_of(progress: SweepProgress, now: datetime) -> str | None:
    """Return why no trial may begin, whatever its cost; None if one may."""
    budget, best = progress.budget, progress.best()
    if budget.target is not None and best is not None and best.values:
        value = best.values[0]
        if not progress.is_better(budget.target, value):
            name = progress.spec.goals[0].metric
            return f"trial {best.number} has reached {name} {value:.6g}"
    return LATE if is_late(progress, now) and not is_doubtful(progress, now) else None


def is_late(progress: SweepProgress, now: datetime) -> bool:
    """Return whether the deadline has passed by this clock."""
    deadline_s = progress.budget.deadline_s
    return deadline_s is not None and now >= progress.started_at + timedelta(seconds=deadline_s)


def is_doubtful(progress: SweepProgress, now: datetime) -> bool:
    """Return whether the deadline has passed by this clock, but no earlier round confirms it.

    Then no trial begins, and nothing is decided that cannot be undone.
    """
    since = progress.late_at
    return is_late(progress, now) and (since is None or not since <= now - CONFIRMED_AFTER)


def room(
    progress: SweepProgress, rate: Rate, now: datetime, taken: Mapping[int, Taken] | None = None
) -> Room:
    """Return how many trials may be asked for.

    Args:
        rate: cost of a trial at its time limit.
        taken: number of each open trial -> its cost so far.
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
            return Room(0, f"the budget of {counted(budget.trials, 'trial')} is used up")
        free = min(free, left)
    for name, limit, unit in _limits(budget):
        used, one = _used(progress, rate, name, taken or {})
        fits = 0 if used >= limit else int((limit - used) / one) if one > 0 else free
        if fits <= 0 and not progress.open:
            return Room(0, f"another trial may exceed the budget of {limit} {unit}")
        free = min(free, fits)
    return Room(free)


def no_room_for(progress: SweepProgress, rate: Rate, taken: Mapping[int, Taken]) -> str | None:
    """Return why the budget does not allow to retry a failed run; None if it does.

    Args:
        taken: as if the retry had begun.
    """
    for name, limit, unit in _limits(progress.budget):
        used, _ = _used(progress, rate, name, taken)
        if used > limit:
            return f"a retry may exceed the budget of {limit} {unit}"
    return None


def _limits(budget: Budget) -> list[tuple[str, Decimal, str]]:
    found = [
        ("gpu_hours", budget.gpu_hours, "GPU hours"),
        ("cost_usd", budget.cost_usd, "USD"),
    ]
    return [(name, limit, unit) for name, limit, unit in found if limit is not None]


def _used(
    progress: SweepProgress, rate: Rate, name: str, taken: Mapping[int, Taken]
) -> tuple[Decimal, Decimal]:
    """Return the most that all trials so far may take; and the most that one more may take."""
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
