"""Trials of a sweep count against budgets like any run."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcflow.launch import plan
from hpcflow.model.sweep_records import StopRequested
from hpcflow.storage.sweeps import append
from tests.budgets.desk import BudgetSweep
from tests.requeue.killing import Killer


@pytest.fixture
def desk(tmp_path: Path) -> BudgetSweep:
    return BudgetSweep(tmp_path)


def test_an_array_is_cut_to_what_the_budget_has_room_for(desk: BudgetSweep) -> None:
    desk.set(hard="10")
    desk.begin("submit: array\nparallel: 5\nbudget: {trials: 6}\n")
    report = desk.round()
    assert len(report.sent) == 3
    assert desk.slurm.calls.count("submit") == 1
    (problem,) = report.problems
    assert "budget project:vision has no room: of 10.00 USD" in problem
    assert "hpcflow budget set project:vision --hard 12.00" in problem
    assert desk.usd() == ("0.00", "9.00")
    assert desk.round().problems == [problem.replace("9.00", "9.00")]
    assert desk.progress.halted is None, "it goes on once there is room"
    desk.set(hard="100")
    assert len(desk.round().sent) == 2
    assert len(desk.alive()) == 5


def test_trials_one_by_one_wait_for_room_and_the_sweep_goes_on(desk: BudgetSweep) -> None:
    desk.begin("budget: {trials: 4}\n")
    sweep = f"sweep:{desk.sweep_dir.sweep_id}"
    desk.set(sweep, hard="7")
    report = desk.round()
    assert len(report.sent) == 2
    assert f"budget {sweep} has no room" in report.problems[0]
    for _ in range(8):
        for number in desk.running():
            if (desk.settings.home.runs / desk.trial(number).current_runs[0]).is_dir():
                desk.completes(number, 0.5)
        desk.round()
    assert desk.states() == ["complete"] * 4
    assert float(desk.usd(sweep)[0]) <= 7


def test_an_array_of_which_nothing_was_made_gives_its_share_back(
    desk: BudgetSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.set(hard="15")
    desk.begin("submit: array\nparallel: 5\nbudget: {trials: 5}\n")
    killer = Killer(monkeypatch)
    killer.watch(plan, "create_run")
    killer.aim_at(3)
    with killer.armed():
        desk.round()
    assert desk.usd() == ("0.00", "15.00")
    append(desk.sweep_dir, [StopRequested(at=desk.clock.now(), by="ada", cancel=True)])
    for _ in range(4):
        desk.clock.advance(1200)
        desk.round()
    assert desk.alive() == []
    assert desk.usd() == ("0.00", "0.00"), "nobody sends them any more"


def test_a_lost_array_gives_everything_back(desk: BudgetSweep) -> None:
    from hpcflow.testing.fake_scheduler import Fault

    desk.set(hard="15")
    desk.begin("submit: array\nparallel: 5\nbudget: {trials: 5}\n")
    desk.slurm.faults.append(Fault.UNAVAILABLE)
    assert desk.round().sent == {}
    assert desk.usd() == ("0.00", "0.00")
    desk.clock.advance(600)
    for _ in range(4):
        desk.round()
    assert len(desk.alive()) == 5
    assert desk.usd() == ("0.00", "15.00")
