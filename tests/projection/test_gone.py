"""A purge takes the files of a run that is under way; a refusal takes them while others look."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hpcflow.ledger.store import Ledger
from hpcflow.model.state import AttemptState, Cause, RunState
from hpcflow.projection import catch_up, catch_up_home, check, rebuild, unlinked
from hpcflow.storage.layout import Home, RunDir
from hpcflow.storage.rundir import discard_run
from hpcflow.storage.runs import list_runs
from tests.ledger import lines as say
from tests.projection.files import everything, grow, new_run


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def running(root: Path) -> RunDir:
    """A run whose job trains."""
    run_dir = new_run(root)
    grow(run_dir.journal, say.intended(1), say.submitted(1))
    grow(run_dir.attempt(1).events, say.started(1, 2), say.progress(5, 3, loss=0.5))
    return run_dir


def ended(ledger: Ledger, run_dir: RunDir) -> tuple[RunState, Cause | None]:
    assert ledger.live_attempts(user="ada") == []
    detail = ledger.run(run_dir.path.name)
    (attempt,) = detail.attempts
    assert (attempt.state, attempt.rule) == (AttemptState.ENDED, "its run directory is gone")
    return detail.run.state, detail.run.cause


def test_a_run_whose_directory_is_purged_is_not_under_way_for_ever(
    ledger: Ledger, home: Home, tmp_path: Path
) -> None:
    run_dir = running(tmp_path)
    catch_up_home(ledger, home, now=say.at(5))
    run_dir.path.rename(tmp_path / "purged")
    catch_up_home(ledger, home, now=say.at(6))
    assert ended(ledger, run_dir) == (RunState.WAITING, Cause.VANISHED)
    (shown,) = ledger.runs()
    assert (shown.train_step, shown.completed_at, shown.gpu_hours) == (5, None, None)


@pytest.mark.parametrize("leaves_mount_point", [True, False])
def test_a_scratch_that_is_not_mounted_has_lost_nothing(
    ledger: Ledger, home: Home, tmp_path: Path, leaves_mount_point: bool
) -> None:
    run_dir = running(tmp_path)
    catch_up_home(ledger, home, now=say.at(5))
    before = everything(ledger, [run_dir])
    scratch = run_dir.path.parents[2]
    scratch.rename(tmp_path / "disk")
    if leaves_mount_point:
        scratch.mkdir()
    assert catch_up_home(ledger, home, now=say.at(6)).purged == []
    assert everything(ledger, [run_dir]) == before
    assert len(ledger.live_attempts(user="ada")) == 1


def test_a_purge_may_take_the_folder_of_the_project_too(
    ledger: Ledger, home: Home, tmp_path: Path
) -> None:
    run_dir = running(tmp_path)
    catch_up_home(ledger, home, now=say.at(5))
    run_dir.path.parent.rename(tmp_path / "purged")
    assert catch_up_home(ledger, home, now=say.at(6)).purged == [run_dir.path.name]


def test_the_last_word_of_a_job_outlives_its_directory(
    ledger: Ledger, home: Home, tmp_path: Path
) -> None:
    run_dir = running(tmp_path)
    grow(run_dir.attempt(1).events, say.exited(0, 8))
    catch_up_home(ledger, home, now=say.at(9))
    run_dir.path.rename(tmp_path / "purged")
    catch_up_home(ledger, home, now=say.at(10))
    assert ended(ledger, run_dir) == (RunState.COMPLETED, Cause.COMPLETED)


def test_a_scratch_that_was_only_away_takes_the_end_back(
    ledger: Ledger, home: Home, tmp_path: Path
) -> None:
    run_dir = running(tmp_path)
    catch_up_home(ledger, home, now=say.at(5))
    before = everything(ledger, [run_dir])
    run_dir.path.rename(tmp_path / "away")
    catch_up_home(ledger, home, now=say.at(60))
    assert everything(ledger, [run_dir]) != before
    (tmp_path / "away").rename(run_dir.path)
    catch_up_home(ledger, home, now=say.at(120))
    assert everything(ledger, [run_dir]) == before
    assert len(ledger.live_attempts(user="ada")) == 1


def test_a_run_at_rest_keeps_its_rows_through_a_purge(
    ledger: Ledger, home: Home, tmp_path: Path
) -> None:
    run_dir = running(tmp_path)
    grow(run_dir.journal, say.ended(1, Cause.FAILED, 9))
    catch_up_home(ledger, home, now=say.at(10))
    before = everything(ledger, [run_dir])
    run_dir.path.rename(tmp_path / "purged")
    catch_up_home(ledger, home, now=say.at(11))
    rebuild(ledger, list_runs(home))
    assert everything(ledger, [run_dir]) == before
    (difference,) = check(ledger, [run_dir])
    assert difference.endswith(": its run directory is gone")


def test_a_run_that_was_refused_while_somebody_looked_is_forgotten(
    ledger: Ledger, home: Home, tmp_path: Path
) -> None:
    run_dir, other = new_run(tmp_path), new_run(tmp_path)
    grow(run_dir.journal, say.intended(1))
    catch_up_home(ledger, home, user="ada", now=say.at(1))
    discard_run(run_dir, home)
    (said,) = unlinked(ledger, home, user="ada")
    assert said.startswith(f"{run_dir.path.name}: only in the ledger: {home.runs} has no record")
    catch_up_home(ledger, home, user="grace", now=say.at(2))
    assert len(ledger.run_ids()) == 2, "it is not hers to forget"
    catch_up_home(ledger, home, user="ada", now=say.at(2))
    assert ledger.run_ids() == {other.path.name}
    assert unlinked(ledger, home, user="ada") == []
    assert ledger.live_attempts(user="ada") == []


def test_what_may_still_be_somewhere_is_not_forgotten(
    ledger: Ledger, home: Home, tmp_path: Path
) -> None:
    sent, there, elsewhere = new_run(tmp_path), new_run(tmp_path), new_run(tmp_path / "far")
    grow(sent.journal, say.intended(1), say.submitted(1))
    catch_up(ledger, [sent, there, elsewhere])
    sent.path.rename(tmp_path / "purged")
    for run_dir in (sent, there):
        shutil.rmtree(home.runs / run_dir.path.name)
    (tmp_path / "far").rename(tmp_path / "on another machine")
    catch_up_home(ledger, home, now=say.at(2))
    assert ledger.run_ids() == {run_dir.path.name for run_dir in (sent, there, elsewhere)}
    assert len(unlinked(ledger, home, user="ada")) == 3
