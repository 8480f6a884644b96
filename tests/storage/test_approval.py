"""What a run executes is approved by a user of this home, or held."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcflow.storage.approval import approve, is_approved, withhold_approval
from hpcflow.storage.layout import Home, RunDir
from hpcflow.storage.rundir import create_run, make_record
from hpcflow.storage.runs import run_dir_of
from tests.storage.runs import make_run


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    return create_run(make_run(tmp_path / "scratch"), Home(tmp_path / "home"))


def test_a_run_that_was_made_here_is_approved(run_dir: RunDir) -> None:
    assert is_approved(run_dir)


def test_a_run_from_a_store_is_not_until_the_user_says_so(tmp_path: Path) -> None:
    home, run = Home(tmp_path / "home"), make_run(tmp_path / "scratch")
    assert make_record(home, run, journal=b"{}\n", is_approved=False)
    run_dir = run_dir_of(home, run.run_id)
    assert not is_approved(run_dir)
    approve(run_dir)
    assert is_approved(run_dir)
    withhold_approval(run_dir)
    assert not is_approved(run_dir)


def test_without_run_json_nothing_is_approved(run_dir: RunDir) -> None:
    run_dir.run_json.unlink()
    assert not is_approved(run_dir)


def test_a_record_that_is_there_is_not_replaced(run_dir: RunDir, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    run = make_run(tmp_path / "scratch").model_copy(update={"run_id": run_dir.path.name})
    before = run_dir.run_json.read_bytes()
    assert not make_record(home, run, is_approved=False)
    assert run_dir.run_json.read_bytes() == before
    assert is_approved(run_dir)
    assert [path.name for path in home.runs.iterdir()] == [run_dir.path.name]
