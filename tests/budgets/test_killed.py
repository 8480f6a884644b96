"""Whoever sends, looks or bills is killed anywhere: a budget never has less committed than there
are jobs, and whoever looks next makes it exactly as much."""

from __future__ import annotations

import random
from decimal import Decimal
from itertools import count
from pathlib import Path

import pytest

from hpcflow.budgets.folder import BudgetFolder
from hpcflow.errors import BudgetError, HpcflowError
from hpcflow.launch import plan
from hpcflow.launch import run as launching
from hpcflow.model.state import AttemptState
from hpcflow.storage import journal
from hpcflow.testing.fake_scheduler import FakeScheduler, Fault
from tests.budgets.desk import BudgetDesk, BudgetSweep
from tests.requeue.killing import Killer


@pytest.fixture
def desk(tmp_path: Path) -> BudgetDesk:
    return BudgetDesk(tmp_path)


@pytest.fixture
def killer(monkeypatch: pytest.MonkeyPatch) -> Killer:
    killer = Killer(monkeypatch)
    for name in ("append", "append_all"):
        killer.watch(journal, name)
    for name in ("submit", "cancel"):
        killer.watch(FakeScheduler, name)
    killer.watch(BudgetFolder, "append")
    killer.watch(plan, "create_run")
    killer.watch(launching, "discard_run")
    return killer


def alive(desk: BudgetDesk | BudgetSweep) -> int:
    return sum(job.state is not AttemptState.ENDED for job in desk.slurm.queue())


def committed(desk: BudgetDesk | BudgetSweep) -> Decimal:
    return desk.budget().used("cost_usd", desk.clock.now()).committed


def recovered(desk: BudgetDesk) -> None:
    """What every look of the next hour makes of it."""
    for _ in range(5):
        desk.clock.advance(800)
        desk.look()


def test_a_launch_that_is_killed_anywhere_leaves_what_its_job_takes(
    desk: BudgetDesk, killer: Killer
) -> None:
    desk.set(hard="1000")
    for moment in count(1):
        killer.aim_at(moment)
        before = alive(desk)
        with killer.armed():
            desk.launch()
        assert committed(desk) >= 3 * alive(desk), f"killed at moment {moment}"
        recovered(desk)
        assert committed(desk) == 3 * alive(desk), f"killed at moment {moment}"
        assert alive(desk) - before in (0, 1)
        if not killer.has_struck:
            break
    assert moment > 8


def test_a_refused_launch_that_is_killed_anywhere_leaves_nothing(
    desk: BudgetDesk, killer: Killer
) -> None:
    desk.set(hard="1000")
    for moment in count(1):
        killer.aim_at(moment)
        desk.slurm.faults.append(Fault.REFUSED)
        with killer.armed(), pytest.raises(HpcflowError):
            desk.launch()
        desk.slurm.faults.clear()
        recovered(desk)
        assert committed(desk) == 0, f"killed at moment {moment}"
        if not killer.has_struck:
            break
    assert moment > 8


def test_a_daemon_that_is_killed_anywhere_neither_passes_nor_loses_a_budget(
    desk: BudgetDesk, killer: Killer
) -> None:
    desk.set(hard="1000")
    launched = desk.launch()
    spent = Decimal(0)
    for moment in count(1):
        desk.tick()
        desk.clock.advance(600)
        desk.end(desk.alive()[0], "PREEMPTED", checkpoint=moment)
        spent += 1
        killer.aim_at(moment)
        with killer.armed():
            desk.tick()
        assert committed(desk) >= 3 * alive(desk), f"killed at moment {moment}"
        for _ in range(4):
            desk.clock.advance(100)
            desk.tick()
        used = desk.budget().used("cost_usd", desk.clock.now())
        assert alive(desk) == 1
        assert used.committed == 3, f"killed at moment {moment}"
        spent = used.spent
        billed = desk.seen(launched.run_id).run.cost_usd
        assert billed is not None
        assert spent == Decimal(billed), f"killed at moment {moment}"
        if not killer.has_struck:
            break
    assert moment > 10


def test_an_array_that_is_killed_anywhere(tmp_path: Path, killer: Killer) -> None:
    for moment in count(1):
        folder = tmp_path / str(moment)
        folder.mkdir()
        desk = BudgetSweep(folder)
        desk.set(hard="7")
        desk.begin("submit: array\nparallel: 5\nbudget: {trials: 5}\n")
        killer.aim_at(moment)
        with killer.armed():
            desk.round()
        assert committed(desk) >= 3 * len(desk.alive()), f"killed at moment {moment}"
        for _ in range(6):
            desk.clock.advance(200)
            desk.round()
        assert len(desk.alive()) == 2, f"killed at moment {moment}"
        assert committed(desk) == 6, f"killed at moment {moment}"
        if not killer.has_struck:
            break
    assert moment > 10


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 20))]
)
def test_whatever_happens_no_hard_budget_is_passed(
    desk: BudgetDesk, killer: Killer, seed: int
) -> None:
    """Launches, ends, restarts of Slurm's own left out, lost answers, and kills, in any order."""
    dice = random.Random(seed)
    limit = Decimal(12)
    desk.set(hard=str(limit))
    refused = 0
    for _ in range(120):
        act = dice.random()
        killer.aim_at(dice.randrange(1, 25) if dice.random() < 0.3 else 10_000)
        desk.slurm.is_controller_down = False
        if dice.random() < 0.2:
            desk.slurm.faults.append(dice.choice(list(Fault)))
        with killer.armed():
            try:
                if act < 0.5:
                    desk.launch()
                elif act < 0.8 and (jobs := desk.slurm.queue()):
                    running = [each for each in jobs if each.state is AttemptState.RUNNING]
                    if running:
                        raw = dice.choice(["COMPLETED", "PREEMPTED", "FAILED"])
                        desk.slurm.end(dice.choice(running).job_id, raw, exit_code=0)
                else:
                    desk.tick()
            except BudgetError:
                refused += 1
            except HpcflowError:
                pass
        desk.slurm.faults.clear()
        desk.clock.advance(dice.choice([1, 30, 100]))
        desk.slurm.is_controller_down = False
        for job in desk.slurm.queue():
            if job.started_at and (desk.clock.now() - job.started_at).total_seconds() > 1600:
                desk.slurm.end(job.job_id, "TIMEOUT")
        used = desk.budget().used("cost_usd", desk.clock.now())
        assert used.taken <= limit
        assert used.committed >= 3 * alive(desk) or alive(desk) == 0
    assert refused
