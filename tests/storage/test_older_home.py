"""The runs of an older home are moved without a loss, wherever that is killed."""

from __future__ import annotations

import os
import shutil
from itertools import count
from pathlib import Path

import pytest

from hpcflow.errors import StorageError
from hpcflow.model.journal import CancelRequested, Ended, Held
from hpcflow.model.state import Cause
from hpcflow.storage import journal
from hpcflow.storage.approval import is_approved
from hpcflow.storage.layout import Home, RunDir
from hpcflow.storage.older_home import upgrade_home
from hpcflow.storage.rundir import create_run, read_run
from hpcflow.storage.runs import list_runs, run_dir_of
from hpcflow.testing.clock import FakeClock
from tests.requeue.killing import Killer
from tests.storage.older import make_older
from tests.storage.runs import CREATED_AT, make_run

ENDED = Ended(at=CREATED_AT, attempt=1, cause=Cause.COMPLETED, raw_state="COMPLETED", rule="r")
CANCELLED = CancelRequested(at=CREATED_AT, by="ada")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def older_run(home: Home, scratch: Path) -> RunDir:
    return older_runs(home, scratch, None)[0]


def older_runs(home: Home, scratch: Path, *copies: bytes | None) -> list[RunDir]:
    """One run for each copy of a journal in the home."""
    run_dirs = [create_run(make_run(scratch), home) for _ in copies]
    for run_dir in run_dirs:
        journal.append_all(run_dir, [CANCELLED, ENDED])
    return [
        make_older(home, run_dir, copy=copy) for run_dir, copy in zip(run_dirs, copies, strict=True)
    ]


def upgrade(home: Home) -> int:
    return upgrade_home(home, user="ada", clock=FakeClock(CREATED_AT)).runs


def found(home: Home, run_id: str) -> RunDir:
    return run_dir_of(home, run_id)


def test_a_run_is_as_before(home: Home, tmp_path: Path) -> None:
    before = older_run(home, tmp_path / "scratch")
    before.completed.unlink()
    made_ns = (home.runs / before.path.name).lstat().st_mtime_ns
    with pytest.raises(StorageError, match="hpcflow home upgrade"):
        list_runs(home)

    assert upgrade(home) == 1

    (run_dir,) = list_runs(home)
    assert run_dir.path == before.path
    assert journal.read(run_dir) == [CANCELLED, ENDED]
    assert read_run(run_dir).run_id == before.path.name
    assert is_approved(run_dir)
    assert run_dir.completed.exists(), "jobs that were submitted since look there"
    assert home.scratch_link(before.path.name).lstat().st_mtime_ns == made_ns
    assert sorted(path.name for path in home.path.iterdir()) == ["runs", "upgrade.lock"]
    assert before.journal.exists(), "a job that was submitted before looks there"
    assert upgrade(home) == 0


