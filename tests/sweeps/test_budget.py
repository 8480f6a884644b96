"""Whether another trial may begin: by what trials have taken, and may take."""

from __future__ import annotations

from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pytest

from hpcflow.model.sweep import Budget, SweepSpec
from hpcflow.model.sweep_records import Asked, Closed, SweepRecord, Told
from hpcflow.sweeps.budget import Rate, Taken, complaint, no_room_for, room
from hpcflow.sweeps.state import SweepProgress, fold

NOW = datetime(2026, 3, 1, tzinfo=timezone.utc)
LIMIT = Rate(10.0, Decimal(20))  # of a trial that takes all of its time limit


def progress(budget: dict[str, Any], *ended: tuple[str, float], open_: int = 0) -> SweepProgress:
    """A sweep in which trials have ended, with their GPU hours; each hour costs 2 USD."""
    spec = SweepSpec.model_validate(
        {
            "name": "s",
            "base": "c.yaml",
            "space": {"lr": {"low": 0.0, "high": 1.0}},
            "objective": {"metric": "loss", "direction": "minimize"},
            "parallel": 8,
            "budget": budget,
        }
    )
    records: list[SweepRecord] = [
        Asked(at=NOW, trial=number, params={"lr": 0.5}, runs=[f"r{number}"])
        for number in range(len(ended) + open_)
    ]
    for number, (outcome, hours) in enumerate(ended):
        values = [1.0] if outcome == "complete" else []
        told = {"at": NOW, "trial": number, "outcome": outcome, "values": values}
        records.append(Told.model_validate(told))
        cost = str(Decimal(2) * Decimal(str(hours)))
        records.append(Closed(at=NOW, trial=number, gpu_hours=hours, cost_usd=cost))
    return fold(spec, NOW, records)


@pytest.mark.parametrize("budget", [{"gpu_hours": 35}, {"cost_usd": 70}])
def test_at_first_a_trial_may_take_all_of_its_time_limit(budget: dict[str, Any]) -> None:
    assert room(progress(budget), LIMIT, NOW).trials == 3
    assert room(progress(budget, open_=2), LIMIT, NOW).trials == 1
    assert room(progress(budget, open_=3), LIMIT, NOW).trials == 0


@pytest.mark.parametrize("outcome", ["complete", "pruned", "failed"])
def test_then_as_much_as_the_longest_so_far_however_that_ended(outcome: str) -> None:
    ended = [(outcome, 5.0), *[("complete", 0.1)] * 3]
    found = progress({"gpu_hours": 26}, *ended, open_=1)
    assert room(found, LIMIT, NOW).trials == 3  # 5.3 are spent, 5 are under way


@pytest.mark.parametrize("outcome", ["pruned", "failed"])
@pytest.mark.parametrize("hours", [0.0, 0.1])
def test_those_that_were_over_early_tell_nothing_of_a_whole_trial(
    outcome: str, hours: float
) -> None:
    found = progress({"gpu_hours": 36}, *[(outcome, hours)] * 5)
    assert room(found, LIMIT, NOW).trials == 3


def test_one_that_takes_longer_than_its_time_limit_is_not_the_only_one() -> None:
    """It was preempted, or needs several attempts; so may the next one."""
    found = progress({"gpu_hours": 50}, open_=1)
    assert room(found, LIMIT, NOW, {0: taken(20.0)}).trials == 1


def test_what_is_trained_anew_is_taken_once_more() -> None:
    found = progress({"gpu_hours": 20}, open_=1)
    assert room(found, LIMIT, NOW, {0: taken(0.0, failed=9.0)}).trials == 0
    assert no_room_for(found, LIMIT, {0: taken(0.0, failed=9.0)}) is None
    said = no_room_for(found, LIMIT, {0: taken(0.0, failed=11.0)})
    assert said == "a retry may exceed the budget of 20 GPU hours"


def taken(hours: float, failed: float = 0.0) -> Taken:
    """So many GPU hours, of a run that counts and of those that failed before it."""
    return Taken(
        Rate(failed, Decimal(str(2 * failed))),
        Rate(hours, Decimal(str(2 * hours))),
    )


def test_one_that_runs_on_counts_with_what_it_has_taken() -> None:
    ended = [("complete", 1.0)] * 3
    found = progress({"gpu_hours": 20}, *ended, open_=1)
    assert room(found, LIMIT, NOW).trials == 7
    assert room(found, LIMIT, NOW, {3: taken(3.5)}).trials == 3, "the next may take as much"


def test_what_is_passed_is_over_even_where_a_trial_takes_nothing() -> None:
    found = progress({"cost_usd": 1}, ("complete", 0.6))
    left = room(found, Rate(None, None), NOW)
    assert (left.trials, left.why) == (0, "another trial may exceed the budget of 1 USD")


def test_a_budget_that_means_nothing_here_is_said() -> None:
    said = complaint(Budget(cost_usd=Decimal(1)), Rate(1.0, None))
    assert said is not None
    assert said.key == "cost_usd"
    said = complaint(Budget(gpu_hours=Decimal(1)), Rate(0.0, Decimal(1)))
    assert said is not None
    assert said.key == "gpu_hours"
    assert complaint(Budget(trials=1), Rate(None, None)) is None
