"""``hpcflow home upgrade``, typed by a person."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcflow.settings import load_settings
from hpcflow.storage.layout import Home
from tests.cli.desk import Desk
from tests.cli.trained import Trained
from tests.storage.older import make_older


@pytest.fixture
def older(desk: Desk) -> tuple[Home, Trained]:
    """A run of an older hpcflow."""
    trained, home = Trained(desk), load_settings().home
    desk.say("ls")
    make_older(home, trained.dir)
    return home, trained


def test_the_runs_of_an_older_home_are_moved(desk: Desk, older: tuple[Home, Trained]) -> None:
    home, trained = older
    said = desk.json("home", "upgrade")
    assert (said["home"], said["runs"]) == (str(home.path), 1)
    (run,) = desk.json("ls", "--all")["runs"]
    assert (run["run_id"], run["state"]) == (trained.run_id, "completed")
    assert desk.json("ledger", "check")["differences"] == []
    assert "0 runs moved" in desk.say("home", "upgrade")


@pytest.mark.parametrize(
    "line", ["ls", "show digits", "history digits", "scratch", "daemon --once", "ledger rebuild"]
)
def test_each_command_that_meets_one_names_the_command(
    desk: Desk, older: tuple[Home, Trained], line: str
) -> None:
    home, _ = older
    said = desk.error(*line.split(), code=1)
    assert f"an older hpcflow made {home.path}" in said
    assert "hpcflow home upgrade" in said


def test_no_run_is_begun_in_one(desk: Desk, older: tuple[Home, Trained], tmp_path: Path) -> None:
    home, _ = older
    before = sorted(path.name for path in home.runs.iterdir())
    assert "hpcflow home upgrade" in desk.error("run", desk.config("next", "true"), code=1)
    assert sorted(path.name for path in home.runs.iterdir()) == before
    assert not any(path.name.startswith("next-") for path in tmp_path.rglob("*"))
