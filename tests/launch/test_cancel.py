"""``hpcflow cancel`` that is killed, or finds a disk full, at each of its writes.

There is one truth, the journal: at every moment the run is cancelled for all who look at it, or for
nobody; and the same command again completes it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcflow.errors import HpcflowError
from hpcflow.launch.run import Launched
from hpcflow.model.journal import CancelRequested, Decided
from hpcflow.model.state import AttemptState, RunState
from hpcflow.pending.unsent import explain_unsent
from hpcflow.storage import journal
from hpcflow.storage.journal import Journal
from hpcflow.storage.layout import RunDir
from hpcflow.storage.runs import run_dir_of
from hpcflow.testing.fake_scheduler import FakeScheduler, Fault
from tests.requeue.killing import Killer
from tests.requeue.watched import Watched
from tests.storage.full_disk import full_from

#: What makes a fact last, or is the act itself.
_CALLS: list[tuple[Any, str]] = [
    (os, "write"),
    (os, "fsync"),
    (os, "replace"),
    (Path, "touch"),
    (FakeScheduler, "cancel"),
]


@pytest.fixture
def desk(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def queued(desk: Watched) -> RunDir:
    desk.slurm._starts_at_once = False
    launched = desk.launch()
    desk.tick()
    return desk.dir_of(launched)


def running(desk: Watched) -> RunDir:
    launched = desk.launch()
    desk.tick()
    return desk.dir_of(launched)


def ended(desk: Watched) -> RunDir:
    """The daemon would send it again."""
    launched = desk.launch()
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    desk.look()
    return desk.dir_of(launched)


def in_doubt(desk: Watched) -> RunDir:
    desk.slurm.faults.append(Fault.CONTROLLER_DIES)
    with pytest.raises(HpcflowError):
        desk.launch()
    desk.slurm.is_controller_down = False
    return newest(desk)


def with_standby(desk: Watched) -> RunDir:
    desk.config.write_text(desk.config.read_text() + "retry: {standby: true}\n")
    launched = desk.launch()
    desk.tick()
    assert len(desk.slurm.queue()) == 2
    return desk.dir_of(launched)


def newest(desk: Watched) -> RunDir:
    records = sorted(desk.settings.home.runs.iterdir(), key=lambda each: each.lstat().st_mtime_ns)
    return run_dir_of(desk.settings.home, records[-1].name)


STATES = (queued, running, ended, in_doubt, with_standby)
states = pytest.mark.parametrize("begin", STATES, ids=lambda each: each.__name__)


def assert_all_agree(desk: Watched, run_dir: RunDir) -> bool:
    """Whether it is cancelled: for its journal, ``show``, ``why`` and the daemon alike."""
    run_id = run_dir.path.name
    cancelled = Journal(run_dir).history.is_cancelled
    alive = desk.alive()
    sent = desk.tick().sent
    seen = desk.seen(run_id)
    last = seen.attempts[-1] if seen.attempts else None
    why = explain_unsent(seen.run, last, Journal(run_dir).history, desk.clock.now()).words
    if cancelled:
        assert run_id not in sent
        assert seen.run.state is RunState.CANCELLED or desk.alive(), seen.run.state
    else:
        assert seen.run.state is not RunState.CANCELLED
        assert desk.alive(), f"it goes on: {alive}"
    assert cancelled == ("cancelled" in why)
    return cancelled


def assert_finished_by_daemon(desk: Watched, run_dir: RunDir) -> None:
    """Nobody says it again; a standby is given up a round before."""
    for _ in range(2):
        assert desk.tick().sent == {}
        desk.clock.advance(10)
    assert desk.alive() == []
    desk.tick()
    assert desk.seen(run_dir.path.name).run.state is RunState.CANCELLED


def assert_finished_by_repeating(desk: Watched, run_dir: RunDir) -> None:
    desk.cancel(run_dir)
    for _ in range(3):
        assert desk.tick().sent == {}
        desk.clock.advance(400)
    assert [job for job in desk.alive() if run_dir.path.name in job_name(desk, job)] == []
    assert desk.seen(run_dir.path.name).run.state is RunState.CANCELLED
    assert run_dir.cancel.exists(), "a job that starts later is told"


def job_name(desk: Watched, job_id: str) -> str:
    return next(job.job_name for job in desk.slurm.queue() if job.job_id == job_id)


@states
def test_killed_at_any_write_it_is_cancelled_for_all_or_for_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: Callable[[Watched], RunDir]
) -> None:
    killer = Killer(monkeypatch)
    for owner, name in _CALLS:
        killer.watch(owner, name)
    moment, found = 0, set()
    while True:
        moment += 1
        folder = tmp_path / str(moment)
        folder.mkdir()
        desk = Watched(folder)
        run_dir = begin(desk)
        killer.aim_at(moment)
        with killer.armed():
            desk.cancel(run_dir)
        found.add(cancelled := assert_all_agree(desk, run_dir))
        if cancelled:
            assert_finished_by_daemon(desk, run_dir)
        assert_finished_by_repeating(desk, run_dir)
        if not killer.has_struck:
            break
    assert found == {True, False}
    assert moment > 8


@pytest.mark.parametrize(
    ("begin", "code", "is_torn"),
    [
        *((begin, errno.ENOSPC, True) for begin in STATES),
        (running, errno.EDQUOT, False),
        (running, errno.EROFS, False),
    ],
)
def test_full_at_any_write_its_jobs_are_ended_and_what_is_not_recorded_is_said(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    begin: Callable[[Watched], RunDir],
    code: int,
    is_torn: bool,
) -> None:
    number = 0
    while True:
        number += 1
        folder = tmp_path / str(number)
        folder.mkdir()
        desk = Watched(folder)
        run_dir = begin(desk)
        said = None
        with full_from(number, monkeypatch, code=code, is_torn=is_torn) as writes:
            try:
                desk.cancel(run_dir)
            except HpcflowError as error:
                said = error
            assert desk.alive() == [], "whatever the disk says"
        if said is not None and "not recorded as cancelled" in said.message:
            assert not Journal(run_dir).history.is_cancelled
        else:
            assert Journal(run_dir).history.is_cancelled
        if said is not None:
            assert os.strerror(code) in said.message
            again = ("give the same command", f"hpcflow cancel {run_dir.path.name}")
            assert any(each in (said.next_action or "") for each in again)
        desk.cancel(run_dir)
        assert_finished_by_repeating(desk, run_dir)
        if writes[0] < number:
            break
    assert number > 2


def test_a_home_that_takes_no_mark_keeps_nobody_from_cancelling(desk: Watched) -> None:
    run_dir = running(desk)
    mark = desk.settings.home.unread / run_dir.path.name
    mark.unlink(missing_ok=True)
    mark.mkdir(parents=True)
    with pytest.raises(HpcflowError, match="is recorded as cancelled, but hpcflow ls may not"):
        desk.cancel(run_dir)
    assert desk.alive() == []
    assert Journal(run_dir).history.is_cancelled


def test_a_file_without_its_record_ends_the_run_at_the_next_sending(desk: Watched) -> None:
    """An older hpcflow was killed in between: its jobs would leave at once, one after the other."""
    run_dir = ended(desk)
    run_dir.cancel.touch()
    assert desk.tick().sent == {}
    assert desk.seen(run_dir.path.name).run.state is RunState.CANCELLED
    launched = desk.resume(run_dir)
    assert desk.alive() == [launched.job_id]
    assert not run_dir.cancel.exists()


def test_resume_that_is_killed_at_any_write_leaves_it_cancelled_or_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killer = Killer(monkeypatch)
    for owner, name in [*_CALLS, (os, "unlink"), (FakeScheduler, "submit")]:
        killer.watch(owner, name)
    moment = 0
    while True:
        moment += 1
        folder = tmp_path / str(moment)
        folder.mkdir()
        desk = Watched(folder)
        run_dir = ended(desk)
        desk.cancel(run_dir)
        killer.aim_at(moment)
        with killer.armed():
            desk.resume(run_dir)
        for _ in range(2):  # what was withdrawn is sent again after a pause
            desk.clock.advance(400)
            desk.tick()
        wanted = not Journal(run_dir).history.is_cancelled
        assert wanted == (len(desk.alive()) == 1)
        assert not (wanted and run_dir.cancel.exists()), "its jobs would leave at once"
        if not killer.has_struck:
            break
    assert moment > 10


def test_a_record_without_its_file_counts(desk: Watched) -> None:
    """The record alone counts, as after a kill right behind it."""
    run_dir = ended(desk)
    desk.cancel(run_dir)
    run_dir.cancel.unlink()
    assert desk.tick().sent == {}
    launched: Launched = desk.resume(run_dir)
    assert desk.alive() == [launched.job_id]


@states
def test_a_daemon_ends_the_jobs_of_what_is_only_recorded_as_cancelled(
    desk: Watched, begin: Callable[[Watched], RunDir]
) -> None:
    """Killed after the record: as far as jobs go, nothing has happened."""
    run_dir = begin(desk)
    desk.say(run_dir.path, CancelRequested(at=desk.clock.now(), by="ada"))
    assert_finished_by_daemon(desk, run_dir)
    said = [each for each in journal.read(run_dir) if isinstance(each, Decided)]
    assert [each.action for each in said].count("cancel") <= 1
    assert desk.slurm.calls.count("cancel") <= 2, "its job, and its standby's before"
    calls = desk.slurm.calls.count("cancel")
    for _ in range(3):
        desk.clock.advance(600)
        assert desk.tick().decisions == {}
    assert desk.slurm.calls.count("cancel") == calls
    assert run_dir.cancel.exists() == (begin is not ended), "a job that starts later is told"
    assert [desk.resume(run_dir).job_id] == desk.alive(), "it can be taken back"


def test_a_job_that_slurm_is_ending_is_left_its_time_to_save(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = running(desk)
    desk.say(run_dir.path, CancelRequested(at=desk.clock.now(), by="ada"))
    told: list[str] = []

    def slowly(slurm: FakeScheduler, job_ids: Sequence[str]) -> None:
        told.extend(job_ids)
        for job_id in job_ids:
            ending = {"state": AttemptState.COMPLETING, "raw_state": "COMPLETING"}
            slurm._jobs[job_id] = replace(slurm._jobs[job_id], **ending)  # type: ignore[arg-type]

    monkeypatch.setattr(FakeScheduler, "cancel", slowly)
    for _ in range(4):
        desk.tick()
        desk.clock.advance(10)
    assert told == desk.alive()


def test_a_cancel_that_slurm_did_not_hear_is_said_again_in_the_next_round(desk: Watched) -> None:
    run_dir = running(desk)
    desk.say(run_dir.path, CancelRequested(at=desk.clock.now(), by="ada"))
    desk.slurm.is_controller_down = True
    for _ in range(3):
        desk.tick()
        desk.clock.advance(60)
    desk.slurm.is_controller_down = False
    assert len(desk.alive()) == 1
    assert desk.tick().decisions[run_dir.path.name].why == (
        "the run was cancelled, but attempt 1 is not over"
    )
    assert desk.alive() == []
