"""A standby waits in the queue for the end of the running attempt: the run goes on by itself."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from docs.generator.decisions import EXAMPLES, NOW
from hpcflow.cli.output import next_words
from hpcflow.history import RunHistory
from hpcflow.launch.submission import seal
from hpcflow.ledger.store import open_ledger
from hpcflow.model.journal import Held, JournalRecord, Released, Standby, Submitted
from hpcflow.model.state import AttemptState, Cause, RunState
from hpcflow.requeue.history import history
from hpcflow.requeue.policy import Action, after_preemption
from hpcflow.runtime.reading import read_file
from hpcflow.storage import journal
from hpcflow.storage.journal import Journal
from hpcflow.storage.locks import submit_lock
from hpcflow.testing.fake_scheduler import FakeScheduler
from tests.requeue.standbys import begins, job, told, waiting_standby, with_standby
from tests.requeue.watched import Watched


@pytest.fixture
def desk(tmp_path: Path) -> Watched:
    desk = Watched(tmp_path)
    desk.config.write_text(desk.config.read_text() + "retry: {standby: true}\n")
    return desk


def test_a_run_has_one_standby_while_it_runs_and_it_is_no_attempt(desk: Watched) -> None:
    launched, standby = with_standby(desk)
    script = desk.dir_of(launched).attempt(2).script.read_text()
    assert f"#SBATCH --dependency=afterany:{launched.job_id}\n" in script
    assert (job(desk, standby).raw_state, job(desk, standby).reason) == ("PENDING", "Dependency")
    before = desk.dir_of(launched).journal.read_bytes()
    for _ in range(3):
        report = desk.tick()
        assert (report.standbys, report.sent, report.problems) == ({}, {}, {})
        desk.clock.advance(60)
    assert desk.dir_of(launched).journal.read_bytes() == before
    seen = desk.seen(launched.run_id)
    assert (seen.run.state, seen.run.number_of_attempts) == (RunState.RUNNING, 1)
    assert next_words(seen.run) == f"standby: job {standby} waits"
    assert seen.run.job_id == launched.job_id
    desk.assert_rebuilt_alike(launched.run_id)


def test_nobody_has_one_who_did_not_ask_for_it(desk: Watched) -> None:
    desk.config.write_text(desk.config.read_text().replace("standby: true", "standby: false"))
    desk.launch()
    desk.slurm.calls.clear()
    assert desk.tick().standbys == {}
    assert desk.slurm.calls == ["queue"]


def test_an_attempt_that_waits_itself_has_none(desk: Watched) -> None:
    desk.slurm = FakeScheduler(desk.clock, cluster_name="devcluster", starts_at_once=False)
    launched = desk.launch()
    assert desk.tick().standbys == {}
    desk.slurm.start(launched.job_id)
    assert list(desk.tick().standbys) == [launched.run_id]


def test_after_a_preemption_the_standby_is_the_next_attempt_and_has_one_itself(
    desk: Watched,
) -> None:
    launched, standby = waiting_standby(desk)
    desk.clock.advance(600)
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    report = desk.tick()
    assert report.sent == {launched.run_id: standby}
    assert report.decisions[launched.run_id].rule == "go_on"
    desk.clock.advance(5)
    desk.slurm.start(standby)
    begins(desk, launched, 2, standby)
    (following,) = desk.tick().standbys.values()
    assert following not in (standby, launched.job_id)
    seen = desk.seen(launched.run_id)
    assert seen.run.state is RunState.RUNNING
    assert told(seen) == [(1, launched.job_id, Cause.PREEMPTED), (2, standby, None)]
    assert len(desk.alive()) == 2
    desk.assert_rebuilt_alike(launched.run_id)
    with open_ledger(desk.settings.ledger_url) as ledger:
        rows = ledger.known([launched.run_id])[launched.run_id].attempts
    _, second = history(rows, journal.read(desk.dir_of(launched))).chapters
    assert second.how == "standby"
    assert second.waited_s is not None
    assert second.waited_s <= 5, "what it waited for before was the end of attempt 1"


def test_without_a_daemon_whoever_looks_first_writes_down_what_happened(desk: Watched) -> None:
    launched, standby = with_standby(desk)
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    desk.slurm.queue()  # Slurm goes on
    begins(desk, launched, 2, standby)
    for _ in range(2):
        desk.look()
    seen = desk.seen(launched.run_id)
    assert seen.run.state is RunState.RUNNING
    assert told(seen) == [(1, launched.job_id, Cause.PREEMPTED), (2, standby, None)]
    submitted = [
        each for each in journal.read(desk.dir_of(launched)) if isinstance(each, Submitted)
    ]
    assert [each.how for each in submitted] == ["sbatch", "standby"]
    desk.end(standby, "COMPLETED", exit_code=0)
    assert desk.seen(launched.run_id).run.state is RunState.COMPLETED
    desk.assert_rebuilt_alike(launched.run_id)


def test_days_later_the_files_tell_that_the_standby_has_completed_the_run(desk: Watched) -> None:
    launched, standby = with_standby(desk)
    desk.clock.advance(60)
    desk.slurm.end(launched.job_id, "PREEMPTED")
    desk.slurm.queue()
    begins(desk, launched, 2, standby, {"event": "exited", "exit_code": 0})
    desk.slurm.end(standby, "COMPLETED", exit_code=0)
    for job_id in (launched.job_id, standby):
        desk.slurm.forget(job_id)
    desk.clock.advance(3 * 24 * 3600)
    for _ in range(3):
        desk.tick()
    seen = desk.seen(launched.run_id)
    assert seen.run.state is RunState.COMPLETED
    assert told(seen) == [
        (1, launched.job_id, Cause.PREEMPTED),
        (2, standby, Cause.COMPLETED),
    ]
    assert desk.alive() == []
    desk.assert_rebuilt_alike(launched.run_id)


def test_a_completed_run_needs_none_and_it_costs_nothing(desk: Watched) -> None:
    launched, standby = with_standby(desk)
    desk.clock.advance(3600)
    desk.end(launched.job_id, "COMPLETED", exit_code=0)
    desk.tick()
    assert job(desk, standby).raw_state.startswith("CANCELLED")
    seen = desk.seen(launched.run_id)
    assert (seen.run.state, seen.run.number_of_attempts) == (RunState.COMPLETED, 1)
    assert (seen.run.gpu_hours, seen.run.next_action) == (0.0, None)
    assert told(seen) == [(1, launched.job_id, Cause.COMPLETED)]
    before = desk.dir_of(launched).journal.read_bytes()
    desk.tick()
    assert desk.dir_of(launched).journal.read_bytes() == before
    desk.assert_rebuilt_alike(launched.run_id)


def test_one_that_found_the_run_completed_left_and_costs_nothing(desk: Watched) -> None:
    """No daemon lives; it ended with exit code 1, claimed nothing and said nothing."""
    launched, standby = with_standby(desk)
    desk.end(launched.job_id, "COMPLETED", exit_code=0)
    desk.slurm.queue()
    desk.end(standby, "FAILED", exit_code=1)
    for _ in range(3):
        desk.look()
    seen = desk.seen(launched.run_id)
    assert told(seen) == [(1, launched.job_id, Cause.COMPLETED)]
    assert (seen.run.state, seen.run.next_action) == (RunState.COMPLETED, None)
    desk.assert_rebuilt_alike(launched.run_id)


@pytest.mark.parametrize(("retry", "action"), [("", "wait"), (", failures: 0", "stop")])
def test_after_a_failure_the_rules_say_when_and_the_standby_goes(
    desk: Watched, retry: str, action: str
) -> None:
    desk.config.write_text(
        desk.config.read_text().replace("standby: true", f"standby: true{retry}")
    )
    launched, standby = with_standby(desk)
    desk.end(launched.job_id, "FAILED", exit_code=1, checkpoint=100)
    assert desk.tick().decisions[launched.run_id].action.value == action
    assert desk.alive() == []
    with pytest.raises(FileExistsError):  # and if it starts all the same, it executes nothing
        begins(desk, launched, 2, standby)
    desk.clock.advance(60)
    sent = desk.tick().sent
    assert bool(sent) == (action == "wait")
    if sent:
        assert sent[launched.run_id] in desk.alive()
        seen = desk.seen(launched.run_id)
        assert [each.attempt for each in seen.attempts] == [1, 3], (
            "the number of the standby is used up"
        )
    desk.assert_rebuilt_alike(launched.run_id)


def test_one_that_began_before_the_rules_had_their_say_is_the_next_attempt(desk: Watched) -> None:
    launched, standby = with_standby(desk)
    desk.end(launched.job_id, "FAILED", exit_code=1)
    desk.slurm.queue()
    begins(desk, launched, 2, standby)
    for _ in range(3):
        assert desk.tick().sent == {}
    seen = desk.seen(launched.run_id)
    assert told(seen) == [(1, launched.job_id, Cause.FAILED), (2, standby, None)]
    assert seen.run.state is RunState.RUNNING
    assert standby in desk.alive()


def test_hpcflow_cancel_ends_both_in_that_order(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched, standby = with_standby(desk)
    cancelled: list[str] = []
    cancel = FakeScheduler.cancel

    def noted(slurm: FakeScheduler, job_ids: Sequence[str]) -> None:
        cancelled.extend(job_ids)
        cancel(slurm, job_ids)

    monkeypatch.setattr(FakeScheduler, "cancel", noted)
    desk.cancel(desk.dir_of(launched))
    assert cancelled[0] == standby
    assert launched.job_id in cancelled
    assert desk.alive() == []
    for _ in range(3):
        assert desk.tick().sent == {}
    assert desk.seen(launched.run_id).run.state is RunState.CANCELLED
    again = desk.resume(desk.dir_of(launched))
    assert desk.alive() == [again.job_id]


def test_a_run_that_is_held_has_none_and_after_its_release_has_one_again(desk: Watched) -> None:
    launched, _ = with_standby(desk)
    desk.say(launched.run_dir, Held(at=desk.clock.now(), by="ada"))
    for _ in range(2):
        desk.tick()
    assert desk.alive() == [launched.job_id]
    assert next_words(desk.seen(launched.run_id).run) == "held"
    desk.clock.advance(60)
    assert desk.tick().standbys == {}
    desk.say(launched.run_dir, Released(at=desk.clock.now(), by="ada"))
    assert list(desk.tick().standbys) == [launched.run_id]
    assert len(desk.alive()) == 2


def test_held_while_slurm_was_down_and_then_released_it_gets_one_that_can_execute(
    desk: Watched,
) -> None:
    """The one before is closed to its job, which could not be cancelled then."""
    launched, _ = with_standby(desk)
    before = Journal(desk.dir_of(launched)).history.last.standby
    assert before is not None
    assert before.intent is not None
    seal(desk.dir_of(launched), before.intent)
    desk.say(launched.run_dir, Held(at=desk.clock.now(), by="ada"))
    desk.say(launched.run_dir, Released(at=desk.clock.now(), by="ada"))
    desk.tick()
    assert desk.alive() == [launched.job_id]
    desk.clock.advance(60)
    (again,) = desk.tick().standbys.values()
    assert sorted(desk.alive()) == sorted([launched.job_id, again])
    assert next_words(desk.seen(launched.run_id).run) == f"standby: job {again} waits"
    desk.assert_rebuilt_alike(launched.run_id)


def test_after_scancel_by_hand_the_run_stays_cancelled(desk: Watched) -> None:
    launched, _ = with_standby(desk)
    desk.slurm.cancel([launched.job_id])
    for _ in range(3):
        assert desk.tick().sent == {}
    assert desk.alive() == []
    assert desk.seen(launched.run_id).run.state is RunState.CANCELLED


def test_whoever_scancels_the_standby_alone_takes_nothing_from_the_run(desk: Watched) -> None:
    launched, standby = with_standby(desk)
    desk.slurm.cancel([standby])
    desk.tick()
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    sent = desk.tick().sent
    assert desk.alive() == [sent[launched.run_id]]
    assert sent[launched.run_id] != standby


def test_a_person_who_resumes_gets_the_standby(desk: Watched) -> None:
    launched, standby = waiting_standby(desk)
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    desk.look()
    again = desk.resume(desk.dir_of(launched))
    assert (again.attempt, again.job_id) == (2, standby)
    assert desk.alive() == [standby]


@pytest.mark.parametrize("ended_as", ["FAILED", "NODE_FAIL"])
@pytest.mark.parametrize("has_started", [True, False])
def test_a_standby_that_may_be_leaving_is_not_what_the_run_goes_on_with(
    desk: Watched, ended_as: str, has_started: bool
) -> None:
    """After such ends it leaves when it starts, unless the journal says by then that it goes on."""
    launched, standby = waiting_standby(desk)
    desk.end(launched.job_id, ended_as, exit_code=1, checkpoint=100)
    desk.look()
    if has_started:
        desk.slurm.start(standby)
    again = desk.resume(desk.dir_of(launched))
    assert (again.job_id == standby) == (not has_started)
    assert desk.alive() == [again.job_id]


def test_one_that_the_queue_has_not_shown_once_blocks_nobody(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A squeue that says nothing, and says that with exit code 0."""
    launched, standby = waiting_standby(desk)
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    desk.look()
    with monkeypatch.context() as patch:
        patch.setattr(FakeScheduler, "queue", lambda *_, **__: [])
        desk.look()
    assert desk.alive() == []
    (sent,) = desk.tick().sent.values()
    assert desk.alive() == [sent]
    assert sent != standby


