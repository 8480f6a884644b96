"""Whether a sweep may begin another trial. Pure.

What is under way is counted with what it may come to: the longest that any trial has taken so far,
once three have ended, else all of its time limit; and at least with what it has taken already. So a
budget of GPU hours or money is not passed, unless a trial takes longer than all before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from hpcflow.model.sweep import Budget
from hpcflow.sweeps.state import SweepProgress

#: So many trials must have ended before the next is judged by them.
_ENOUGH = 3


@dataclass(frozen=True)
class Rate:
    """What one trial takes in its whole time limit, all repeats; None where nobody can tell."""

    gpu_hours: float | None
    cost_usd: Decimal | None


@dataclass(frozen=True)
class Room:
    """How many more trials may begin now; ``why`` there never will be more, if so."""

    trials: int
    why: str | None = None


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
            "nobody knows what a trial costs: the site has no price in money for its partition, or "
            "the trial no time limit",
            "take `gpu_hours`, or write `price` into the site file: docs/sites.md",
        )
    if budget.gpu_hours is not None and not rate.gpu_hours:
        return Complaint(
            "gpu_hours",
            "the base run asks for no GPUs, or has no time limit: it would never take any",
            "take `trials` or `deadline`",
        )
    return None


def room(
    progress: SweepProgress, rate: Rate, now: datetime, taken: Mapping[int, Rate] | None = None
) -> Room:
    """How many trials may be asked for.

    Args:
        rate: what a trial takes in its whole time limit.
        taken: trial -> what it has taken so far, of those under way.
    """
    budget = progress.budget
    free = max(0, progress.parallel - len(progress.open))
    best = progress.best()
    if budget.target is not None and best is not None and best.values:
        value = best.values[0]
        if not progress.is_better(budget.target, value):
            name = progress.spec.goals[0].metric
            return Room(0, f"trial {best.number} has reached {name} {value:.6g}")
    deadline = timedelta(seconds=budget.deadline_s or 0)
    if budget.deadline_s is not None and now >= progress.started_at + deadline:
        return Room(0, "its deadline has passed")
    if budget.trials is not None:
        left = budget.trials - sum(not trial.is_void for trial in progress.trials)
        if left <= 0:
            return Room(0, f"it has its {budget.trials} trials")
        free = min(free, left)
    limits = [
        ("gpu_hours", budget.gpu_hours, "GPU hours"),
        ("cost_usd", budget.cost_usd, "USD"),
    ]
    for name, limit, unit in limits:
        if limit is None:
            continue
        used, one = _used(progress, rate, name, taken or {})
        fits = 0 if used >= limit else int((limit - used) / one) if one > 0 else free
        if fits <= 0 and not progress.open:
            return Room(0, f"another trial may pass the budget of {limit} {unit}")
        free = min(free, fits)
    return Room(free)


def _used(
    progress: SweepProgress, rate: Rate, name: str, taken: Mapping[int, Rate]
) -> tuple[Decimal, Decimal]:
    """What is spent, or may be by those under way; and what one trial more may take."""
    closed = [
        Decimal(str(value))
        for trial in progress.trials
        if trial.closed is not None and (value := getattr(trial.closed, name)) is not None
    ]
    most = getattr(rate, name)
    one = max(closed, default=Decimal(0))
    if len(closed) < _ENOUGH and most is not None:
        one = Decimal(str(most))
    open_now = [getattr(taken.get(each.number), name, None) or 0 for each in progress.open]
    under_way = sum((max(one, Decimal(str(each))) for each in open_now), Decimal(0))
    return sum(closed, Decimal(0)) + under_way, one
