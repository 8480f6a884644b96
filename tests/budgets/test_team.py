"""Several people, and several homes of one, share a folder of budgets."""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcflow.errors import BudgetError, HpcflowError, ScratchError
from tests.budgets.desk import VISION, BudgetDesk
from tests.requeue.standbys import waiting_standby


def desks(folder: Path) -> tuple[BudgetDesk, BudgetDesk]:
    """Ada and grace, on two clusters in memory that have one site file."""
    team = folder / "team"
    team.mkdir(mode=0o770)
    found = []
    for name in ("ada", "grace"):
        (folder / name).mkdir()
        desk = BudgetDesk(folder / name)
        desk.site = desk.site.model_copy(update={"budgets_dir": str(team)})
        desk.settings = replace(desk.settings, user=name)
        found.append(desk)
    ada, grace = found
    grace.clock = grace.slurm._clock = ada.clock
    return ada, grace


@pytest.fixture
def two(tmp_path: Path) -> tuple[BudgetDesk, BudgetDesk]:
    return desks(tmp_path)


def test_what_one_commits_the_other_cannot_have(two: tuple[BudgetDesk, BudgetDesk]) -> None:
    ada, grace = two
    ada.set(hard="5")
    launched = ada.launch()
    with pytest.raises(BudgetError, match="budget project:vision has no room") as caught:
        grace.launch()
    said = str(caught.value)
    assert "budget set project:vision --hard 6.00 --site devcluster;" in said, "not elsewhere"
    assert said.endswith("hpcflow budget show project:vision --site devcluster")
    assert grace.usd() == ("0.00", "3.00")
    grace.look()
    assert grace.usd() == ("0.00", "3.00"), "what is ada's, ada settles"
    ada.train(launched.job_id, minutes=10)
    assert grace.usd() == ("1.00", "0.00")
    grace.launch()
    assert ada.usd() == ("1.00", "3.00")
    assert {line["by"] for line in ada.lines()} == {"ada", "grace"}


def test_a_user_has_a_budget_of_their_own_beside(two: tuple[BudgetDesk, BudgetDesk]) -> None:
    ada, grace = two
    ada.set("user:grace", hard="3")
    ada.launch()
    ada.launch()
    grace.launch()
    with pytest.raises(BudgetError, match="budget user:grace has no room"):
        grace.launch()


def test_a_daemon_warns_of_the_budget_of_that_site(two: tuple[BudgetDesk, BudgetDesk]) -> None:
    ada, _ = two
    ada.set(soft="2")
    launched = ada.launch()
    ada.slurm.end(launched.job_id, "PREEMPTED")
    ada.look()
    ada.clock.advance(60)
    (warning,) = ada.tick().warnings
    assert warning.endswith("hpcflow budget show project:vision --site devcluster")


def test_another_home_of_the_same_user_is_let_be(tmp_path: Path) -> None:
    first, second = desks(tmp_path)
    second.settings = replace(second.settings, user="ada")
    first.set(hard="9")
    first.launch()
    for _ in range(3):
        second.clock.advance(3 * 3600)
        second.look()
    assert second.usd() == ("0.00", "3.00"), "it has no such run, and the other has"


def test_without_the_folder_nothing_is_sent(two: tuple[BudgetDesk, BudgetDesk]) -> None:
    ada, _ = two
    ada.set(hard="100")
    shutil.move(ada.budgets.path, ada.folder / "not-mounted")
    with pytest.raises(ScratchError, match="the limits are not known"):
        ada.launch()
    assert ada.alive() == []
    shutil.move(ada.folder / "not-mounted", ada.budgets.path)
    ada.launch()
    assert ada.usd() == ("0.00", "3.00")


def test_a_bill_that_comes_while_the_folder_is_away_is_settled_once_it_is_back(
    two: tuple[BudgetDesk, BudgetDesk],
) -> None:
    ada, _ = two
    launched = ada.launch()
    ada.slurm.start(launched.job_id)
    ada.look()
    ada.clock.advance(600)
    ada.slurm.end(launched.job_id, "COMPLETED")
    ada.look()
    ada.set(f"run:{launched.run_id}", hard="9")
    shutil.move(ada.budgets.path, ada.folder / "not-mounted")
    ada.clock.advance(60)
    ada.look()
    assert [each.name for each in ada.settings.home.unsettled.iterdir()] == [launched.run_id]
    shutil.move(ada.folder / "not-mounted", ada.budgets.path)
    ada.look()
    assert ada.usd(f"run:{launched.run_id}") == ("1.00", "0.00")
    assert list(ada.settings.home.unsettled.iterdir()) == []


def test_a_run_that_waits_gets_back_what_its_standby_would_have_taken(
    two: tuple[BudgetDesk, BudgetDesk],
) -> None:
    ada, _ = two
    ada.config.write_text(ada.config.read_text() + "retry: {standby: true}\n")
    ada.set(hard="6.50")
    launched, standby = waiting_standby(ada)
    assert ada.usd() == ("0.00", "6.00")
    ada.clock.advance(600)
    ada.slurm.end(standby, "CANCELLED")
    ada.slurm.end(launched.job_id, "PREEMPTED")
    for _ in range(5):
        ada.clock.advance(120)
        ada.tick()
    assert ada.usd() == ("1.00", "3.00"), "the shared folder is looked at while it waits"
    assert len(ada.alive()) == 1


