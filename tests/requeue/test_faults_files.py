"""A scratch that is full, events that are torn or garbage, run directories that are deleted.

Whatever the files do, a daemon leaves one job of a run, goes on with the others, and says it once.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hpcflow.errors import StorageError
from hpcflow.launch.run import Launched
from hpcflow.model.journal import CancelRequested, Ended, Intended
from hpcflow.model.state import AttemptState, Cause, RunState
from hpcflow.requeue.policy import Action
from hpcflow.storage import journal
from tests.cluster_fixture import small_disk
from tests.requeue.watched import Watched
from tests.storage.full_disk import full_from


@pytest.fixture
def desk(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


@pytest.fixture
def small_scratch(tmp_path: Path) -> Iterator[Path]:
    """A scratch of one megabyte, which needs root to be made."""
    scratch = tmp_path / "scratch"
    scratch.mkdir(mode=0o700)
    with small_disk(scratch, "1m"):
        yield scratch


def names(desk: Watched) -> list[str]:
    """The names of all jobs that were ever made."""
    return [job.job_name for job in desk.slurm._records()]


def preempted(desk: Watched, count: int = 1) -> list[Launched]:
    runs = [desk.launch() for _ in range(count)]
    for launched in runs:
        desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    return runs


def test_full_at_any_write_nothing_is_sent_twice_and_all_goes_on_when_there_is_space(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, is_full = 0, True
    while is_full:
        number += 1
        (launched,) = preempted(desk)
        with full_from(number, monkeypatch) as writes:
            for _ in range(3):
                report = desk.tick()
                assert len(desk.alive()) <= 1
            is_full = writes[0] >= number
        if is_full:
            said = [*report.warnings, *report.problems.values()]
            assert any("No space left on device" in text for text in said), said
        for _ in range(3):
            desk.clock.advance(100)
            desk.tick()
        (job_id,) = desk.alive()
        desk.end(job_id, "COMPLETED", exit_code=0)
        assert desk.seen(launched.run_id).run.state is RunState.COMPLETED
    assert number > 5
    assert len(set(names(desk))) == len(names(desk))
    assert len(names(desk)) == 2 * number, "each run was sent twice in its life"


def test_a_scratch_that_is_really_full_delays_and_loses_nothing(
    desk: Watched, small_scratch: Path
) -> None:
    """With one page after the other left, as tmpfs gives them out."""
    for pages in range(8):
        (launched,) = preempted(desk)
        ballast = small_scratch / "ballast"
        with ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"x" * 4096)
        os.truncate(ballast, max(0, ballast.stat().st_size // 4096 - pages) * 4096)
        reports = [desk.tick() for _ in range(3)]
        if not desk.alive():
            assert any(
                "No space left on device" in text
                for report in reports
                for text in (*report.warnings, *report.problems.values())
            )
        ballast.unlink()
        for _ in range(3):
            desk.clock.advance(100)
            desk.tick()
        (job_id,) = desk.alive()
        desk.end(job_id, "COMPLETED", exit_code=0)
        assert desk.seen(launched.run_id).run.state is RunState.COMPLETED
        shutil.rmtree(launched.run_dir)
    assert len(set(names(desk))) == len(names(desk)) == 16


def test_where_the_claim_cannot_be_sealed_the_other_runs_go_on(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An intent whose job never was, and no byte is left to say so."""
    lost, other = sorted(preempted(desk, 2), key=lambda each: each.run_id)
    from hpcflow.testing.fake_scheduler import FakeScheduler

    submit = FakeScheduler.submit

    class Killed(BaseException):
        pass

    def killed(*_: Any) -> Any:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(FakeScheduler, "submit", killed)
        with pytest.raises(Killed):
            desk.tick()
    assert FakeScheduler.submit is submit
    (doubted,) = (
        each for each in (lost, other) if b'"attempt":2' in desk.dir_of(each).journal.read_bytes()
    )
    attempt = desk.dir_of(doubted).attempt(2)
    fsync = os.fsync

    def full(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink() == attempt.claim:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        report = desk.tick()
    assert len(desk.alive()) == 1, "the other run waits for this one"
    assert any("cannot be written: No space left on device" in text for text in report.warnings)
    desk.clock.advance(100)
    for _ in range(2):
        desk.tick()
        desk.clock.advance(100)
    assert len(desk.alive()) == 2


GARBAGE = {
    "cut in a line": b'{"at": "2026-03-01T00:00:00.000Z", "event": "progr',
    "binary": bytes(range(256)) * 64 + b"\n",
    "NULs": b"\0" * 100_000,
    "NULs in lines": b"\0\n" * 1000,
    "a huge line": b'{"at": "' + b"9" * (3 << 20) + b'"}\n',
    "a huge line without an end": b"x" * (3 << 20),
    "a huge notice": b'{"event": "notice", "signal": "' + b"T" * (3 << 20) + b'"}\n',
    "no number": b'{"at": "2026-03-01T00:00:00Z", "event": "notice", "signal": 1e999}\n',
    "nested": b'{"notice": ' + b"[" * 100_000 + b"\n",
    "mad times": b'{"at": "99999-01-01", "event": "exited", "exit_code": "0"}\n'
    b'{"at": "0001-01-01T00:00:00+14:00", "event": "started"}\n'
    b'{"at": "9999-12-31T23:59:59-14:00", "event": "exited", "exit_code": 0}\n',
    "carriage returns": b"\r\n\r\r\n" * 100,
}


@pytest.mark.parametrize("raw_state", ["PREEMPTED", "FAILED", "FORGOTTEN"])
def test_whatever_stands_in_their_events_runs_come_to_their_end(
    desk: Watched, raw_state: str
) -> None:
    runs = {kind: desk.launch() for kind in GARBAGE}
    desk.tick()
    for kind, launched in runs.items():
        with desk.dir_of(launched).attempt(1).events.open("ab") as file:
            file.write(GARBAGE[kind])
    desk.tick()
    for launched in runs.values():
        if raw_state == "FORGOTTEN":
            desk.slurm.end(launched.job_id, "NODE_FAIL")
            desk.slurm.forget(launched.job_id)
        else:
            desk.slurm.end(launched.job_id, raw_state, exit_code=1)
    for _ in range(4):
        report = desk.tick()
        assert report.problems == {}
        desk.clock.advance(60)
    assert len(desk.alive()) == len(runs)
    for job_id in desk.alive():
        desk.end(job_id, "COMPLETED", exit_code=0)
    states = {kind: desk.seen(launched.run_id).run.state for kind, launched in runs.items()}
    assert set(states.values()) == {RunState.COMPLETED}, states


@pytest.mark.parametrize("how", ["shorter", "empty", "gone", "a folder", "closed"])
def test_events_that_are_rewritten_or_taken_away_change_no_end(desk: Watched, how: str) -> None:
    launched = desk.launch()
    events = desk.dir_of(launched).attempt(1).events
    line = {"at": "2026-03-01T00:00:00.000Z", "event": "progress", "train_step": 7}
    events.write_text("".join(json.dumps(line) + "\n" for _ in range(100)))
    desk.tick()
    if how in ("shorter", "empty"):
        events.write_text(json.dumps(line)[:-20] if how == "shorter" else "")
    else:
        events.unlink()
    if how == "a folder":
        events.mkdir()
    elif how == "closed":
        events.symlink_to(events)  # whoever opens it gets an error, also root
    desk.tick()
    desk.slurm.end(launched.job_id, "FAILED", exit_code=1)
    for _ in range(3):
        desk.tick()
        desk.clock.advance(60)
    (job_id,) = desk.alive()
    desk.end(job_id, "COMPLETED", exit_code=0)
    seen = desk.seen(launched.run_id)
    assert [attempt.cause for attempt in seen.attempts] == [Cause.FAILED, Cause.COMPLETED]


@pytest.mark.parametrize("name", ["claim", "events", "log", "notice", "journal", "run_json"])
def test_a_pipe_in_the_place_of_a_file_hangs_nobody(desk: Watched, name: str) -> None:
    launched, other = desk.launch(), desk.launch()
    desk.tick()
    run_dir = desk.dir_of(launched)
    path = getattr(run_dir if name in ("journal", "run_json") else run_dir.attempt(1), name)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    for each in (launched, other):
        desk.end(each.job_id, "FAILED", exit_code=1)
    for _ in range(2):
        desk.tick()
        desk.clock.advance(60)
    assert other.run_id in desk.tick().sent or len(desk.seen(other.run_id).attempts) == 2
    if name not in ("journal", "run_json"):
        assert [each.cause for each in desk.seen(launched.run_id).attempts] == [Cause.FAILED, None]


def revive(run_dir: Path) -> None:
    """What a program that trains on in a deleted run directory may make of it."""
    (run_dir / "checkpoints" / "000000200").mkdir(parents=True)


@pytest.mark.parametrize("is_revived", [False, True])
def test_a_run_directory_that_is_deleted_stops_its_run_once(
    desk: Watched, is_revived: bool
) -> None:
    lost, kept = desk.launch(), desk.launch()
    desk.tick()
    desk.end(lost.job_id, "PREEMPTED", checkpoint=100)
    shutil.rmtree(lost.run_dir)
    if is_revived:
        revive(lost.run_dir)
    desk.end(kept.job_id, "PREEMPTED", checkpoint=100)
    report = desk.tick()
    assert list(report.sent) == [kept.run_id]
    assert (report.warnings, report.problems) == ([], {})
    assert report.decisions[lost.run_id].rule == "purged"
    for _ in range(3):
        desk.clock.advance(600)
        report = desk.tick()
        assert (report.looked_at, report.warnings, report.problems) == (0, [], {})
    assert desk.seen(lost.run_id).run.cause is Cause.PREEMPTED


@pytest.mark.parametrize("is_revived", [False, True])
def test_a_run_directory_that_is_deleted_under_its_job_does_not_end_the_job(
    desk: Watched, is_revived: bool
) -> None:
    lost = desk.launch()
    desk.tick()
    shutil.rmtree(lost.run_dir)
    if is_revived:
        revive(lost.run_dir)
    for _ in range(3):
        report = desk.tick()
        (said,) = report.warnings
        assert f"{lost.run_id}: its run directory is gone" in said
        assert (report.looked_at, report.problems) == (0, {})
        desk.clock.advance(600)
    assert ("cancel" in desk.slurm.calls) is False, "its job is its owner's to end"
    assert desk.alive() == [lost.job_id]


def test_a_cancel_ends_the_job_of_a_run_whose_directory_is_deleted(desk: Watched) -> None:
    """hpcflow cancel was killed between its record and its scancel."""
    lost = desk.launch()
    desk.tick()
    shutil.rmtree(lost.run_dir)
    desk.say(lost.run_dir, CancelRequested(at=desk.clock.now(), by="ada"))
    desk.tick()
    assert desk.alive() == []
    desk.tick()
    assert desk.seen(lost.run_id).run.state is RunState.CANCELLED


def test_an_open_intent_of_a_run_whose_directory_is_deleted_is_settled(desk: Watched) -> None:
    """hpcflow was killed before sbatch."""
    lost = desk.launch()
    desk.end(lost.job_id, "PREEMPTED", checkpoint=100)
    desk.look()
    name = f"{lost.run_id}:2"
    intent = Intended(at=desk.clock.now(), attempt=2, job_name=name, scheduler="slurm")
    desk.say(lost.run_dir, intent)
    shutil.rmtree(lost.run_dir)
    desk.clock.advance(3600)
    desk.tick()
    desk.clock.advance(60)
    decision = desk.tick().decisions[lost.run_id]
    assert (decision.action, decision.rule) == (Action.STOP, "purged")
    assert [each.state for each in desk.seen(lost.run_id).attempts] == [
        AttemptState.ENDED,
        AttemptState.WITHDRAWN,
    ]


def test_a_run_directory_that_is_deleted_while_slurm_is_asked_takes_no_record_with_it(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = desk.launch()
    desk.tick()
    desk.end(lost.job_id, "PREEMPTED", checkpoint=100)
    queue = desk.slurm.queue

    def deleted(*job_ids: Any) -> Any:
        shutil.rmtree(lost.run_dir)
        revive(lost.run_dir)
        return queue(*job_ids)

    with monkeypatch.context() as patch:
        patch.setattr(desk.slurm, "queue", deleted)
        assert desk.tick().decisions[lost.run_id].rule == "purged"
    ends = [each for each in journal.read(desk.dir_of(lost)) if isinstance(each, Ended)]
    assert [each.cause for each in ends] == [Cause.PREEMPTED]
    assert not desk.dir_of(lost).params_json.exists()
    report = desk.tick()
    assert (report.looked_at, report.warnings, report.problems) == (0, [], {})


@pytest.mark.parametrize("what", [".", "run.json"])
def test_records_that_have_changed_places_send_neither_run(desk: Watched, what: str) -> None:
    runs = preempted(desk, 2)
    one, other = (desk.settings.home.runs / each.run_id / what for each in runs)
    between = desk.folder / "between"
    one.resolve().rename(between)
    other.resolve().rename(one.resolve())
    between.rename(other.resolve())
    for launched in runs:
        with pytest.raises(StorageError, match="belongs to another run") as caught:
            desk.resume(desk.dir_of(launched))
        assert f"hpcflow restore {launched.run_id}" in str(caught.value.next_action)
    for _ in range(3):
        assert desk.tick().sent == {}
        desk.clock.advance(600)
    assert len(names(desk)) == 2
