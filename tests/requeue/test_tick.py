"""A daemon supervises runs: stories on a cluster in memory, its time moved by hand."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from hpcflow.cli.output import next_words
from hpcflow.errors import (
    SchedulerUnavailable,
    StorageError,
    SubmissionDelayed,
)
from hpcflow.ledger.store import open_ledger
from hpcflow.model.journal import Ended, Held, Released
from hpcflow.model.state import AttemptState, Cause, RunState
from hpcflow.reconcile.classify_end import LOOK_COUNTS_S
from hpcflow.requeue.history import Story, history
from hpcflow.requeue.policy import Action
from hpcflow.storage import journal
from hpcflow.storage.layout import RunDir
from hpcflow.storage.locks import submit_lock
from hpcflow.storage.rundir import read_run
from hpcflow.storage.runs import list_runs, run_dir_of
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
    before = desk.dir_of(launched).journal.read_bytes()
    for _ in range(3):
        report = desk.tick()
        assert (report.looked_at, report.decisions, report.warnings) == (0, {}, [])
    assert desk.dir_of(launched).journal.read_bytes() == before


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
    assert (seen.state, next_words(seen)) == (RunState.FAILED, "stop: budget")
    assert desk.tick().looked_at == 0
    launched_again = desk.resume(desk.dir_of(launched))
    assert launched_again.attempt == 5
    desk.end(launched_again.job_id, "FAILED", exit_code=1)
    assert desk.tick().decisions[launched.run_id].action is Action.WAIT, "it counts from zero"


def test_whoever_holds_a_run_holds_it_until_it_is_released(desk: Watched) -> None:
    launched = desk.launch()
    desk.say(launched.run_dir, Held(at=desk.clock.now(), by="ada"))
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    assert desk.tick().sent == {}
    seen = desk.seen(launched.run_id).run
    assert (seen.state, next_words(seen)) == (RunState.WAITING, "held")
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
    assert next_words(desk.seen(launched.run_id).run) == "held"


def test_a_run_of_another_cluster_is_left_to_a_daemon_over_there(desk: Watched) -> None:
    """People have the same home on several clusters, and so the same ledger."""
    launched = desk.launch()
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    desk.look()
    home, desk.slurm = desk.slurm, FakeScheduler(desk.clock, cluster_name="elsewhere")
    before = desk.dir_of(launched).journal.read_bytes()
    report = desk.tick()
    assert (report.sent, report.decisions, report.problems) == ({}, {}, {})
    assert desk.dir_of(launched).journal.read_bytes() == before
    desk.slurm = home
    assert launched.run_id in desk.tick().sent


def test_while_somebody_is_sending_it_nothing_is_decided(desk: Watched) -> None:
    launched = desk.launch()
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    with submit_lock(desk.dir_of(launched), wait_s=0):  # somebody is sending it by hand
        assert [desk.tick().decisions for _ in range(3)] == [{}, {}, {}]
    assert launched.run_id in desk.tick().sent


def test_a_lock_that_nobody_gives_back_is_told_of_in_the_end(desk: Watched) -> None:
    """A file server keeps the lock of a login node that died."""
    launched = desk.launch()
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    with submit_lock(desk.dir_of(launched), wait_s=0):
        for _ in range(5):
            assert desk.tick().problems == {}, "somebody may be sending it"
            desk.clock.advance(60)
        desk.clock.advance(1)
        said = desk.tick().problems[launched.run_id]
    assert said.startswith(f"{desk.dir_of(launched).submit_lock} is held")
    assert list(desk.tick().sent) == [launched.run_id]


def test_a_cancelled_run_stays_cancelled(desk: Watched) -> None:
    launched = desk.launch()
    desk.cancel(desk.dir_of(launched))
    other = desk.launch()
    desk.slurm.cancel([other.job_id])  # scancel by hand
    for _ in range(3):
        assert desk.tick().sent == {}
        desk.clock.advance(3600)
    for run_id in (launched.run_id, other.run_id):
        assert desk.seen(run_id).run.state is RunState.CANCELLED


def test_an_unknown_state_is_waited_for_and_said(desk: Watched) -> None:
    launched = desk.launch()
    desk.slurm.set_raw_state(launched.job_id, "LEVITATING")
    for _ in range(3):
        report = desk.tick()
        assert report.sent == {}
        (warning,) = report.warnings
        assert f"job {launched.job_id} is in state 'LEVITATING'" in warning
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
    scripts = [desk.dir_of(launched).attempt(n).script.read_text() for n in (1, 2)]
    assert ["--mem=2048M" in scripts[0], "--mem=3072M" in scripts[1]] == [True, True]
    (job_id,) = desk.alive()
    desk.end(job_id, "PREEMPTED", checkpoint=200)
    desk.look()
    again = desk.resume(desk.dir_of(launched))
    assert "--mem=3072M" in desk.dir_of(launched).attempt(again.attempt).script.read_text()


def test_a_run_that_was_made_and_never_sent_is_sent_when_nobody_can_be_at_it(
    desk: Watched,
) -> None:
    desk.slurm.faults.append(Fault.UNAVAILABLE)
    with pytest.raises(SchedulerUnavailable):
        desk.launch()
    (run_dir,) = list_runs(desk.settings.home)
    run_dir.journal.write_bytes(b"")  # killed before its first intent
    assert desk.tick().sent == {}
    desk.clock.advance(301)
    assert list(desk.tick().sent) == [run_dir.path.name]


def test_what_nobody_foresaw_of_one_run_hides_no_other(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    strange, other = desk.launch(), desk.launch()
    desk.tick()
    for each in (strange, other):
        desk.end(each.job_id, "COMPLETED", exit_code=0)

    def fails(run_dir: RunDir, *_: Any) -> bool:
        if run_dir.path == strange.run_dir:
            raise ZeroDivisionError("a bug")
        return True

    monkeypatch.setattr("hpcflow.reconcile.attempts.prepare_end", fails)
    assert desk.tick().warnings == [f"{strange.run_id}: ZeroDivisionError: a bug"]
    assert desk.seen(other.run_id).run.state is RunState.COMPLETED


def test_what_only_a_person_can_mend_is_said_with_what_to_type(desk: Watched) -> None:
    launched = desk.launch()
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    desk.look()
    run_json = desk.dir_of(launched).run_json
    whole = run_json.read_text()
    run_json.write_text("{")
    said = desk.tick().problems[launched.run_id]
    assert said.endswith(
        f" → if the run was mirrored: hpcflow restore {launched.run_id}; "
        "else start a new run: hpcflow run CONFIG"
    )
    run_json.write_text(whole)
    desk.slurm.faults.append(Fault.UNAVAILABLE)
    assert "→" not in str(desk.tick()), "the next round tries again by itself"


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
        ended_at=datetime(8999, 12, 31, tzinfo=timezone.utc),
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
    desk.dir_of(launched).journal.unlink()
    for _ in range(3):
        report = desk.tick()
        assert report.sent == {}
        assert "journal" in report.problems[launched.run_id]
        desk.clock.advance(3600)
    assert not desk.dir_of(launched).journal.exists()


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
    desk.clock.advance(3600)
    assert desk.tick().decisions[run_id].action is Action.STOP
    assert desk.alive() == []
    run_dir = desk.settings.home.scratch_link(run_id).readlink()
    *_, told = _story(desk, run_id).entries
    assert (told.attempt, told.action, told.rule) == (0, "stop", "forgotten")
    desk.say(run_dir, Released(at=desk.clock.now(), by="ada"))
    assert run_id in desk.tick().sent
    told_since = _story(desk, run_id).entries[-3:]
    assert [each.action or each.kind for each in told_since] == ["stop", "released", "resubmit"]


def _story(desk: Watched, run_id: str) -> Story:
    records = journal.read(run_dir_of(desk.settings.home, run_id))
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
    assert next_words(desk.seen(launched.run_id).run) == "stop: no_progress"


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
    assert (len(report.sent), report.has_lost_lease) == (1, True)
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
    before = [desk.dir_of(launched).journal.read_bytes() for launched in runs]
    report = desk.tick(may_act=lambda: has_lease)
    assert (report.sent, report.decisions, report.has_lost_lease) == ({}, {}, True)
    assert [desk.dir_of(launched).journal.read_bytes() for launched in runs] == before


@pytest.mark.parametrize(
    "part",
    [
        *(
            "lift_begin_times",
            "warn_of_exclusions",
            "warn_of_owner_mismatch",
            "look_after_standbys",
        ),
        *("look_for_stalls", "end_overspent", "Restores.restore_for_jobs"),
    ],
)
@pytest.mark.parametrize("error", [StorageError("a disk is full"), KeyError("a")], ids=str)
def test_a_duty_that_fails_keeps_no_other_from_being_done(
    desk: Watched, monkeypatch: pytest.MonkeyPatch, part: str, error: Exception
) -> None:
    runs = [desk.launch() for _ in range(2)]
    for launched in runs:
        desk.end(launched.job_id, "PREEMPTED", checkpoint=100)

    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(f"hpcflow.requeue.tick.{part}", fail)
    report = desk.tick()
    assert report.sent.keys() == {launched.run_id for launched in runs}
    assert len(report.warnings) == 1