@pytest.mark.parametrize("code", [errno.EACCES, errno.ESTALE, errno.EIO])
def test_a_shared_folder_that_does_not_answer_stops_sending_and_never_looking(
    two: tuple[BudgetDesk, BudgetDesk], monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    ada, _ = two
    ada.set(hard="100")
    first, second = ada.launch(), ada.launch()
    ada.slurm.start(first.job_id)
    ada.look()
    ada.clock.advance(600)
    ada.slurm.end(first.job_id, "COMPLETED")
    ada.slurm.end(second.job_id, "PREEMPTED")
    stat = os.stat

    def fails(path: Any, *args: Any, **options: Any) -> os.stat_result:
        if str(path).startswith(str(ada.budgets.path)):
            raise OSError(code, os.strerror(code), str(path))
        return stat(path, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", fails)
        warnings = ada.look()
        assert sum(str(ada.budgets.path) in each for each in warnings) == 1
        ada.clock.advance(120)
        report = ada.tick()
        assert report.sent == {}
        assert ada.seen(first.run_id).attempts[0].billed_by is not None
        with pytest.raises(HpcflowError):
            ada.launch()
    ada.clock.advance(120)
    ada.tick()
    assert ada.usd()[0] == "2.00"


@pytest.mark.parametrize("run_id", ["a\u0000b", "\ud800", "../../x", "", 7])
@pytest.mark.parametrize("record", ["committed", "settled"])
def test_a_line_that_somebody_planted_says_nothing_and_stops_nobody(
    two: tuple[BudgetDesk, BudgetDesk], run_id: object, record: str
) -> None:
    ada, _ = two
    ada.set(hard="100")
    planted: dict[str, object] = {
        "record": record,
        "at": "2026-01-01T00:00:00Z",
        "by": ada.settings.user,
    }
    planted |= {"run_id": run_id, "attempt": 1, "amounts": {"cost_usd": "90"}}
    with ada.budgets.file(VISION).open("a") as file:
        file.write(json.dumps(planted) + "\n")
        file.write(json.dumps({**planted, "run_id": "x-20260101-aaaaaaaa", "attempt": 0}) + "\n")
    assert ada.look() == []
    assert ada.tick().problems == {}
    assert ada.usd() == ("0.00", "0.00")
    assert ada.budget().skipped == 2


def test_whoever_holds_the_lock_holds_up_no_look_and_no_bill(
    two: tuple[BudgetDesk, BudgetDesk],
) -> None:
    ada, grace = two
    ada.set(hard="100")
    runs = [ada.launch() for _ in range(3)]
    waiting = ada.launch()
    ada.look()
    ada.clock.advance(600)
    for each in runs:
        ada.slurm.end(each.job_id, "COMPLETED")
    ada.slurm.end(waiting.job_id, "PREEMPTED")
    ada.look()
    ada.clock.advance(60)
    with grace.budgets.lock():
        warnings = ada.look()
        assert sum("another process has held" in each for each in warnings) == 1
        bills = [ada.seen(each.run_id).attempts[0].billed_by for each in runs]
        assert bills == ["accounting"] * 3, "they are journaled all the same"
        ada.clock.advance(120)
        report = ada.tick()
        assert report.sent == {}
        assert any("no job is submitted" in each for each in report.warnings)
    assert not any(each.is_final for each in ada.budget().entries.values())
    assert list(ada.tick().sent) == [waiting.run_id]
    assert ada.usd() == ("4.00", "3.00")
    assert sum(each.is_final for each in ada.budget().entries.values()) == 4
    assert list(ada.settings.home.unsettled.iterdir()) == []


def test_whoever_is_killed_over_a_new_file_leaves_none_that_is_closed_to_the_others(
    two: tuple[BudgetDesk, BudgetDesk], monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, grace = two
    ada.budgets.path.chmod(0o2770)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fchmod", killed)
        with pytest.raises(KeyboardInterrupt):
            ada.set(hard="100")
    assert not (ada.budgets.path / "lock").exists()
    grace.set(hard="100")
    modes = [
        file.stat().st_mode & 0o777
        for file in (ada.budgets.path / "lock", ada.budgets.file(VISION))
    ]
    assert modes == [0o660, 0o660]


def test_a_link_that_somebody_planted_is_not_written_through(
    two: tuple[BudgetDesk, BudgetDesk],
) -> None:
    ada, _ = two
    ada.set(hard="100")
    mine = ada.folder / "bashrc"
    mine.write_text("export A=1\n")
    ada.budgets.file(VISION).unlink()
    ada.budgets.file(VISION).symlink_to(mine)
    with pytest.raises(HpcflowError, match="append to"), ada.budgets.lock():
        ada.budgets.append(VISION, ["{}\n"])
    assert mine.read_text() == "export A=1\n"
