"""A restart beside a request, another sender or a kill: one attempt comes of it, no second job."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from hpcflow.launch.restarts import MAX_RESTARTS
from hpcflow.ledger.store import open_ledger
from hpcflow.model.journal import BeginLifted, Ended, Held, Intended, Submitted
from hpcflow.model.state import Cause, RunState
from hpcflow.reconcile.attempts import reconcile_attempts
from hpcflow.storage import journal
from hpcflow.storage.journal import Journal
from hpcflow.storage.locks import submit_lock
from hpcflow.testing.fake_cluster import REQUEUE_WAIT
from tests.requeue.restarts import (
    causes,
    claim,
    jobs,
    requeued_too_late,
    restarted,
    sluid_of,
    tell_restarts,
)
from tests.requeue.watched import Watched


@pytest.fixture
def desk(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_a_count_beyond_all_reason_is_not_believed(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = desk.launch()
    desk.look()
    tell_restarts(desk, monkeypatch, 99_999)
    desk.look()
    assert Journal(desk.dir_of(launched)).history.last.number == 1 + MAX_RESTARTS


def test_the_later_request_wins_a_job_ended_by_scancel_and_requeued_by_hand_goes_on(
    desk: Watched,
) -> None:
    launched, _ = desk.launch(), desk.launch()
    desk.slurm.cancel([launched.job_id])
    desk.tick()
    desk.slurm.requeue(launched.job_id)
    desk.tick()
    seen = desk.seen(launched.run_id)
    assert causes(seen) == [Cause.CANCELLED, None]
    assert seen.run.state is RunState.QUEUED


def test_an_end_that_accounting_has_missed_is_told_by_the_job_itself(desk: Watched) -> None:
    """slurmdbd was down at that moment, and calls the last life running for ever."""
    launched = restarted(desk, "NODE_FAIL")
    claim(desk, launched, 2, launched.job_id, {"event": "exited", "exit_code": 0})
    desk.slurm.forget(launched.job_id)
    assert desk.tick().sent == {}
    seen = desk.seen(launched.run_id)
    assert causes(seen) == [Cause.NODE_FAIL, Cause.COMPLETED]
    assert desk.tick().sent == {}


def test_a_life_whose_record_is_lost_does_not_get_that_of_another(desk: Watched) -> None:
    """Where lives know their SLUID; else records can only be counted."""
    launched = desk.launch()
    lost = []
    for number, raw_state in enumerate(("NODE_FAIL", "REQUEUED", "PREEMPTED"), 1):
        *_, record = desk.slurm.accounting([launched.job_id], desk.clock.now() - timedelta(days=1))
        lost += [record.record_id] if raw_state == "REQUEUED" else []
        sluid = sluid_of(record.record_id)
        claim(desk, launched, number, launched.job_id, sluid=sluid)
        desk.clock.advance(600)
        desk.slurm.requeue(launched.job_id, raw_state)
        desk.slurm.start(launched.job_id)
    (number_of_lost,) = lost
    desk.slurm.lose_record(number_of_lost)
    desk.tick()
    expected = [Cause.NODE_FAIL, Cause.REQUEUED, Cause.PREEMPTED, None]
    assert causes(desk.seen(launched.run_id)) == expected


def test_a_completed_run_stays_completed_whoever_requeues_its_job(desk: Watched) -> None:
    """Seen or not: the job finds nothing to do, and leaves."""
    launched, unseen = desk.launch(), desk.launch()
    for each in (launched, unseen):
        claim(desk, each, 1, each.job_id, {"event": "exited", "exit_code": 0})
    desk.end(launched.job_id, "COMPLETED", exit_code=0)
    desk.tick()
    desk.end(unseen.job_id, "COMPLETED", exit_code=0)
    for each in (launched, unseen):
        desk.slurm.requeue(each.job_id)
    for _ in range(3):
        report = desk.tick()
        assert (report.sent, report.lifted) == ({}, {})
        desk.clock.advance(REQUEUE_WAIT.total_seconds())
    for each in (launched, unseen):
        desk.end(each.job_id, "FAILED", exit_code=1)
        seen = desk.seen(each.run_id)
        assert (seen.run.state, causes(seen)) == (RunState.COMPLETED, [Cause.COMPLETED])
    assert desk.tick().sent == {}


def test_a_job_that_is_requeued_after_its_end_was_seen_is_the_next_attempt(desk: Watched) -> None:
    launched = desk.launch()
    desk.end(launched.job_id, "FAILED", exit_code=1)
    assert desk.tick().decisions[launched.run_id].rule == "backoff"
    desk.slurm.requeue(launched.job_id)
    desk.clock.advance(60)
    assert desk.tick().sent == {}
    assert desk.tick().lifted == {launched.run_id: launched.job_id}
    seen = desk.seen(launched.run_id)
    assert causes(seen) == [Cause.FAILED, None]
    assert jobs(seen) == [launched.job_id] * 2
    desk.assert_rebuilt_alike(launched.run_id)


def test_whoever_resumes_a_run_whose_job_was_requeued_gets_that_job(desk: Watched) -> None:
    launched = desk.launch()
    desk.end(launched.job_id, "FAILED", exit_code=1)
    desk.look()
    desk.slurm.requeue(launched.job_id)
    again = desk.resume(desk.dir_of(launched))
    assert (again.attempt, again.job_id) == (2, launched.job_id)
    assert desk.alive() == [launched.job_id]


def test_a_job_that_is_requeued_after_the_next_attempt_was_sent_is_not_taken_for_it(
    desk: Watched,
) -> None:
    launched, following = requeued_too_late(desk)
    for _ in range(3):
        desk.tick()
        desk.clock.advance(60)
    seen = desk.seen(launched.run_id)
    assert jobs(seen) == [launched.job_id, following]
    assert causes(seen) == [Cause.PREEMPTED, None]


def test_a_restart_in_the_moment_of_sending_has_the_attempt_and_the_other_leaves(
    desk: Watched,
) -> None:
    launched, following = requeued_too_late(desk)
    desk.slurm.start(launched.job_id)
    claim(desk, launched, 2, launched.job_id)  # it saw no script, and then there was one
    desk.end(following, "FAILED", exit_code=1)
    for _ in range(3):
        assert desk.tick().sent == {}
        desk.clock.advance(600)
    seen = desk.seen(launched.run_id)
    assert (jobs(seen), seen.run.state) == ([launched.job_id] * 2, RunState.RUNNING)
    desk.slurm.end(launched.job_id, "COMPLETED", exit_code=0)
    assert desk.seen(launched.run_id).run.state is RunState.COMPLETED


def test_an_attempt_that_a_restarted_job_has_executed_is_not_sent(desk: Watched) -> None:
    """It was requeued, and ended, while no daemon lived; that is told before anything is sent."""
    launched = desk.launch()
    desk.end(launched.job_id, "FAILED", exit_code=1)
    desk.look()
    desk.slurm.requeue(launched.job_id)
    desk.slurm.start(launched.job_id)
    claim(desk, launched, 2, launched.job_id, {"event": "exited", "exit_code": 0})
    desk.slurm.end(launched.job_id, "COMPLETED", exit_code=0)
    desk.clock.advance(3600)
    desk.tick()
    desk.tick()
    seen = desk.seen(launched.run_id)
    assert (seen.run.state, causes(seen)) == (
        RunState.COMPLETED,
        [Cause.FAILED, Cause.COMPLETED],
    )
    assert desk.alive() == []


def test_cancel_ends_a_restarted_job(desk: Watched) -> None:
    launched = desk.launch()
    desk.tick()
    desk.slurm.requeue(launched.job_id)
    desk.tick()
    assert desk.cancel(desk.dir_of(launched)) == launched.job_id
    desk.tick()
    seen = desk.seen(launched.run_id)
    assert (seen.run.state, causes(seen)) == (
        RunState.CANCELLED,
        [Cause.REQUEUED, Cause.CANCELLED],
    )


@pytest.mark.parametrize("lines", [0, 1, 2, 3])
def test_killed_after_any_line_of_the_journal_the_next_look_goes_on(
    desk: Watched, lines: int
) -> None:
    launched = desk.launch()
    run_dir = desk.dir_of(launched)
    desk.tick()
    before = run_dir.journal.read_bytes()
    desk.slurm.requeue(launched.job_id)
    desk.look()
    written = run_dir.journal.read_bytes()[len(before) :].splitlines(keepends=True)
    run_dir.journal.write_bytes(before + b"".join(written[1 : 1 + lines]))
    desk.settings.home.ledger.unlink()
    for _ in range(3):
        desk.tick()
        desk.clock.advance(1)
    records = journal.read(run_dir)
    assert len([each for each in records if isinstance(each, BeginLifted)]) == 1
    assert {each.attempt for each in records if isinstance(each, Ended)} == {1}
    assert [e.restarts for e in records if isinstance(e, Intended) and e.attempt == 2] == [1]
    assert [each.job_id for each in records if isinstance(each, Submitted)][-1] == launched.job_id
    assert desk.alive() == [launched.job_id]
    assert len(desk.seen(launched.run_id).attempts) == 2


def test_a_restart_for_which_there_is_a_script_already_is_not_adopted(desk: Watched) -> None:
    """Whoever was about to send it was killed; the restarted job sees the script, and leaves."""
    launched = desk.launch()
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    desk.look()
    attempt = desk.dir_of(launched).attempt(2)
    attempt.path.mkdir(mode=0o700)
    attempt.script.write_text("#!/bin/bash\n")
    desk.slurm.requeue(launched.job_id)
    assert desk.tick().sent == {}
    assert len(desk.seen(launched.run_id).attempts) == 1
    desk.clock.advance(REQUEUE_WAIT.total_seconds())
    desk.slurm.end(launched.job_id, "FAILED", exit_code=1)
    assert launched.run_id in desk.tick().sent


def test_a_stopped_run_whose_job_somebody_requeues_goes_on(desk: Watched) -> None:
    """Seen while any job of that site is watched."""
    launched, other = desk.launch(), desk.launch()
    claim(desk, launched, 1, launched.job_id)
    desk.say(launched.run_dir, Held(at=desk.clock.now(), by="ada"))
    desk.end(launched.job_id, "FAILED", exit_code=1)
    desk.tick()
    desk.slurm.requeue(launched.job_id)
    report = desk.tick()
    assert (report.sent, report.lifted) == ({}, {})
    assert jobs(desk.seen(launched.run_id)) == [launched.job_id] * 2
    assert desk.tick().lifted == {launched.run_id: launched.job_id}
    assert desk.seen(other.run_id).run.state is RunState.RUNNING


def test_of_two_who_look_at_one_moment_one_writes_it_down(desk: Watched) -> None:
    launched = desk.launch()
    desk.tick()
    with open_ledger(desk.settings.ledger_url) as ledger:
        stale = ledger.live_attempts(user=desk.settings.user)
        desk.slurm.requeue(launched.job_id)
        desk.look()
        before = desk.dir_of(launched).journal.read_bytes()
        context = desk.context(ledger)
        reconcile_attempts(context, stale, queue=lambda _: desk.slurm.queue(), warnings=[])
    assert desk.dir_of(launched).journal.read_bytes() == before


def test_while_somebody_sends_the_run_a_restart_is_left_for_the_next_look(desk: Watched) -> None:
    launched = desk.launch()
    run_dir = desk.dir_of(launched)
    desk.tick()
    desk.slurm.requeue(launched.job_id)
    before = run_dir.journal.read_bytes()
    with submit_lock(run_dir, wait_s=0):
        assert desk.tick().warnings == []
        assert run_dir.journal.read_bytes() == before
    assert desk.tick().lifted