def test_one_that_was_given_up_and_is_still_seen_is_no_stray(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """scancel has been told; slurmctld is slow."""
    launched, standby = waiting_standby(desk)
    desk.end(launched.job_id, "FAILED", exit_code=1, checkpoint=100)
    with monkeypatch.context() as patch:
        patch.setattr(FakeScheduler, "cancel", lambda *_: None)
        desk.tick()
        desk.clock.advance(60)
        (sent,) = desk.tick().sent.values()
    assert sorted(desk.alive()) == sorted([standby, sent])


def test_more_memory_needs_another_job_than_the_standby(desk: Watched) -> None:
    desk.config.write_text(desk.config.read_text().replace("10m,", "10m, mem: 1G,"))
    launched, standby = with_standby(desk)
    desk.end(launched.job_id, "OUT_OF_MEMORY", exit_code=137, checkpoint=100)
    desk.tick()
    desk.clock.advance(60)
    (sent,) = desk.tick().sent.values()
    assert sent != standby
    assert desk.alive() == [sent]
    assert "--mem=1536M" in desk.dir_of(launched).attempt(3).script.read_text()


def test_a_round_sends_so_many_and_the_next_one_the_others(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpcflow.requeue.standbys.MOST_SENT", 2, raising=False)
    monkeypatch.setattr("hpcflow.requeue.standbys._BATCH", 3, raising=False)
    for _ in range(5):
        desk.launch()
    assert [len(desk.tick().standbys) for _ in range(4)] == [2, 2, 1, 0]
    assert len(desk.alive()) == 10


def test_one_scancel_for_all_that_are_not_needed(desk: Watched) -> None:
    runs = [with_standby(desk)[0] for _ in range(5)]
    for launched in runs:
        desk.end(launched.job_id, "COMPLETED", exit_code=0)
    desk.slurm.calls.clear()
    desk.tick()
    assert desk.alive() == []
    assert desk.slurm.calls.count("cancel") == 1


@pytest.mark.parametrize("example", [each for each in EXAMPLES if each.facts.last], ids=str)
def test_what_would_stop_after_a_preemption_has_no_standby(example: Any) -> None:
    """The attempt that runs now is not over, whatever the ones before it were."""
    facts = example.facts
    running = replace(facts.attempts[-1], number=facts.attempts[-1].number + 1, cause=None)
    running = replace(running, stage=type(running.stage)("open"), checkpoint=10**6, crash=None)
    facts = replace(facts, attempts=[*facts.attempts, running], was_stopped=False)
    facts = replace(facts, is_purged=False, only_mirrored=None)  # it makes checkpoints there
    decision = after_preemption(facts, example.policy, NOW)
    wanted = not (facts.is_held or facts.is_cancelled or "deadline" in example.retry)
    wanted = wanted and "preemptions" not in example.retry and facts.delayed_until is None
    wanted = wanted and facts.over_budget is None and not facts.is_journal_lost
    assert (decision.action is Action.RESUBMIT) == wanted, decision


@pytest.mark.parametrize("is_end_known", [True, False])
def test_a_claim_that_cannot_be_read_for_a_moment_is_no_seal(
    desk: Watched, is_end_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The standby has begun, executes the run, and must not be cancelled."""
    launched, standby = with_standby(desk)
    desk.end(launched.job_id, "FAILED", exit_code=1, checkpoint=100)
    if is_end_known:
        desk.look()
    desk.slurm.queue()
    begins(desk, launched, 2, standby)
    claim = desk.dir_of(launched).attempt(2).claim

    def fail_to_read(path: Path) -> bytes:
        if path == claim:
            raise OSError(errno.EIO, "Input/output error", str(path))
        return read_file(path)

    with monkeypatch.context() as patched:
        patched.setattr("hpcflow.launch.submission.read_file", fail_to_read)
        report = desk.tick()
    said = "\n".join([*report.problems.values(), *report.warnings])
    assert f"cannot read {claim}" in said
    desk.tick()
    assert job(desk, standby).state is AttemptState.RUNNING
    assert told(desk.seen(launched.run_id)) == [
        (1, launched.job_id, Cause.FAILED),
        (2, standby, None),
    ]


def test_a_lock_that_keeps_a_run_from_its_standby_is_told_of(desk: Watched) -> None:
    launched = desk.launch()
    begins(desk, launched, 1, launched.job_id)
    with submit_lock(desk.dir_of(launched), wait_s=0):
        assert desk.tick().problems == {}, "somebody may be sending it"
        desk.clock.advance(301)
        assert "submit.lock is held" in desk.tick().problems[launched.run_id]
    assert list(desk.tick().standbys) == [launched.run_id]


def test_of_standby_records_the_last_attempt_knows_nothing(desk: Watched) -> None:
    launched, _ = with_standby(desk)
    records: list[JournalRecord] = journal.read(desk.dir_of(launched))
    assert sum(isinstance(each, Standby) for each in records) == 2
    last = RunHistory.of(records).last
    assert (last.number, last.is_live, last.has_standby, last.next_number) == (1, True, True, 3)
    assert desk.clock.now() - records[-1].at < timedelta(minutes=1)
