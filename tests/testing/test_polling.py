"""Waiting does not take the CPU from what is waited for."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from hpcflow.testing.cluster import poll
from hpcflow.testing.cluster.polling import DeadlinePassed


class Clock:
    """Time that passes while something is looked at, and while it is slept."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds

    def look(self, took_s: float, answers: Iterator[bool]) -> bool:
        self.now_s += took_s
        return next(answers)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock.monotonic)
    monkeypatch.setattr(time, "sleep", clock.sleep)
    return clock


@pytest.mark.parametrize(
    ("took_s", "slept_s"), [(0.0, 0.05), (0.01, 0.05), (0.3, 1.2), (0.5, 2.0), (9.0, 2.0)]
)
def test_a_look_that_takes_long_is_taken_less_often(
    clock: Clock, took_s: float, slept_s: float
) -> None:
    answers = iter([False, False, True])
    assert poll(lambda: clock.look(took_s, answers), 60, "it")
    assert clock.slept == pytest.approx([slept_s, slept_s])


def test_an_interval_that_is_asked_for_is_kept(clock: Clock) -> None:
    answers = iter([False, True])
    poll(lambda: clock.look(0.3, answers), 60, "it", every_s=5)
    assert clock.slept == [5]


def test_after_the_deadline_it_says_what_was_waited_for(clock: Clock) -> None:
    with pytest.raises(DeadlinePassed, match="waited 3 s in vain: the job"):
        poll(lambda: clock.look(0.5, iter([False])), 3, "the job")
    assert clock.now_s == pytest.approx(3.0)
