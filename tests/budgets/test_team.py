"""Several people, and several homes of one, share a folder of budgets."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from hpcflow.errors import BudgetError, ScratchError
from tests.budgets.desk import BudgetDesk


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
    with pytest.raises(BudgetError, match="budget project:vision has no room"):
        grace.launch()
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
    with pytest.raises(ScratchError, match="nobody knows what may be spent"):
        ada.launch()
    assert ada.alive() == []
    shutil.move(ada.folder / "not-mounted", ada.budgets.path)
    ada.launch()
    assert ada.usd() == ("0.00", "3.00")
