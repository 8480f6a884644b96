"""A cancel of a run without a journal is stored in the home until the journal is back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from hpcflow.launch.cancel import request_cancel
from hpcflow.launch.run import Launched
from hpcflow.model.journal import CancelRequested
from hpcflow.model.state import RunState
from hpcflow.restore.publish import merge, publish_new
from hpcflow.restore.restore import _Restoring
from hpcflow.storage import journal
from hpcflow.storage.journal import Journal
from hpcflow.storage.layout import RunDir
from hpcflow.storage.restoring import is_cancelled as is_kept
from hpcflow.storage.restoring import keep_cancelled, restoring
from tests.restore.mirrored import purge
from tests.restore.owner import Owner


class Killed(BaseException):
    """The process is gone."""


def lose_journal(run_dir: RunDir) -> None:
    run_dir.journal.unlink()


def lose_checkpoints(run_dir: RunDir) -> None:
    shutil.rmtree(run_dir.checkpoints)


LOST: list[Callable[[RunDir], None]] = [purge, lose_journal, lose_checkpoints]
lost = pytest.mark.parametrize("lose", LOST, ids=lambda each: each.__name__)


def cancels(run_dir: RunDir) -> int:
    return sum(isinstance(each, CancelRequested) for each in journal.read(run_dir))


def assert_stays_cancelled(owner: Owner, run_dir: RunDir) -> None:
    for _ in range(3):
        assert owner.tick().sent == {}
        owner.clock.advance(3600)
    assert cancels(run_dir) == 1
    assert run_dir.cancel.exists(), "a job that starts later is told"
    assert not is_kept(owner.settings.home, run_dir.path.name)
    assert owner.seen(run_dir.path.name).run.state is RunState.CANCELLED
    owner.assert_rebuilt_alike(run_dir.path.name)


def request(owner: Owner, run_dir: RunDir) -> None:
    """What `hpcflow cancel` writes; the restore holds the lock that ending the jobs needs."""
    request_cancel(run_dir, settings=owner.settings, clock=owner.clock)


@lost
@pytest.mark.parametrize("moment", ["before it is visible", "once it is visible", "at its end"])
def test_a_cancel_during_a_restore_that_is_killed_is_recorded_at_the_next_look(
    owner: Owner, monkeypatch: pytest.MonkeyPatch, lose: Callable[[RunDir], None], moment: str
) -> None:
    run_dir = owner.mirrored(100)
    lose(run_dir)

    def killed(real: Callable[..., Any]) -> Callable[..., Any]:
        def publish(*args: Any, **options: Any) -> Any:
            if moment == "once it is visible":
                real(*args, **options)
            request(owner, run_dir)
            raise Killed

        return publish

    def killed_at_its_end(*_: object) -> None:
        keep_cancelled(owner.settings.home, run_dir.path.name)
        raise Killed

    if moment == "at its end":
        monkeypatch.setattr(_Restoring, "_look_for_newest", killed_at_its_end)
    else:
        monkeypatch.setattr("hpcflow.restore.restore.merge", killed(merge))
        monkeypatch.setattr("hpcflow.restore.restore.publish_new", killed(publish_new))
    with pytest.raises(Killed):
        owner.restore(run_dir)
    monkeypatch.undo()
    owner.clock.advance(600)
    assert owner.tick().sent == {}
    if moment == "before it is visible":
        owner.restore(run_dir)
    assert_stays_cancelled(owner, run_dir)


@lost
def test_a_cancel_during_a_restore_counts_whatever_the_restore_writes(
    owner: Owner, monkeypatch: pytest.MonkeyPatch, lose: Callable[[RunDir], None]
) -> None:
    """The journal that it has read before the cancel takes the place of the one here."""
    run_dir = owner.mirrored(100)
    lose(run_dir)

    def requested(real: Callable[..., Any]) -> Callable[..., Any]:
        def publish(*args: Any, **options: Any) -> Any:
            request(owner, run_dir)
            return real(*args, **options)

        return publish

    monkeypatch.setattr("hpcflow.restore.restore.merge", requested(merge))
    monkeypatch.setattr("hpcflow.restore.restore.publish_new", requested(publish_new))
    owner.restore(run_dir)
    assert_stays_cancelled(owner, run_dir)


@lost
def test_a_cancel_that_is_stored_is_taken_back_by_a_resume(
    owner: Owner, lose: Callable[[RunDir], None]
) -> None:
    run_dir = owner.mirrored(100)
    lose(run_dir)
    with restoring(owner.settings.home, run_dir.path.name, owner.clock):
        request(owner, run_dir)
    owner.restore(run_dir)
    launched: Launched = owner.resume(run_dir)
    owner.clock.advance(600)
    owner.tick()
    assert not is_kept(owner.settings.home, run_dir.path.name)
    assert owner.alive() == [launched.job_id]
    assert not Journal(run_dir).history.is_cancelled


def test_a_cancel_of_a_run_that_lost_its_journal_begins_no_journal(owner: Owner) -> None:
    run_dir = owner.mirrored(100, end=None)
    owner.tick()
    lose_journal(run_dir)
    owner.cancel(run_dir)
    assert journal.is_lost(run_dir)
    assert run_dir.cancel.exists(), "a job that starts later is told"
    assert owner.alive() == []
    for _ in range(3):
        report = owner.tick()
        assert (report.sent, report.problems) == ({}, {})
        owner.clock.advance(3600)
    assert journal.is_lost(run_dir)
    owner.restore(run_dir)
    assert_stays_cancelled(owner, run_dir)


def test_a_cancel_of_a_run_that_lost_its_journal_takes_no_attempt_from_it(owner: Owner) -> None:
    """The ledger has read the second attempt, and the store does not have it."""
    run_dir = owner.mirrored(100)
    owner.clock.advance(600)
    owner.tick()
    owner.end(owner.alive()[0], "PREEMPTED", checkpoint=100)
    owner.look()
    before = owner.seen(run_dir.path.name).attempts
    assert [each.attempt for each in before] == [1, 2]
    lose_journal(run_dir)
    owner.cancel(run_dir)
    owner.look()
    owner.restore(run_dir)
    assert owner.seen(run_dir.path.name).attempts == before
    assert_stays_cancelled(owner, run_dir)
    assert owner.resume(run_dir).attempt == 3


def test_a_lost_journal_that_is_put_back_gets_the_cancel(owner: Owner) -> None:
    run_dir = owner.trained(100)
    saved = run_dir.journal.read_bytes()
    lose_journal(run_dir)
    owner.cancel(run_dir)
    run_dir.journal.write_bytes(saved)
    assert_stays_cancelled(owner, run_dir)


def test_a_run_without_ledger_and_journal_is_started_again_after_its_cancel(owner: Owner) -> None:
    run_dir = owner.trained(100)
    lose_journal(run_dir)
    shutil.rmtree(run_dir.path / "attempts")
    owner.cancel(run_dir)
    launched = owner.resume(run_dir)
    owner.look()
    assert owner.alive() == [launched.job_id]
    assert not run_dir.cancel.exists()
    assert not Journal(run_dir).history.is_cancelled


def test_a_cancel_that_cannot_be_recorded_is_told_at_each_look(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    keep_cancelled(owner.settings.home, run_dir.path.name)
    run_dir.cancel.mkdir()
    (run_dir.cancel / "file").touch()
    run_dir.submit_lock.unlink()
    run_dir.submit_lock.mkdir()
    for _ in range(2):
        assert any("its cancel is not recorded" in each for each in owner.look())
    assert is_kept(owner.settings.home, run_dir.path.name)
