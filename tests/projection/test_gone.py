"""A purge takes the files of a run that is under way; a refusal takes them while others look."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from hpcflow.ledger.derive import derive_attempt, derive_run
from hpcflow.ledger.fold import AttemptFold, RunFold
from hpcflow.ledger.rows import Change
from hpcflow.ledger.store import Ledger, open_ledger
from hpcflow.model.journal import Changed
from hpcflow.model.state import Cause, RunState
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


def the_end(ledger: Ledger, run_dir: RunDir) -> tuple[RunState, Cause | None, int | None]:
    assert ledger.live_attempts(user="ada") == []
    run = ledger.run(run_dir.path.name).run
    return run.state, run.cause, run.train_step


def test_a_purge_ends_no_attempt_and_the_journal_has_its_end(
    ledger: Ledger, home: Home, tmp_path: Path
) -> None:
    run_dir = running(tmp_path)
    catch_up_home(ledger, home, now=say.at(5))
    before = everything(ledger, [run_dir])
    run_dir.path.rename(tmp_path / "purged")
    assert catch_up_home(ledger, home, now=say.at(6)).purged == [run_dir.path.name]
    assert everything(ledger, [run_dir]) == before
    grow(run_dir.journal, say.ended(1, Cause.PREEMPTED, 9))
    catch_up_home(ledger, home, now=say.at(10))
    assert the_end(ledger, run_dir) == (RunState.WAITING, Cause.PREEMPTED, 5)


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


def test_a_directory_that_comes_back_is_read_on(ledger: Ledger, home: Home, tmp_path: Path) -> None:
    run_dir = running(tmp_path)
    catch_up_home(ledger, home, now=say.at(5))
    run_dir.path.rename(tmp_path / "away")
    catch_up_home(ledger, home, now=say.at(60))
    (tmp_path / "away").rename(run_dir.path)
    grow(run_dir.attempt(1).events, say.progress(7, 61, loss=0.4), say.exited(0, 62))
    grow(run_dir.journal, say.ended(1, Cause.COMPLETED, 62))
    catch_up_home(ledger, home, now=say.at(63))
    assert the_end(ledger, run_dir) == (RunState.COMPLETED, Cause.COMPLETED, 7)
    assert check(ledger, [run_dir]) == []


def test_a_program_that_creates_its_events_again_hides_no_end(
    ledger: Ledger, home: Home, tmp_path: Path
) -> None:
    run_dir = running(tmp_path)
    catch_up_home(ledger, home, now=say.at(5))
    run_dir.path.rename(tmp_path / "purged")
    grow(run_dir.attempt(1).events, say.progress(6, 6))
    assert catch_up_home(ledger, home, now=say.at(7)).problems == []
    grow(run_dir.journal, say.ended(1, Cause.PREEMPTED, 9))
    catch_up_home(ledger, home, now=say.at(10))
    assert the_end(ledger, run_dir) == (RunState.WAITING, Cause.PREEMPTED, 5)


def test_a_run_of_another_cluster_with_a_scratch_of_its_own_is_not_purged(
    ledger: Ledger, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both clusters have a folder of this name."""
    run_dir = new_run(tmp_path)
    grow(run_dir.journal, say.intended(1, cluster="east"), say.submitted(1))
    catch_up_home(ledger, home, now=say.at(5))
    run_dir.path.rename(tmp_path / "east")
    config = tmp_path / "slurm.conf"
    config.write_text("ClusterName=west\n")
    monkeypatch.setenv("SLURM_CONF", str(config))
    assert catch_up_home(ledger, home, now=say.at(6)).purged == []
    config.write_text("ClusterName=east\n")
    assert catch_up_home(ledger, home, now=say.at(7)).purged == [run_dir.path.name]


def test_a_journal_that_got_shorter_takes_nothing_out_of_the_ledger(
    ledger: Ledger, home: Home, tmp_path: Path
) -> None:
    """The home is back from a backup, from before the run was cancelled and then purged."""
    run_dir = running(tmp_path)
    grow(run_dir.journal, say.ended(1, Cause.PREEMPTED, 9))
    backup = run_dir.journal.read_bytes()
    grow(run_dir.journal, say.cancel_requested(10))
    catch_up_home(ledger, home, now=say.at(11))
    run_dir.journal.write_bytes(backup)
    run_dir.path.rename(tmp_path / "purged")
    done = catch_up_home(ledger, home, now=say.at(12))
    (problem,) = done.problems
    assert "is shorter than what was read of it before" in problem
    assert done.unread == {run_dir.path.name}
    assert ledger.run(run_dir.path.name).run.state is RunState.CANCELLED


