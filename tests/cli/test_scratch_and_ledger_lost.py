"""The record of a run in the home is enough: scratch and the ledger may both be lost."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from hpcflow.settings import load_settings
from hpcflow.storage.runs import run_dir_of
from tests.cli.desk import Desk
from tests.cli.trained import Trained


@pytest.fixture
def runs(desk: Desk) -> list[str]:
    """A run that trained to its end, one that failed, and one that was cancelled."""
    trained = Trained(desk)
    trained.event("progress", train_step=100, metrics={"loss": 0.5})
    trained.save(100, loss=0.5)
    failed = desk.json("run", desk.config("failed", "exit 3"), "--wait", code=1)["run_id"]
    sleeping = desk.json("run", desk.config("sleeping", "sleep 600"))["run_id"]
    desk.say("cancel", sleeping)
    desk.json("wait", sleeping, code=1)
    desk.say("ls")
    return [trained.run_id, failed, sleeping]


def told(desk: Desk, runs: list[str]) -> dict[str, Any]:
    return {
        "ls": desk.json("ls", "--all"),
        "cost": desk.json("cost", "report"),
        **{run_id: desk.json("history", run_id) for run_id in runs},
    }


def lose(run_id: str) -> None:
    """The whole scratch, and the ledger."""
    home = load_settings().home
    shutil.rmtree(run_dir_of(home, run_id).path.parents[1])
    for path in home.path.glob("ledger.sqlite*"):
        path.unlink()


def test_a_rebuild_says_all_that_was_said_before(desk: Desk, runs: list[str]) -> None:
    before = told(desk, runs)
    assert {run["state"] for run in before["ls"]["runs"]} == {"completed", "failed", "cancelled"}
    assert any(run["train_step"] for run in before["ls"]["runs"])
    lose(runs[0])
    desk.json("ledger", "rebuild")
    assert told(desk, runs) == before


def test_what_was_recorded_since_counts(desk: Desk, runs: list[str]) -> None:
    lose(runs[0])
    desk.say("cancel", runs[1])
    desk.json("ledger", "rebuild")
    kinds = [entry["kind"] for entry in desk.json("history", runs[1])["entries"]]
    assert kinds[-1] == "cancel_requested"


@pytest.mark.parametrize("what", ["no JSON", "not compressed", "of another run", "too large"])
def test_a_damaged_backup_of_rows_leaves_the_journal(
    desk: Desk, runs: list[str], what: str
) -> None:
    home = load_settings().home
    kept, other = (run_dir_of(home, run_id).rows_backup for run_id in runs[:2])
    data = {
        "no JSON": gzip.compress(b"{"),
        "not compressed": b"{}",
        "of another run": other.read_bytes(),
        "too large": gzip.compress(b" " * (17 << 20)),
    }
    kept.write_bytes(data[what])
    lose(runs[0])
    desk.json("ledger", "rebuild")
    (run,) = [each for each in desk.json("ls", "--all")["runs"] if each["run_id"] == runs[0]]
    assert (run["state"], run["train_step"]) == ("completed", None)


def test_they_are_private(runs: list[str]) -> None:
    for run_id in runs:
        path: Path = run_dir_of(load_settings().home, run_id).rows_backup
        assert path.stat().st_mode & 0o777 == 0o600
        assert set(json.loads(gzip.decompress(path.read_bytes()))) == {
            "run", "attempt", "checkpoint", "mirrored", "source",
        }  # fmt: skip
