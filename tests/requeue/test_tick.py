"""A daemon brings runs to their end: stories on a cluster in memory, its time moved by hand."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from hpcflow.errors import (
    HpcflowError,
    LedgerError,
    SchedulerUnavailable,
    SubmissionDelayed,
    SubmissionInDoubt,
)
from hpcflow.launch.run import Launched
from hpcflow.ledger.store import Ledger, open_ledger
from hpcflow.model.ids import job_name
from hpcflow.model.journal import Decided, Ended, Held, Intended, Refused, Released
from hpcflow.model.state import AttemptState, Cause, RunState
from hpcflow.observe.judge import LOOK_COUNTS_S
from hpcflow.requeue.evidence import read_evidence
from hpcflow.requeue.history import Story, history
from hpcflow.requeue.nodes import Evidence
from hpcflow.requeue.policy import Action
from hpcflow.schedulers.base import JobRef, SubmitRequest
from hpcflow.storage import journal
from hpcflow.storage.layout import RunDir
from hpcflow.storage.locks import submit_lock
from hpcflow.storage.rundir import read_run
from hpcflow.storage.runs import list_runs
from hpcflow.testing.fake_scheduler import FakeScheduler, Fault
from tests.requeue.watched import Watched


@pytest.fixture
def desk(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_a_preempted_run_is_sent_again_in_the_tick_that_sees_its_end(desk: Watched) -> None:
    launched = desk.launch()
    assert desk.tick().sent == {}
    for checkpoint in (100, 200, 300):
        (job_id,) = desk.alive()
        desk.end(job_id, "PREEMPTED", checkpoint=checkpoint)
        report = desk.tick()
        assert report.decisions[launched.run_id].rule == "go_on"
        assert desk.alive() == [report.sent[launched.run_id]]
    (job_id,) = desk.alive()
    desk.end(job_id, "COMPLETED", exit_code=0)
    assert desk.tick().sent == {}
    seen = desk.seen(launched.run_id)
    assert seen.run.state is RunState.COMPLETED
    assert [attempt.cause for attempt in seen.attempts] == [*[Cause.PREEMPTED] * 3, Cause.COMPLETED]


def test_a_run_that_is_preempted_while_it_starts_goes_on_at_once(desk: Watched) -> None:
    """It dies of the notice, which it cannot understand yet; Slurm calls that a failure."""
    launched = desk.launch()
    desk.slurm.preempt(launched.job_id, leaves_with=1)
    assert desk.tick().sent.keys() == {launched.run_id}
    first = desk.seen(launched.run_id).attempts[0]
    assert (first.raw_state, first.cause) == ("FAILED", Cause.PREEMPTED)


def test_a_tick_in_which_nothing_happened_writes_and_sends_nothing(desk: Watched) -> None:
    launched = desk.launch()
    desk.tick()
    before = RunDir(launched.run_dir).journal.read_bytes()
    for _ in range(3):
        report = desk.tick()
        assert (report.looked_at, report.decisions, report.warnings) == (0, {}, [])
    assert RunDir(launched.run_dir).journal.read_bytes() == before


def test_failures_wait_longer_and_longer_and_end(desk: Watched) -> None:
    launched = desk.launch()
    waits = []
    for number in range(1, 5):
        (job_id,) = desk.alive()
        desk.end(job_id, "FAILED", exit_code=1, checkpoint=100 * number)
        decision = desk.tick().decisions[launched.run_id]
        if decision.action is Action.STOP:
            break
        assert decision.action is Action.WAIT
        assert decision.not_before is not None
        waits.append((decision.not_before - desk.clock.now()).total_seconds())
        assert desk.seen(launched.run_id).run.state is RunState.WAITING
        assert desk.seen(launched.run_id).run.next_at == decision.not_before
        desk.clock.advance(waits[-1] - 1)
        assert desk.tick().looked_at == 0
        desk.clock.advance(2)
        assert desk.tick().sent
    assert len(waits) == 3
    assert desk.alive() == []
    seen = desk.seen(launched.run_id).run
    assert (seen.state, seen.next_action) == (RunState.FAILED, "stop: budget")
    assert desk.tick().looked_at == 0
    launched_again = desk.resume(RunDir(launched.run_dir))
    assert launched_again.attempt == 5
    desk.end(launched_again.job_id, "FAILED", exit_code=1)
    assert desk.tick().decisions[launched.run_id].action is Action.WAIT, "it counts anew"


def test_whoever_holds_a_run_holds_it_until_it_is_released(desk: Watched) -> None:
    launched = desk.launch()
    desk.say(launched.run_dir, Held(at=desk.clock.now(), by="ada"))
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    assert desk.tick().sent == {}
    seen = desk.seen(launched.run_id).run
    assert (seen.state, seen.next_action) == (RunState.WAITING, "held")
    desk.say(launched.run_dir, Released(at=desk.clock.now(), by="ada"))
    assert launched.run_id in desk.tick().sent


def test_a_hold_in_the_last_moment_counts(desk: Watched) -> None:
    """The ledger was read, and then somebody says it."""
    launched = desk.launch()
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)

    def hold() -> bool:
        desk.say(launched.run_dir, Held(at=desk.clock.now(), by="ada"))
        return True

    assert desk.tick(may_act=hold).sent == {}
    assert desk.tick().sent == {}
    assert desk.seen(launched.run_id).run.next_action == "held"


def test_a_run_of_another_cluster_is_left_to_a_daemon_over_there(desk: Watched) -> None:
    """People have the same home on several clusters, and so the same ledger."""
    launched = desk.launch()
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    desk.look()
    home, desk.slurm = desk.slurm, FakeScheduler(desk.clock, cluster_name="elsewhere")
    before = RunDir(launched.run_dir).journal.read_bytes()
    report = desk.tick()
    assert (report.sent, report.decisions, report.problems) == ({}, {}, {})
    assert RunDir(launched.run_dir).journal.read_bytes() == before
    desk.slurm = home
    assert launched.run_id in desk.tick().sent


def test_while_somebody_is_sending_it_nothing_is_decided(desk: Watched) -> None:
    launched = desk.launch()
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    with submit_lock(RunDir(launched.run_dir), wait_s=0):  # somebody is sending it by hand
        assert [desk.tick().decisions for _ in range(3)] == [{}, {}, {}]
    assert launched.run_id in desk.tick().sent


def test_a_lock_that_nobody_gives_back_is_told_of_in_the_end(desk: Watched) -> None:
    """A file server keeps the lock of a login node that died."""
    launched = desk.launch()
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    with submit_lock(RunDir(launched.run_dir), wait_s=0):
        for _ in range(5):
            assert desk.tick().problems == {}, "somebody may be sending it"
            desk.clock.advance(60)
        desk.clock.advance(1)
        said = desk.tick().problems[launched.run_id]
    assert said.startswith(f"{launched.run_dir}/submit.lock is held")
    assert list(desk.tick().sent) == [launched.run_id]


def test_a_cancelled_run_stays_cancelled(desk: Watched) -> None:
    launched = desk.launch()
    desk.cancel(RunDir(launched.run_dir))
    other = desk.launch()
    desk.slurm.cancel([other.job_id])  # scancel by hand
    for _ in range(3):
        assert desk.tick().sent == {}
        desk.clock.advance(3600)
    for run_id in (launched.run_id, other.run_id):
        assert desk.seen(run_id).run.state is RunState.CANCELLED


def test_a_full_limit_delays_and_never_fails_a_run(desk: Watched) -> None:
    launched = desk.launch()
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    desk.slurm.faults += [Fault.DELAYED] * 3
    waits, tries = [], 0
    while not desk.alive():
        began = desk.clock.now()
        desk.tick()
        tries += 1
        if desk.alive():
            break
        decision = desk.tick().decisions[launched.run_id]
        assert decision.rule == "delayed"
        assert decision.not_before is not None
        waits.append((decision.not_before - began).total_seconds())
        desk.clock.advance(waits[-1])
    assert (tries, waits) == (4, [30, 60, 120])
    assert [view.attempt for view in desk.seen(launched.run_id).attempts] == [1, 2]


def test_what_slurm_will_never_take_is_stopped_and_says_why(desk: Watched) -> None:
    """An account that has expired; asked again, it would say so every ten seconds."""
    launched = desk.launch()
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    desk.slurm.faults.append(Fault.REFUSED)
    assert desk.tick().decisions[launched.run_id].rule == "refused"
    seen = desk.seen(launched.run_id).run
    assert (seen.state, seen.next_action) == (RunState.FAILED, "stop: refused")
    assert desk.tick().looked_at == 0
    desk.say(launched.run_dir, Released(at=desk.clock.now(), by="ada"))
    assert launched.run_id in desk.tick().sent


def test_while_slurm_is_down_nothing_is_lost_and_nobody_waits_for_each_run(desk: Watched) -> None:
    runs = [desk.launch() for _ in range(5)]
    for launched in runs:
        desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    desk.look()
    desk.slurm.is_controller_down = True
    desk.slurm.calls.clear()
    report = desk.tick()
    assert len(report.problems) == 1, "whoever is silent to one is silent to all"
    assert "submit" not in desk.slurm.calls
    desk.slurm.is_controller_down = False
    for _ in range(3):
        desk.clock.advance(60)
        desk.tick()
    assert len(desk.alive()) == 5


def test_an_unknown_state_is_waited_for_and_said(desk: Watched) -> None:
    launched = desk.launch()
    desk.slurm.set_raw_state(launched.job_id, "LEVITATING")
    for _ in range(3):
        report = desk.tick()
        assert report.sent == {}
        (warning,) = report.warnings
        assert f"'LEVITATING' of job {launched.job_id}" in warning
        desk.clock.advance(600)
    assert desk.seen(launched.run_id).attempts[0].state is AttemptState.UNKNOWN


def test_an_end_that_has_an_unknown_name_is_one_when_the_queue_has_forgotten_it(
    desk: Watched,
) -> None:
    launched = desk.launch()
    desk.slurm.set_raw_state(launched.job_id, "EVAPORATED")
    desk.tick()
    desk.slurm.forget(launched.job_id)
    for _ in range(2):
        assert desk.tick().sent == {}
        desk.clock.advance(LOOK_COUNTS_S)
    assert desk.tick().decisions[launched.run_id].rule == "backoff"
    desk.clock.advance(60)
    assert launched.run_id in desk.tick().sent


def test_a_job_that_nobody_knows_any_more_has_vanished_after_a_while(desk: Watched) -> None:
    launched = desk.launch()
    desk.slurm = FakeScheduler(desk.clock, cluster_name="devcluster")
    for _ in range(2):
        assert desk.tick().sent == {}
        desk.clock.advance(LOOK_COUNTS_S)
    assert desk.tick().decisions[launched.run_id].rule == "backoff"
    desk.clock.advance(60)
    assert launched.run_id in desk.tick().sent


def test_out_of_memory_asks_for_more_and_goes_on_with_that(desk: Watched) -> None:
    desk.config.write_text(desk.config.read_text().replace("time_limit: 10m", "mem: 2G"))
    launched = desk.launch()
    desk.end(launched.job_id, "OUT_OF_MEMORY", checkpoint=100)
    desk.tick()
    desk.clock.advance(60)
    desk.tick()
    scripts = [RunDir(launched.run_dir).attempt(n).script.read_text() for n in (1, 2)]
    assert ["--mem=2048M" in scripts[0], "--mem=3072M" in scripts[1]] == [True, True]
    (job_id,) = desk.alive()
    desk.end(job_id, "PREEMPTED", checkpoint=200)
    desk.look()
    again = desk.resume(RunDir(launched.run_dir))
    assert "--mem=3072M" in RunDir(launched.run_dir).attempt(again.attempt).script.read_text()


def test_a_run_that_was_made_and_never_sent_is_sent_when_nobody_can_be_at_it(
    desk: Watched,
) -> None:
    desk.slurm.faults.append(Fault.UNAVAILABLE)
    with pytest.raises(SchedulerUnavailable):
        desk.launch()
    (link,) = desk.settings.home.runs.iterdir()
    RunDir(link.readlink()).journal.unlink()  # killed before its first intent
    assert desk.tick().sent == {}
    desk.clock.advance(301)
    assert list(desk.tick().sent) == [link.name]


def test_a_request_that_was_lost_waits_too_and_blocks_no_other_run(desk: Watched) -> None:
    """sbatch: Socket timed out. The controller is overloaded, and asking at once makes it worse."""
    lost, other = sorted((desk.launch() for _ in range(2)), key=lambda each: each.run_id)
    for launched in (lost, other):
        desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    desk.slurm.faults.append(Fault.LOST_REQUEST)
    assert list(desk.tick().sent) == [other.run_id]
    assert desk.tick().decisions[lost.run_id].rule == "delayed"
    desk.clock.advance(31)
    assert list(desk.tick().sent) == [lost.run_id]


def test_a_controller_that_loses_whatever_it_is_sent_is_left_alone_for_a_round(
    desk: Watched,
) -> None:
    for launched in [desk.launch() for _ in range(10)]:
        desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    desk.slurm.faults += [Fault.LOST_REQUEST] * 10
    desk.slurm.calls.clear()
    desk.tick()
    assert desk.slurm.calls.count("submit") == 3


def test_runs_whose_every_request_is_lost_keep_no_other_waiting(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site's plugin that refuses without a word: sbatch cannot tell that from a lost answer."""
    poison = [desk.launch() for _ in range(70)]
    names = {each.run_id for each in poison}
    desk.clock.advance(1)
    well = desk.launch()
    desk.tick()
    submit = FakeScheduler.submit

    def lose(slurm: FakeScheduler, request: SubmitRequest) -> JobRef:
        if request.job_name.split(":")[1] in names:
            raise SubmissionInDoubt("the job may or may not exist: Unspecified error")
        return submit(slurm, request)

    monkeypatch.setattr(FakeScheduler, "submit", lose)
    for each in [*poison, well]:
        desk.end(each.job_id, "PREEMPTED", checkpoint=100)
    rounds = 0
    while well.run_id not in desk.tick().sent:
        desk.clock.advance(10)
        rounds += 1
        assert rounds < 30