def test_an_older_copy_of_the_ledger_does_not_replace_a_fuller_backup(
    ledger: Ledger, home: Home, tmp_path: Path
) -> None:
    run_dir = running(tmp_path)
    catch_up_home(ledger, home, now=say.at(5))
    grow(run_dir.attempt(1).events, say.checkpoint(5, 4))
    with open_ledger(f"sqlite:///{tmp_path / 'full.sqlite'}") as full:
        catch_up_home(full, home, now=say.at(6))
        run_dir.path.rename(tmp_path / "purged")
        catch_up_home(full, home, now=say.at(7))
    backup = run_dir.rows_backup.read_bytes()
    catch_up_home(ledger, home, now=say.at(8))
    assert run_dir.rows_backup.read_bytes() == backup


@pytest.mark.parametrize("is_ended", [False, True])
def test_without_scratch_a_new_ledger_is_like_the_lost_one(
    ledger: Ledger, home: Home, tmp_path: Path, is_ended: bool
) -> None:
    run_dir = running(tmp_path)
    grow(run_dir.attempt(1).events, say.checkpoint(5, 4))
    catch_up_home(ledger, home, now=say.at(5))
    run_dir.path.rename(tmp_path / "purged")
    catch_up_home(ledger, home, now=say.at(6))
    if is_ended:
        grow(run_dir.journal, say.ended(1, Cause.PREEMPTED, 9))
        catch_up_home(ledger, home, now=say.at(10))
    with open_ledger(f"sqlite:///{tmp_path / 'new.sqlite'}") as new:
        rebuild(new, list_runs(home))
        assert everything(new, [run_dir]) == everything(ledger, [run_dir])


def end_as_of_old(ledger: Ledger, run_dir: RunDir) -> None:
    """What an older hpcflow did when it found the directory gone: only the ledger had this."""
    (known,) = ledger.known([run_dir.path.name]).values()
    old = "its run directory is gone"
    (row,) = known.attempts
    ended = {"cause": "vanished", **row.journal.get("ended", {}), "rule": old}
    fold = AttemptFold({**row.journal, "ended": ended}, row.report)
    attempt = derive_attempt(row.run_id, 1, fold)
    run = replace(known.run)
    derive_run(run, RunFold(row.run_id, journal=known.run.journal), [attempt])
    change = Change(run, [attempt], [], [], bytes_before=run.bytes_read)
    assert ledger.apply([change]) == []
    assert ledger.run(row.run_id).attempts[0].rule == old


@pytest.mark.parametrize("is_back", [False, True])
@pytest.mark.parametrize("is_changed", [False, True])
@pytest.mark.parametrize("was_running", [False, True])
def test_an_end_that_only_an_older_ledger_has_is_replaced(
    ledger: Ledger, home: Home, tmp_path: Path, was_running: bool, is_changed: bool, is_back: bool
) -> None:
    run_dir = running(tmp_path)
    if is_changed:
        grow(run_dir.journal, say.text(Changed(at=say.at(3), by="ada", overrides=[])))
    if not was_running:
        grow(run_dir.journal, say.ended(1, Cause.PREEMPTED, 4))
    catch_up_home(ledger, home, now=say.at(5))
    before = everything(ledger, [run_dir])
    run_dir.path.rename(tmp_path / "purged")
    end_as_of_old(ledger, run_dir)
    if is_back:
        (tmp_path / "purged").rename(run_dir.path)
    catch_up_home(ledger, home, now=say.at(10**5))
    assert everything(ledger, [run_dir]) == before
    assert ledger.ended_by_older() == set()


def test_a_rebuild_hides_no_end_of_a_purged_run(ledger: Ledger, home: Home, tmp_path: Path) -> None:
    run_dir = running(tmp_path)
    catch_up_home(ledger, home, now=say.at(5))
    run_dir.path.rename(tmp_path / "purged")
    grow(run_dir.journal, say.ended(1, Cause.PREEMPTED, 9))
    rebuild(ledger, list_runs(home))
    catch_up_home(ledger, home, now=say.at(10))
    assert the_end(ledger, run_dir) == (RunState.WAITING, Cause.PREEMPTED, 5)


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
