"""A sweep whose rounds have a clock that is years off for a while."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from hpcflow.errors import InputError
from hpcflow.sweeps.state import SweepState
from hpcflow.sweeps.view import look, sweep_view
from hpcflow.testing.clock import FakeClock
from hpcflow.testing.fake_scheduler import FakeScheduler
from tests.sweeps.searched import Searched

TEN_YEARS_S = 10 * 365 * 24 * 3600.0


@pytest.fixture
def desk(tmp_path: Path) -> Searched:
    desk = Searched(tmp_path)
    desk.config.write_text(desk.config.read_text() + "retry: {failures: 0}\n")
    return desk


@pytest.mark.parametrize(("submit", "rounds"), [("single", 3), ("array", 1)])
@pytest.mark.parametrize("jump_s", [-TEN_YEARS_S, 3600, TEN_YEARS_S], ids=["back", "hour", "years"])
@pytest.mark.parametrize("then", ["none is open", "one has failed", "one is not sent"])
def test_a_clock_that_is_off_for_some_rounds_ends_nothing_of_a_sweep(
    desk: Searched, then: str, rounds: int, jump_s: float, submit: str
) -> None:
    """What only the time says, and cannot be taken back, must be so in a round an hour later."""
    wrong = FakeClock(desk.clock.now())
    desk.slurm = FakeScheduler(wrong, cluster_name="devcluster", max_jobs=1)
    desk.begin(f"submit: {submit}\nparallel: 1\nretries: 1\nbudget: {{deadline: 30m}}")
    if then == "one is not sent":
        desk.slurm.max_jobs = 0
    desk.round()
    if then == "none is open":
        desk.completes(0, 0.5)
    elif then == "one has failed":
        desk.slurm.end(desk.job(0), "FAILED", exit_code=1)
    desk.clock.advance(jump_s)
    for _ in range(rounds):
        desk.round()
        desk.clock.advance(10)
    desk.clock.advance(-jump_s)
    desk.slurm.max_jobs = 1
    for _ in range(4):
        report = desk.round()
        desk.clock.advance(60)
        wrong.advance(60)
    assert report.state is SweepState.RUNNING
    assert len(desk.alive()) == 1
    assert [trial.told.outcome for trial in desk.progress.trials if trial.told is not None] == (
        ["complete"] if then == "none is open" else []
    )


def test_a_round_that_was_ahead_is_no_sign_that_a_deadline_has_passed(desk: Searched) -> None:
    desk.begin("budget: {deadline: 10m}\nparallel: 1")
    desk.round()
    desk.completes(0, 0.5)
    desk.clock.advance(TEN_YEARS_S)
    desk.round()
    desk.clock.advance(600 - TEN_YEARS_S)
    assert desk.round().state is SweepState.RUNNING
    desk.clock.advance(1800)
    assert desk.round().state is SweepState.RUNNING
    desk.clock.advance(1800)
    assert desk.round().state is SweepState.OVER


def test_with_a_later_deadline_an_earlier_one_that_has_passed_is_forgotten(desk: Searched) -> None:
    desk.begin("budget: {deadline: 10m}\nparallel: 1")
    desk.round()
    desk.completes(0, 0.5)
    desk.clock.advance(600)
    desk.round()
    desk.clock.advance(3600)
    assert desk.round().state is SweepState.OVER
    with pytest.raises(InputError, match="nothing left to do: its deadline has passed"):
        desk.resume_sweep("budget.deadline=1h")
    desk.resume_sweep("budget.deadline=30d")
    desk.clock.advance(TEN_YEARS_S)
    assert desk.round().state is SweepState.RUNNING
    desk.clock.advance(-TEN_YEARS_S)
    assert desk.round().asked == [1]


def test_while_no_trial_ends_the_time_when_it_may_be_over_stays(desk: Searched) -> None:
    desk.begin("parallel: 1\nbudget: {trials: 9}")
    desk.round()
    desk.clock.advance(600)
    desk.completes(0, 1.0)
    desk.round()
    sweep, progress = look(desk.sweep_dir)
    seen = sweep_view(sweep, progress, desk.clock.now()).over_at
    desk.clock.advance(300)
    assert sweep_view(sweep, progress, desk.clock.now()).over_at == seen


def test_a_clock_that_was_centuries_off_leaves_the_sweep_to_be_seen(desk: Searched) -> None:
    desk.begin("parallel: 1\nbudget: {trials: 9}")
    desk.round()
    desk.completes(0, 1.0)
    desk.round()
    sweep, progress = look(desk.sweep_dir)
    seen = sweep_view(sweep, progress, desk.clock.now()).over_at
    far = datetime(9000, 1, 1, tzinfo=timezone.utc)
    assert sweep_view(sweep, progress, far).over_at == seen