def test_a_wish_to_cancel_outlives_a_scancel_that_fails(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run was cancelled while nobody knew whether its job exists."""
    other = desk.launch()
    desk.slurm.faults.append(Fault.CONTROLLER_DIES)
    with pytest.raises(HpcflowError):
        desk.launch()
    (run_dir,) = [each for each in list_runs(desk.settings.home) if each.path != other.run_dir]
    with pytest.raises(HpcflowError):
        desk.cancel(run_dir)
    desk.slurm.is_controller_down = False

    def fails(*_: Any) -> None:
        raise SchedulerUnavailable("scancel got no answer: it did not answer within 60 s")

    with monkeypatch.context() as patch:
        patch.setattr(FakeScheduler, "cancel", fails)
        assert len(desk.alive()) == 2
        assert desk.tick().warnings == ["scancel got no answer: it did not answer within 60 s"]
    desk.tick()
    assert desk.alive() == [other.job_id]
    assert desk.seen(run_dir.path.name).run.state is RunState.CANCELLED


def test_a_lock_that_nobody_gives_back_on_what_is_in_doubt_is_told_of(desk: Watched) -> None:
    """The login node died while it was sending, and the file server keeps its lock."""
    desk.slurm.faults.append(Fault.CONTROLLER_DIES)
    with pytest.raises(HpcflowError):
        desk.launch()
    desk.slurm.is_controller_down = False
    (run_dir,) = list_runs(desk.settings.home)
    with submit_lock(run_dir, wait_s=0):
        assert desk.tick().warnings == []
        desk.clock.advance(301)
        (said,) = desk.tick().warnings
    assert said.startswith(f"{run_dir.submit_lock} is held")


def test_what_nobody_foresaw_of_one_run_hides_no_other(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    strange, other = desk.launch(), desk.launch()
    desk.tick()
    for each in (strange, other):
        desk.end(each.job_id, "COMPLETED", exit_code=0)

    def fails(run_dir: RunDir, *_: Any) -> None:
        if run_dir.path == strange.run_dir:
            raise ZeroDivisionError("a bug")

    monkeypatch.setattr("hpcflow.observe.attempts.tell_to_leave", fails)
    assert desk.tick().warnings == [f"{strange.run_id}: ZeroDivisionError: a bug"]
    assert desk.seen(other.run_id).run.state is RunState.COMPLETED


def test_a_limit_that_is_full_is_found_out_once_in_a_round(desk: Watched) -> None:
    """Each try costs slurmctld two calls; where another limit counts, there may be room."""
    runs = [desk.launch() for _ in range(20)]
    desk.config.write_text(desk.config.read_text().replace("physics", "physics, qos: long"))
    other = desk.launch()
    for each in [*runs, other]:
        desk.end(each.job_id, "PREEMPTED", checkpoint=100)
    desk.slurm.faults.append(Fault.DELAYED)
    desk.slurm.calls.clear()
    first = desk.tick()
    assert (desk.slurm.calls.count("submit"), list(first.sent)) == (2, [other.run_id])
    assert len(first.decisions) == 21, "what becomes of them is known all the same"
    sent = set(desk.tick().sent)
    desk.clock.advance(31)
    sent |= set(desk.tick().sent)
    assert sent == {each.run_id for each in runs}


def test_a_limit_that_is_full_for_weeks_fails_no_run(desk: Watched) -> None:
    launched = desk.launch()
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    number, name = 2, job_name(launched.run_id, 2)
    desk.tick(may_act=lambda: False)
    for _ in range(2000):
        desk.clock.advance(600)
        now = desk.clock.now()
        for record in (
            Intended(at=now, attempt=number, job_name=name, scheduler="fake", partition="gpu"),
            Refused(at=now, attempt=number, reason="QOSMaxSubmitJobPerUserLimit", retryable=True),
        ):
            desk.say(launched.run_dir, record)
    assert desk.tick().decisions[launched.run_id].rule == "delayed"
    desk.clock.advance(601)
    assert list(desk.tick().sent) == [launched.run_id]


def test_a_job_whose_clock_is_mad_delays_nothing(desk: Watched) -> None:
    launched, other = desk.launch(), desk.launch()
    for each in (launched, other):
        desk.end(each.job_id, "FAILED", exit_code=1, checkpoint=100)
    desk.look()
    far = Ended(
        at=desk.clock.now(),
        attempt=1,
        cause=Cause.FAILED,
        raw_state="FAILED",
        rule="mad",
        ended_at=datetime.max.replace(tzinfo=timezone.utc),
    )
    desk.say(launched.run_dir, far)
    desk.tick()
    desk.clock.advance(60)
    assert set(desk.tick().sent) == {launched.run_id, other.run_id}


def test_without_its_journal_nothing_is_sent_and_nothing_forgotten(desk: Watched) -> None:
    """A scratch purge takes files one by one; what became of the jobs stood there alone."""
    launched = desk.launch()
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    desk.look()
    RunDir(launched.run_dir).journal.unlink()
    for _ in range(3):
        report = desk.tick()
        assert report.sent == {}
        assert "journal" in report.problems[launched.run_id]
        desk.clock.advance(3600)
    assert not RunDir(launched.run_dir).journal.exists()


def test_an_ended_job_that_an_admin_requeued_is_not_joined_by_a_second(desk: Watched) -> None:
    launched = desk.launch()
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    desk.look()
    desk.slurm.set_raw_state(launched.job_id, "RUNNING")
    for _ in range(3):
        assert desk.tick().sent == {}
        desk.clock.advance(60)
    desk.slurm.set_raw_state(launched.job_id, "PREEMPTED")
    assert launched.run_id in desk.tick().sent


def test_what_was_never_sent_and_is_old_is_left_alone(desk: Watched) -> None:
    desk.slurm.faults.append(Fault.DELAYED)
    with pytest.raises(SubmissionDelayed):
        desk.launch()
    (run_id,) = (link.name for link in desk.settings.home.runs.iterdir())
    desk.clock.advance(300 * 24 * 3600)
    assert desk.tick().decisions[run_id].rule == "forgotten"
    assert desk.alive() == []
    run_dir = (desk.settings.home.runs / run_id).readlink()
    (told,) = _story(desk, run_id).decided_first
    assert told.startswith("stop (forgotten): ")
    desk.say(run_dir, Released(at=desk.clock.now(), by="ada"))
    assert run_id in desk.tick().sent
    assert [each.split(" (")[0] for each in _story(desk, run_id).decided_first] == [
        "stop",
        "resubmit",
    ]


def _story(desk: Watched, run_id: str) -> Story:
    records = journal.read(RunDir((desk.settings.home.runs / run_id).readlink()))
    with open_ledger(desk.settings.ledger_url) as ledger:
        return history(ledger.known([run_id])[run_id].attempts, records)


def test_a_release_in_the_last_moment_counts(desk: Watched) -> None:
    desk.config.write_text(desk.config.read_text() + "retry: {failures: 0}\n")
    launched = desk.launch()
    desk.end(launched.job_id, "FAILED", exit_code=1, checkpoint=100)
    desk.look()

    def release() -> bool:
        desk.say(launched.run_dir, Released(at=desk.clock.now(), by="ada"))
        return True

    assert desk.tick(may_act=release).decisions == {}, "the ledger did not know of it"
    desk.clock.advance(60)
    assert launched.run_id in desk.tick().sent


def test_what_was_cancelled_by_scancel_goes_on_when_it_is_released(desk: Watched) -> None:
    launched = desk.launch()
    desk.slurm.cancel([launched.job_id])
    assert desk.tick().sent == {}
    desk.say(launched.run_dir, Released(at=desk.clock.now(), by="ada"))
    assert launched.run_id in desk.tick().sent


def test_scancel_after_a_release_is_final_all_the_same(desk: Watched) -> None:
    launched = desk.launch()
    desk.say(launched.run_dir, Held(at=desk.clock.now(), by="ada"))
    desk.say(launched.run_dir, Released(at=desk.clock.now(), by="ada"))
    desk.look()
    desk.slurm.cancel([launched.job_id])
    for _ in range(3):
        assert desk.tick().sent == {}
        desk.clock.advance(3600)
    assert desk.seen(launched.run_id).run.state is RunState.CANCELLED


def test_saving_the_same_train_step_to_one_path_is_no_progress(desk: Watched) -> None:
    launched = desk.launch()
    sent = 0
    while desk.alive():
        (job_id,) = desk.alive()
        desk.end(job_id, "TIMEOUT", checkpoint=50, path="checkpoints/last")
        desk.tick()
        sent += 1
        assert sent < 10
    assert desk.seen(launched.run_id).run.next_action == "stop: no_progress"


def test_a_bug_met_in_one_run_stops_no_other(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = sorted((desk.launch() for _ in range(2)), key=lambda each: each.run_id)
    for launched in (bad, good):
        desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    first = iter([True])

    def broken(*args: Any, **options: Any) -> Any:
        if next(first, False):
            raise OverflowError("date value out of range")
        return read_run(*args, **options)

    monkeypatch.setattr("hpcflow.requeue.tick.read_run", broken)
    report = desk.tick()
    assert report.problems == {bad.run_id: "OverflowError: date value out of range"}
    assert list(report.sent) == [good.run_id]


def test_in_any_database(desk: Watched, ledger_url: str) -> None:
    desk.settings = replace(desk.settings, ledger_url=ledger_url)
    launched = desk.launch()
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    assert launched.run_id in desk.tick().sent
    assert desk.tick().looked_at == 0


def test_a_run_directory_that_is_deleted_disturbs_no_other(desk: Watched) -> None:
    lost, kept = desk.launch(), desk.launch()
    for launched in (lost, kept):
        desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    shutil.rmtree(lost.run_dir)
    assert list(desk.tick().sent) == [kept.run_id]
    assert len(desk.alive()) == 1


def test_whoever_has_lost_the_lease_stops_before_the_next_act(desk: Watched) -> None:
    runs = [desk.launch() for _ in range(3)]
    for launched in runs:
        desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    answers = iter([True, False])
    report = desk.tick(may_act=lambda: next(answers))
    assert (len(report.sent), report.is_ousted) == (1, True)
    assert len(desk.tick().sent) == 2, "the other one goes on where it stopped"
    assert len(desk.alive()) == 3


def test_whoever_sleeps_between_looking_and_acting_acts_no_more(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped, a machine suspended: when it has the lock of a run, another one has the lease."""
    runs = [desk.launch() for _ in range(2)]
    for launched in runs:
        desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    lock, has_lease = submit_lock, True

    def long_sleep(*args: Any, **options: Any) -> Any:
        nonlocal has_lease
        has_lease = False
        return lock(*args, **options)

    monkeypatch.setattr("hpcflow.requeue.tick.submit_lock", long_sleep)
    desk.look()
    before = [RunDir(launched.run_dir).journal.read_bytes() for launched in runs]
    report = desk.tick(may_act=lambda: has_lease)
    assert (report.sent, report.decisions, report.is_ousted) == ({}, {}, True)
    assert [RunDir(launched.run_dir).journal.read_bytes() for launched in runs] == before


def _failed_on(desk: Watched, node: str, count: int) -> list[Launched]:
    """Runs that a node took down with it, a minute ago."""
    runs = [desk.launch() for _ in range(count)]
    for launched in runs:
        desk.slurm.start(launched.job_id, [node])
        desk.end(launched.job_id, "NODE_FAIL", checkpoint=100)
    desk.tick()
    desk.clock.advance(60)
    return runs


def _intents(launched: Launched) -> list[Intended]:
    return [each for each in journal.read(RunDir(launched.run_dir)) if isinstance(each, Intended)]


def _script(launched: Launched, attempt: int) -> str:
    return RunDir(launched.run_dir).attempt(attempt).script.read_text()


def test_a_node_that_failed_two_runs_is_excluded_from_what_is_sent_again(desk: Watched) -> None:
    third = desk.launch()
    runs = _failed_on(desk, "n2", 2)
    desk.end(third.job_id, "PREEMPTED", checkpoint=100)
    report = desk.tick()
    assert len(report.sent) == 3
    for launched in (*runs, third):
        assert "#SBATCH --exclude=n2\n" in _script(launched, 2)
        assert [each.excluded for each in _intents(launched)] == [None, ["n2"]]
        assert "avoiding n2" in report.decisions[launched.run_id].why
    decided = [each for each in journal.read(RunDir(third.run_dir)) if isinstance(each, Decided)]
    assert decided[-1].why == "attempt 1 ended as preempted; avoiding n2"
    fresh = desk.launch()
    assert "--exclude" not in _script(fresh, 1), "a first attempt needs no ledger"


def test_the_evidence_is_read_once_however_many_runs_there_are(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    _failed_on(desk, "n2", 5)
    asked = []
    ends = Ledger.ends

    def counted(*args: Any, **options: Any) -> Any:
        asked.append(args)
        return ends(*args, **options)

    monkeypatch.setattr(Ledger, "ends", counted)
    assert len(desk.tick().sent) == 5
    assert len(asked) == 2, "what speaks against nodes, and what for them"
    asked.clear()
    desk.tick()
    assert asked == [], "nothing is sent, and nobody needs to know"


def test_where_the_evidence_cannot_be_had_the_run_is_sent_all_the_same(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = _failed_on(desk, "n2", 2)

    def damaged(*_: Any, **__: Any) -> Any:
        raise LedgerError("the ledger is damaged")

    monkeypatch.setattr(Ledger, "ends", damaged)
    report = desk.tick()
    assert set(report.sent) == {launched.run_id for launched in runs}
    assert report.warnings == ["the ledger is damaged; no node is avoided for now"]
    assert "--exclude" not in _script(runs[0], 2)


def test_a_node_that_left_the_cluster_stops_no_run(desk: Watched) -> None:
    """sbatch: Invalid node name specified."""
    runs = _failed_on(desk, "n2", 2)
    desk.slurm.nodes = ("n1", "n3", "n4")
    report = desk.tick()
    assert set(report.sent) == {launched.run_id for launched in runs}
    for launched in runs:
        assert "--exclude" not in _script(launched, 2)
        assert [each.excluded for each in _intents(launched)] == [None, ["n2"], None]
        assert [view.attempt for view in desk.seen(launched.run_id).attempts] == [1, 2]
    assert len(desk.alive()) == 2
    assert desk.tick().sent == {}


def test_a_refusal_that_has_nothing_to_do_with_nodes_is_a_refusal(desk: Watched) -> None:
    run, _ = _failed_on(desk, "n2", 2)
    desk.slurm.partitions = ("of", "others")
    desk.slurm.calls.clear()
    report = desk.tick()
    assert report.decisions[run.run_id].rule == "refused"
    assert desk.slurm.calls.count("submit") == 2 * 2
    assert desk.tick().looked_at == 0


def test_an_answer_that_is_lost_when_it_is_sent_without_doubles_nothing(desk: Watched) -> None:
    runs = _failed_on(desk, "n2", 2)
    desk.slurm.faults += [Fault.REFUSED, Fault.LOST_ANSWER]
    assert len(desk.tick().sent) == 2
    assert len(desk.alive()) == 2
    assert sorted(len(_intents(launched)) for launched in runs) == [2, 3]
    assert desk.tick().sent == {}


def test_what_the_run_excludes_itself_stays_excluded(desk: Watched) -> None:
    desk.config.write_text(desk.config.read_text().replace("10m,", "10m, exclude: n4,"))
    run, _ = _failed_on(desk, "n2", 2)
    assert "#SBATCH --exclude=n4\n" in _script(run, 1)
    desk.tick()
    assert "#SBATCH --exclude=n4,n2\n" in _script(run, 2)


def test_a_run_may_go_where_it_wants(desk: Watched) -> None:
    desk.config.write_text(desk.config.read_text() + "retry: {avoid_bad_nodes: false}\n")
    run, _ = _failed_on(desk, "n2", 2)
    assert len(desk.tick().sent) == 2
    assert "--exclude" not in _script(run, 2)


def test_a_resume_by_hand_keeps_away_too_and_goes_without_where_it_must(desk: Watched) -> None:
    launched = desk.launch()
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    desk.look()
    again = desk.resume(RunDir(launched.run_dir), avoid=["n2"])
    assert "#SBATCH --exclude=n2\n" in _script(launched, 2)
    desk.end(again.job_id, "PREEMPTED", checkpoint=200)
    desk.look()
    third = desk.resume(RunDir(launched.run_dir), avoid=["gone"])
    assert third.attempt == 3
    assert "--exclude" not in _script(launched, 3)
    assert [each.excluded for each in _intents(launched)] == [None, ["n2"], ["gone"], None]
    assert [view.attempt for view in desk.seen(launched.run_id).attempts] == [1, 2, 3]


@pytest.mark.parametrize(
    "reason", ["ReqNodeNotAvail, UnavailableNodes:n[1,3-4]", "Nodes required for job are DOWN"]
)
def test_a_job_that_waits_for_nodes_that_it_is_kept_away_from_is_named(
    desk: Watched, reason: str
) -> None:
    launched, _ = _failed_on(desk, "n2", 2)
    sent = desk.tick().sent
    job_id = sent[launched.run_id]
    for each in sent.values():
        desk.slurm.set_raw_state(each, "PENDING")
        desk.slurm.wait_for(each, "Resources")
    assert desk.tick().warnings == [], "it waits for its turn"
    desk.slurm.wait_for(job_id, reason)
    warning = (
        f"{launched.run_id}: job {job_id} waits for nodes that are not there, and is kept away "
        f"from n2; to let it have these, too: scontrol update jobid={job_id} ExcNodeList="
    )
    assert desk.tick().warnings == [warning]
    assert desk.tick().warnings == [warning], "in the same words, so the log says it once"


@pytest.mark.parametrize("reason", ["Reserved for maintenance", "May be reserved for other job"])
def test_a_job_that_waits_for_a_reservation_is_told_of_no_missing_nodes(
    desk: Watched, reason: str
) -> None:
    """Giving it the nodes that it is kept away from would not let it start."""
    launched, _ = _failed_on(desk, "n2", 2)
    job_id = desk.tick().sent[launched.run_id]
    desk.slurm.set_raw_state(job_id, "PENDING")
    for said in (f"ReqNodeNotAvail, {reason}", f"ReqNodeNotAvail, {reason}".replace(" ", "_")):
        desk.slurm.wait_for(job_id, said)
        assert desk.tick().warnings == []
        assert desk.seen(launched.run_id).attempts[-1].reason == said


def test_a_rebuilt_ledger_judges_nodes_the_same(desk: Watched) -> None:
    _failed_on(desk, "n2", 2)

    def judged() -> Evidence:
        with open_ledger(desk.settings.ledger_url) as ledger:
            return read_evidence(ledger, desk.settings.home, desk.clock.now())

    before = judged()
    assert [each.node for each in before.standings["devcluster"]] == ["n2"]
    desk.settings.home.ledger.unlink()
    desk.look()
    assert judged() == before


def test_the_record_of_a_refusal_is_not_taken_for_the_job_that_was_sent_after_it(
    desk: Watched,
) -> None:
    """Slurm keeps records of some refused jobs, and both requests bear one name."""
    runs = _failed_on(desk, "n2", 2)
    desk.slurm.faults += [Fault.STILLBORN, Fault.LOST_REQUEST]
    (first,) = desk.tick().sent
    desk.clock.advance(60)
    assert {first, *desk.tick().sent} == {launched.run_id for launched in runs}
    for launched in runs:
        causes = {view.cause for view in desk.seen(launched.run_id).attempts}
        assert causes == {Cause.NODE_FAIL, None}
    assert len(desk.alive()) == 2
