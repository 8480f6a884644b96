"""A run whose journal is lost may be completed: only its user starts it again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcflow.cli.output import next_words
from hpcflow.errors import StorageError
from hpcflow.launch.cancel import request_cancel
from hpcflow.ledger.store import open_ledger
from hpcflow.model.journal import CancelRequested, Decided, Held
from hpcflow.model.state import RunState
from hpcflow.projection import catch_up, check
from hpcflow.storage import journal
from hpcflow.storage.layout import RunDir
from tests.requeue.watched import Watched

_WEEK_S = 7 * 24 * 3600


@pytest.fixture
def desk(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def lose_ledger(desk: Watched) -> None:
    for path in desk.settings.home.path.glob("ledger.sqlite*"):
        path.unlink()


def lose_journal(_: Watched, run_dir: RunDir) -> None:
    run_dir.journal.unlink()


def lose_journal_and_attempts(_: Watched, run_dir: RunDir) -> None:
    run_dir.journal.unlink()
    shutil.rmtree(run_dir.path / "attempts")


def lose_all_but_run_json(_: Watched, run_dir: RunDir) -> None:
    shutil.rmtree(run_dir.path)
    run_dir.journal.unlink()


def completed(desk: Watched) -> RunDir:
    launched = desk.launch()
    desk.end(launched.job_id, "COMPLETED")
    desk.look()
    desk.clock.advance(_WEEK_S)
    return desk.dir_of(launched)


def let_daemon_work(desk: Watched) -> dict[str, str]:
    """Many rounds, a day in all; what went wrong in the last one."""
    problems: dict[str, str] = {}
    for _ in range(4):
        report = desk.tick()
        assert report.sent == {}
        problems = report.problems
        desk.clock.advance(6 * 3600)
    return problems


@pytest.mark.parametrize("lose", [lose_journal, lose_journal_and_attempts, lose_all_but_run_json])
@pytest.mark.parametrize("has_ledger", [False, True], ids=["no ledger", "ledger"])
def test_a_completed_run_is_not_submitted_again(
    desk: Watched, lose: Callable[[Watched, RunDir], None], has_ledger: bool
) -> None:
    run_dir = completed(desk)
    lose(desk, run_dir)
    if not has_ledger:
        lose_ledger(desk)
    problems = let_daemon_work(desk)
    assert desk.alive() == []
    assert journal.is_lost(run_dir)  # no record makes it look like a run that has one
    if has_ledger:
        assert desk.seen(run_dir.path.name).run.state is RunState.COMPLETED
    elif lose is not lose_all_but_run_json:  # else the run directory is told to be gone
        words = problems[run_dir.path.name]
        assert "journal.jsonl is missing" in words
        assert f"hpcflow restore {run_dir.path.name}" in words
        assert f"hpcflow resume {run_dir.path.name}" in words


def test_ls_says_that_it_is_stopped_and_the_ledger_agrees_with_the_files(desk: Watched) -> None:
    run_dir = completed(desk)
    lose_journal_and_attempts(desk, run_dir)
    lose_ledger(desk)
    desk.look()
    run = desk.seen(run_dir.path.name).run
    assert (run.state, next_words(run)) == (RunState.FAILED, "stop: lost_journal")
    desk.assert_rebuilt_alike(run_dir.path.name)
    with open_ledger(desk.settings.ledger_url) as ledger:
        assert check(ledger, [run_dir]) == []


def never_sent(desk: Watched) -> RunDir:
    """hpcflow was killed between creating the run and its first intent."""
    launched = desk.launch()
    run_dir = desk.dir_of(launched)
    desk.slurm.cancel([launched.job_id])
    desk.slurm.forget(launched.job_id)
    shutil.rmtree(run_dir.path / "attempts")
    run_dir.journal.write_bytes(b"")
    lose_ledger(desk)
    desk.clock.advance(3600)
    return run_dir


def test_a_run_that_never_had_a_job_is_submitted(desk: Watched) -> None:
    run_dir = never_sent(desk)
    assert desk.tick().sent.keys() == {run_dir.path.name}


def test_the_ledger_notices_that_an_empty_journal_is_lost_and_is_back(desk: Watched) -> None:
    run_dir = never_sent(desk)
    for words in ("", "stop: lost_journal", ""):
        if not words:
            run_dir.journal.write_bytes(b"")
        else:
            run_dir.journal.unlink()
        with open_ledger(desk.settings.ledger_url) as ledger:
            catch_up(ledger, [run_dir])
        assert next_words(desk.seen(run_dir.path.name).run) == words
        desk.assert_rebuilt_alike(run_dir.path.name)
        (desk.folder / "rebuilt.sqlite").unlink()


def test_its_user_starts_it_again(desk: Watched) -> None:
    run_dir = completed(desk)
    lose_journal_and_attempts(desk, run_dir)
    lose_ledger(desk)
    let_daemon_work(desk)
    assert desk.resume(run_dir).attempt == 1
    desk.look()
    run = desk.seen(run_dir.path.name).run
    assert (run.state, run.next_action) == (RunState.RUNNING, None)
    desk.end(desk.alive()[0], "PREEMPTED", checkpoint=5)
    desk.tick()
    desk.clock.advance(60)
    desk.tick()
    assert len(desk.alive()) == 1


def test_a_journal_that_is_put_back_counts(desk: Watched) -> None:
    run_dir = completed(desk)
    saved = run_dir.journal.read_bytes()
    run_dir.journal.unlink()
    lose_ledger(desk)
    let_daemon_work(desk)
    run_dir.journal.write_bytes(saved)
    let_daemon_work(desk)
    assert desk.seen(run_dir.path.name).run.state is RunState.COMPLETED


def test_no_record_but_a_resume_begins_a_journal(desk: Watched) -> None:
    run_dir = completed(desk)
    run_dir.journal.unlink()
    now = desk.clock.now()
    decided = Decided(at=now, after=0, action="wait", rule="x", why="x")
    for record in (Held(at=now, by="ada"), decided, CancelRequested(at=now, by="ada")):
        with pytest.raises(StorageError, match=r"journal\.jsonl is missing"):
            journal.append(run_dir, record)
        with pytest.raises(StorageError, match=r"journal\.jsonl is missing"):
            journal.append_all(run_dir, [record])
    assert journal.is_lost(run_dir)
    request_cancel(run_dir, settings=desk.settings, clock=desk.clock)
    assert journal.is_lost(run_dir)
