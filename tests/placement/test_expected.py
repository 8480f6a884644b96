"""How long an interrupted run takes: the formula agrees with runs that chance interrupts."""

from __future__ import annotations

import random

import pytest

from hpcflow.model.spec import RunSpec
from hpcflow.placement.choice import (
    RESTART_S,
    UNKNOWN_INTERVAL_S,
    expected_s,
    interval_of,
)

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


def simulated_s(work_s: float, mtbf_s: float, interval_s: float, chance: random.Random) -> float:
    """One run, interrupted by chance: seconds on the nodes."""
    passed = done = 0.0
    restarts = 0.0
    while done < work_s:
        piece = min(interval_s, work_s - done)
        lives_s = chance.expovariate(1 / mtbf_s)
        if lives_s < restarts + piece:
            passed, restarts = passed + lives_s, RESTART_S
        else:
            passed, done, restarts = passed + restarts + piece, done + piece, 0.0
    return passed


@pytest.mark.parametrize("interval_s", [600.0, HOUR_S, DAY_S / 2], ids=["10min", "1h", "never"])
def test_it_is_the_mean_of_many_runs(interval_s: float) -> None:
    work_s, mtbf_s = DAY_S / 2, DAY_S / 4
    chance = random.Random(7)
    runs = [simulated_s(work_s, mtbf_s, interval_s, chance) for _ in range(4000)]

    formula = expected_s(work_s, mtbf_s, interval_s)

    assert formula == pytest.approx(sum(runs) / len(runs), rel=0.06)


def test_who_saves_loses_little_and_who_does_not_loses_much() -> None:
    assert expected_s(DAY_S, DAY_S, 600) < 1.01 * DAY_S
    assert expected_s(DAY_S, DAY_S, None) > 1.7 * DAY_S


def test_no_number_is_too_large_for_it() -> None:
    assert expected_s(1000 * DAY_S, 60, None) > 1e9
    assert expected_s(0, 60, None) == 0


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, 600),
        ({"checkpoint": {"interval": "1h"}}, 3600),
        ({"checkpoint": {"interval": "auto"}}, UNKNOWN_INTERVAL_S),
        ({"checkpoint": {"interval": "never", "every_train_steps": 10}}, UNKNOWN_INTERVAL_S),
        ({"checkpoint": {"interval": "never"}}, None),
        ({"retry": {"preemptions": 0}}, None),
    ],
    ids=["default", "said", "auto", "by train steps", "never", "never sent again"],
)
def test_what_a_config_says_of_saving(config: dict[str, object], expected: float | None) -> None:
    spec = RunSpec.model_validate({"name": "digits", "command": ["python", "train.py"], **config})

    assert interval_of(spec) == expected
