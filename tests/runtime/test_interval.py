"""How often to save, where nobody has said it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcflow.runtime.job import job_from
from hpcflow.runtime.schedule import (
    FIRST_S,
    LONGEST_S,
    SHORTEST_S,
    AutoInterval,
    Schedule,
    optimum_s,
)
from hpcflow.testing.clock import FakeClock
from tests.runtime.harness import RunFolder, start

DAY_S = 24 * 3600.0


def lost_share(interval_s: float, cost_s: float, mtbf_s: float) -> float:
    """What of the time is lost to saving and to training again, by Daly's complete model.

    The time that a training takes, over the time that it would take undisturbed: exponential ends,
    no time for the restart.
    """
    cycle_s = interval_s + cost_s
    return mtbf_s * (math.exp(cycle_s / mtbf_s) - 1) / interval_s - 1


@pytest.mark.parametrize(("mtbf_min", "interval_min"), [(24 * 60, 117), (6 * 60, 57), (15, 9.1)])
def test_the_optimum_is_what_daly_computes(mtbf_min: float, interval_min: float) -> None:
    """The figures 3 to 5 of his paper, with a save of five minutes."""
    found_min = optimum_s(5 * 60, mtbf_min * 60) / 60
    assert found_min == pytest.approx(interval_min, abs=0.5 if interval_min > 10 else 0.05)


def test_where_saving_takes_longer_than_anything_lasts_it_is_as_often_as_that() -> None:
    assert optimum_s(1200, 600) == 600
    assert optimum_s(9000, 600) == 600


@given(st.floats(0.01, 600), st.floats(1200, 30 * DAY_S))
def test_it_loses_no_more_than_others_do(cost_s: float, mtbf_s: float) -> None:
    best_s = optimum_s(cost_s, mtbf_s)
    lost = lost_share(best_s, cost_s, mtbf_s)
    for factor in (0.5, 0.7, 1.4, 2.0):
        assert lost <= lost_share(best_s * factor, cost_s, mtbf_s)


def test_before_anything_is_measured_it_is_ten_minutes() -> None:
    assert AutoInterval(DAY_S).interval_s == FIRST_S


class Training:
    """Train steps of a second each, on a clock that stands still in between."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.auto = AutoInterval(DAY_S, self.clock.monotonic)

    def train(self, steps: int, step_s: float = 1.0, *, is_writing: bool = False) -> Training:
        for _ in range(steps):
            self.auto.train_step_begins()
            self.clock.advance(step_s)
            self.auto.train_step_ends(is_writing=is_writing)
            self.clock.advance(100)  # between two train steps: not theirs
        return self


def test_what_counts_is_the_hold_and_what_train_steps_lose_to_the_writing() -> None:
    training = Training().train(40)
    training.train(20, 1.1, is_writing=True).auto.measured(held_s=1.0, write_s=22.0)
    assert training.auto.interval_s == pytest.approx(optimum_s(1.0 + 20 * 0.1, DAY_S))
    for _ in range(9):
        training.train(20).auto.measured(held_s=1.0, write_s=22.0)
    assert training.auto.interval_s == pytest.approx(optimum_s(1.0, DAY_S)), "no more slowed down"


def test_an_evaluation_that_falls_into_the_writing_is_no_slowdown() -> None:
    training = Training().train(40).train(9, is_writing=True)
    training.train(1, 600.0, is_writing=True).auto.measured(held_s=1.0, write_s=609.0)
    assert training.auto.interval_s <= optimum_s(1.0 + 2.0, DAY_S)


def test_train_steps_that_are_faster_give_nothing_back() -> None:
    training = Training().train(40).train(20, 0.5, is_writing=True)
    training.auto.measured(held_s=2.0, write_s=10.0)
    assert training.auto.interval_s == pytest.approx(optimum_s(2.0, DAY_S))


def test_where_nobody_knows_how_long_train_steps_take_the_hold_counts() -> None:
    training = Training().train(20, is_writing=True)
    training.auto.measured(held_s=2.0, write_s=10.0)
    assert training.auto.interval_s == pytest.approx(optimum_s(2.0, DAY_S))


def test_it_stays_between_a_minute_and_an_hour_and_above_the_writing() -> None:
    cheap, dear, slow = (AutoInterval(DAY_S) for _ in range(3))
    cheap.measured(0.001, 0.01)
    assert cheap.interval_s == SHORTEST_S
    dear.measured(300.0, 1000.0)
    assert dear.interval_s == LONGEST_S
    slow.measured(1.0, 5000.0)
    assert slow.interval_s == 5000.0
    often = AutoInterval(600.0)
    often.measured(0.1, 200.0)
    assert often.interval_s == 200.0


def test_one_save_that_took_long_changes_nothing() -> None:
    auto = AutoInterval(DAY_S)
    auto.measured(30.0, 10.0)  # the first: its memory had to be had
    for _ in range(2):
        auto.measured(1.2, 10.0)
    assert auto.interval_s == pytest.approx(optimum_s(1.2, DAY_S))
    for held_s in (100.0, 1.2, 1.2, 1.2):
        auto.measured(held_s, 10.0)
    assert auto.interval_s == pytest.approx(optimum_s(1.2, DAY_S))


def test_a_disk_that_becomes_slow_is_followed() -> None:
    auto = AutoInterval(DAY_S)
    for _ in range(5):
        auto.measured(1.0, 10.0)
    before_s = auto.interval_s
    for _ in range(5):
        auto.measured(4.0, 40.0)
    assert auto.interval_s == pytest.approx(2 * before_s, rel=0.05)


def test_a_change_counts_from_the_save_before() -> None:
    clock = FakeClock()
    schedule = Schedule(FIRST_S, None, clock.monotonic)
    clock.advance(100)
    assert not schedule.is_due_by_time()
    schedule.change_interval(90.0)
    assert schedule.is_due_by_time()
    schedule.restart()
    clock.advance(89)
    assert not schedule.is_due_by_time()
    clock.advance(1)
    assert schedule.is_due_by_time()


@pytest.mark.parametrize(
    ("variables", "interval_s", "mtbf_s"),
    [
        ({}, None, None),
        ({"HPCFLOW_CHECKPOINT_INTERVAL_S": "60"}, 60, None),
        ({"HPCFLOW_CHECKPOINT_INTERVAL_S": "60", "HPCFLOW_MTBF_S": "7"}, 60, None),
        ({"HPCFLOW_CHECKPOINT_INTERVAL_S": "auto", "HPCFLOW_MTBF_S": "7200"}, None, 7200),
        ({"HPCFLOW_CHECKPOINT_INTERVAL_S": "auto"}, None, DAY_S),
    ],
)
def test_the_environment_says_it(
    variables: dict[str, str], interval_s: float | None, mtbf_s: float | None
) -> None:
    job = job_from(variables)
    assert (job.interval_s, job.mtbf_s) == (interval_s, mtbf_s)


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_training_measures_its_saves_and_says_the_interval(
    folder: RunFolder, world_size: int
) -> None:
    environ: dict[str, Any] = {
        "HPCFLOW_CHECKPOINT_INTERVAL_S": "auto",
        "HPCFLOW_MTBF_S": 3600,
        "HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS": 10,
    }
    training = start(folder, world_size, PATIENT=1, **environ)
    assert training.exit_codes() == [0] * world_size, training.log()
    saved = folder.events("checkpoint")
    assert len(saved) == 4
    assert [each["interval_s"] for each in saved] == [SHORTEST_S] * 4  # it is a small model