def test_wherever_it_is_killed_it_is_completed(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killer = Killer(monkeypatch)
    for name in ("mkdir", "write", "fsync", "symlink", "utime", "unlink", "rename", "rmdir"):
        killer.watch(os, name)
    for moment in count(1):
        scratch = tmp_path / f"scratch{moment}"
        ids = [each.path.name for each in older_runs(home, scratch, b"", None)]
        killer.aim_at(moment)
        with killer.armed():
            upgrade(home)
        was_killed = killer.has_struck
        upgrade(home)
        for run_id in ids:
            run_dir = found(home, run_id)
            assert journal.read(run_dir) == [CANCELLED, ENDED], f"killed at {moment}"
            assert is_approved(run_dir)
        assert sorted(path.name for path in home.path.iterdir()) == ["runs", "upgrade.lock"]
        assert sorted(path.name for path in home.runs.iterdir()) == sorted(ids)
        shutil.rmtree(home.path)
        if not was_killed:
            break
    assert moment > 30


def test_a_purged_run_keeps_what_the_home_had_of_it(home: Home, tmp_path: Path) -> None:
    lines = CANCELLED.to_line().encode()
    before, lost = older_runs(home, tmp_path / "scratch", lines, None)
    for each in (before, lost):
        shutil.rmtree(each.path)
    before.path.parent.mkdir(exist_ok=True)
    assert upgrade(home) == 2
    assert journal.read(found(home, before.path.name)) == [CANCELLED]
    assert journal.is_lost(found(home, lost.path.name))
    assert not before.path.exists()


def test_a_run_that_was_changed_on_scratch_is_not_approved(home: Home, tmp_path: Path) -> None:
    before = older_run(home, tmp_path / "scratch")
    before.run_json.write_bytes(before.run_json.read_bytes().replace(b"train.py", b"other.py"))
    upgrade(home)
    run_dir = found(home, before.path.name)
    assert "other.py" in (read_run(run_dir).spec.command or [])
    assert not is_approved(run_dir)
    *before_it, hold = journal.read(run_dir)
    assert before_it == [CANCELLED, ENDED]
    assert isinstance(hold, Held) and "was changed" in (hold.why or "")


def test_a_run_that_cannot_be_read_is_named_and_stops_no_other(home: Home, tmp_path: Path) -> None:
    before, other = older_runs(home, tmp_path / "scratch", None, None)
    before.journal.unlink()
    before.journal.symlink_to("/etc/hostname")
    done = upgrade_home(home, user="ada", clock=FakeClock(CREATED_AT))
    assert (done.runs, done.incomplete) == (2, [before.path.name])
    assert "journal.jsonl" in done.problems[0]
    assert journal.read(found(home, other.path.name)) == [CANCELLED, ENDED]
    before.journal.unlink()
    before.journal.write_text(CANCELLED.to_line())
    assert upgrade_home(home, user="ada", clock=FakeClock(CREATED_AT)).incomplete == []
    assert journal.read(found(home, before.path.name)) == [CANCELLED]


@pytest.mark.parametrize("is_mounted_here", [True, False])
def test_two_clusters_with_scratch_at_the_same_path(
    home: Home, tmp_path: Path, is_mounted_here: bool
) -> None:
    """On the first, the folder of all projects is there, but not this run."""
    (before,) = older_runs(home, tmp_path / "scratch", CANCELLED.to_line().encode())
    away = before.path.rename(tmp_path / "away")
    if not is_mounted_here:
        shutil.rmtree(tmp_path / "scratch")
    assert upgrade(home) == 1
    run_dir = found(home, before.path.name)
    assert journal.read(run_dir) == [CANCELLED]
    journal.append(run_dir, CANCELLED)  # a person, before the other cluster is upgraded

    before.path.parent.mkdir(parents=True, exist_ok=True)
    away.rename(before.path)
    done = upgrade_home(home, user="ada", clock=FakeClock(CREATED_AT))
    assert done.incomplete == []
    *all_of_both, hold = journal.read(run_dir)
    assert all_of_both == [CANCELLED, CANCELLED, CANCELLED, ENDED]
    assert isinstance(hold, Held) and "differs" in (hold.why or "")
    assert read_run(run_dir).run_id == run_dir.path.name


def test_a_run_whose_scratch_is_not_mounted_is_completed_where_it_is(
    home: Home, tmp_path: Path
) -> None:
    """Two clusters may share a home, each with its own scratch."""
    lines = CANCELLED.to_line().encode()
    runs = [create_run(make_run(tmp_path / name), home) for name in ("here", "there")]
    for each in runs:
        journal.append_all(each, [CANCELLED, ENDED])
    here, there = (make_older(home, each, copy=lines) for each in runs)
    away = (tmp_path / "there").rename(tmp_path / "away")
    assert upgrade(home) == 2
    assert is_approved(found(home, here.path.name))
    assert not is_approved(found(home, there.path.name))
    assert journal.read(found(home, there.path.name)) == [CANCELLED]
    assert upgrade(home) == 0

    away.rename(tmp_path / "there")
    upgrade(home)
    run_dir = found(home, there.path.name)
    assert is_approved(run_dir)
    assert journal.read(run_dir) == [CANCELLED, ENDED]
    assert sorted(path.name for path in run_dir.run_json.parent.iterdir()) == [
        "journal.jsonl",
        "run.json",
        "scratch",
    ]
