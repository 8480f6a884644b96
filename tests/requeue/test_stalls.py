"""A run that shows no progress: noticed, cancelled, sent again. On a cluster in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcflow.cli.output import next_words
from hpcflow.launch.cancel import request_cancel
from hpcflow.model.state import Cause, RunState
from hpcflow.requeue.stalls.checking import NOTICE_WORD
from tests.requeue.training import MINUTE, Training


@pytest.fixture
def desk(tmp_path: Path) -> Training:
    return Training(tmp_path)


def test_a_stalled_run_gets_the_notice_is_cancelled_and_goes_on(desk: Training) -> None:
    launched = desk.launch()
    desk.trains(launched, 20)
    assert desk.waits(29) == []
    assert desk.waits(2) == ["notice"]
    assert desk.files(launched).notice.read_text() == f"{NOTICE_WORD}\n"
    seen = desk.seen(launched.run_id)
    assert (seen.run.state, next_words(seen.run)) == (RunState.RUNNING, "notice: stalled")
    reason = seen.attempts[0].reason or ""
    assert reason.startswith("no progress for 30m 00s (stall_after is 30m 00s); notice given")
    assert desk.waits(1) == ["cancel"]
    desk.tick()
    seen = desk.seen(launched.run_id)
    assert seen.attempts[0].cause is Cause.STALLED
    assert (seen.run.state, next_words(seen.run)) == (RunState.WAITING, "wait: backoff")
    desk.clock.advance(MINUTE)
    assert list(desk.tick().sent) == [launched.run_id]
    assert len(desk.alive()) == 1


def test_slurm_is_asked_no_more_than_without_stalls_until_there_is_one(desk: Training) -> None:
    launched = desk.launch()
    desk.trains(launched, 3)
    desk.slurm.calls.clear()
    desk.waits(29, each_min=1)
    assert set(desk.slurm.calls) == {"queue"}
    assert len(desk.slurm.calls) == 29


def test_whoever_moves_again_is_forgiven_and_may_stall_again(desk: Training) -> None:
    launched = desk.launch()
    desk.trains(launched, 20)
    assert desk.waits(31) == ["notice"]
    desk.event(launched, "progress", train_step=21, metrics={})
    assert desk.waits(1) == ["withdraw"]
    assert not desk.files(launched).notice.exists()
    assert desk.seen(launched.run_id).run.next_action is None
    # It took half an hour once, so three times that is given now.
    assert desk.waits(90) == []
    assert desk.waits(10) == ["notice", "cancel"]


def test_who_hears_the_notice_and_leaves_has_stalled_too(desk: Training) -> None:
    launched = desk.launch()
    desk.trains(launched, 20)
    assert desk.waits(31) == ["notice"]
    desk.event(launched, "progress", train_step=21, metrics={})
    desk.event(launched, "notice", signal="flag")
    desk.event(launched, "checkpoint", train_step=21, path="checkpoints/21", size_bytes=1)
    assert desk.waits(1) == [], "it saves; nobody disturbs it"
    desk.slurm.end(launched.job_id, "FAILED", exit_code=75)
    desk.tick()
    assert desk.seen(launched.run_id).attempts[0].cause is Cause.STALLED


def test_who_heard_the_notice_just_before_it_was_withdrawn_must_leave_too(desk: Training) -> None:
    launched = desk.launch()
    desk.trains(launched, 20)
    assert desk.waits(31) == ["notice"]
    desk.event(launched, "progress", train_step=21, metrics={})
    assert desk.waits(1) == ["withdraw"]
    desk.event(launched, "notice", signal="flag")
    assert desk.waits(3) == []
    desk.event(launched, "checkpoint", train_step=21, path="checkpoints/21", size_bytes=1)
    assert desk.waits(3) == [], "it saves, and is given the time that this takes"
    assert desk.waits(2) == ["cancel"]
    desk.tick()
    assert desk.seen(launched.run_id).attempts[0].cause is Cause.STALLED


@pytest.mark.parametrize(
    ("signal", "leaves_file"), [("USR2", True), ("flag", True), ("TERM", False)]
)
def test_a_notice_of_slurm_after_ours_was_withdrawn_is_none_of_ours(
    desk: Training, signal: str, leaves_file: bool
) -> None:
    launched = desk.launch()
    desk.trains(launched, 20)
    assert desk.waits(31) == ["notice"]
    desk.event(launched, "progress", train_step=21, metrics={})
    assert desk.waits(1) == ["withdraw"]
    if leaves_file:
        desk.files(launched).notice.write_text("USR2\n")  # by the job script
    desk.event(launched, "notice", signal=signal)
    assert desk.waits(60) == []


def test_who_leaves_is_given_the_time_that_its_saves_take(desk: Training) -> None:
    launched = desk.launch()
    desk.trains(launched, 20)
    assert desk.waits(8) == []
    desk.event(launched, "checkpoint", train_step=20, path="checkpoints/20", size_bytes=1)
    assert desk.waits(31) == ["notice"]
    desk.event(launched, "progress", train_step=21, metrics={})
    desk.event(launched, "notice", signal="flag")
    assert desk.waits(24) == []
    assert desk.waits(2) == ["cancel"], "three times that, and not three times its silence"


def test_who_hangs_while_it_leaves_is_cancelled(desk: Training) -> None:
    launched = desk.launch()
    desk.trains(launched, 20)
    desk.waits(31)
    desk.event(launched, "notice", signal="flag")
    assert desk.waits(6) == ["cancel"]


@pytest.mark.parametrize("hears", [False, True])
def test_what_hangs_after_it_has_finished_is_ended_and_has_completed(
    desk: Training, hears: bool
) -> None:
    launched = desk.launch()
    desk.trains(launched, 20)
    desk.event(launched, "finished", train_step=20, metrics={}, model="checkpoints/20")
    assert desk.waits(31) == ["notice"]
    if hears:
        desk.slurm.end(launched.job_id, "FAILED", exit_code=75)
    else:
        assert desk.waits(3) == ["cancel"]
    desk.waits(60)
    seen = desk.seen(launched.run_id)
    assert (seen.run.state, seen.run.final_model) == (RunState.COMPLETED, "checkpoints/20")
    assert (seen.attempts[0].rule or "").startswith(
        "it had reported that it finished; no progress for"
    )
    assert desk.alive() == []


def test_what_trains_on_after_it_has_finished_once_stalls_as_others_do(desk: Training) -> None:
    """One command, two trainings."""
    launched = desk.launch()
    desk.trains(launched, 5)
    desk.event(launched, "finished", train_step=5, metrics={}, model="checkpoints/5")
    desk.trains(launched, 5)
    assert desk.waits(35) == ["notice", "cancel"]
    desk.tick()
    assert desk.seen(launched.run_id).attempts[0].cause is Cause.STALLED


def test_the_notice_of_the_time_limit_is_no_stall_and_stays(desk: Training) -> None:
    launched = desk.launch()
    desk.trains(launched, 20)
    desk.event(launched, "notice", signal="USR2")
    assert desk.waits(60) == []
    other = desk.launch()
    desk.trains(other, 20)
    desk.waits(31)
    desk.files(other).notice.write_text("USR2\n")  # by the job script
    desk.event(other, "progress", train_step=21, metrics={})
    assert desk.waits(1) == ["withdraw"]
    assert desk.files(other).notice.exists()


def test_a_suspended_job_does_not_stall_and_its_patience_begins_anew(desk: Training) -> None:
    launched = desk.launch()
    desk.trains(launched, 20)
    desk.waits(25)
    desk.slurm.set_raw_state(launched.job_id, "SUSPENDED")
    assert desk.waits(60) == []
    desk.slurm.set_raw_state(launched.job_id, "RUNNING")
    assert desk.waits(29) == []
    assert desk.waits(3) == ["notice"]


@pytest.mark.parametrize("had_notice", [False, True])
def test_a_job_that_slurm_restarts_is_watched_from_its_start_on(
    desk: Training, had_notice: bool
) -> None:
    launched = desk.launch()
    desk.trains(launched, 20)
    if had_notice:
        desk.event(launched, "notice", signal="USR2")
    desk.waits(25)
    desk.slurm.set_raw_state(launched.job_id, "PENDING")
    assert desk.waits(60) == []
    desk.slurm.set_raw_state(launched.job_id, "RUNNING")
    assert desk.waits(29) == []
    desk.trains(launched, 2)
    assert desk.waits(29) == []
    assert desk.waits(2) == ["notice"]


def test_a_job_that_waits_again_after_its_notice_says_why_it_waits(desk: Training) -> None:
    launched = desk.launch()
    desk.trains(launched, 20)
    assert desk.waits(30) == ["notice"]
    desk.slurm.set_raw_state(launched.job_id, "PENDING")
    desk.slurm.wait_for(launched.job_id, "BeginTime")
    desk.tick()
    assert desk.seen(launched.run_id).attempts[0].reason == "BeginTime"
    before = desk.dir_of(launched).journal.read_bytes()
    desk.waits(3)
    assert desk.dir_of(launched).journal.read_bytes() == before


@pytest.mark.parametrize("raw_state", ["COMPLETING", "PENDING", "LEVITATING"])
def test_what_does_not_run_is_left_alone(desk: Training, raw_state: str) -> None:
    launched = desk.launch()
    desk.trains(launched, 20)
    desk.slurm.set_raw_state(launched.job_id, raw_state)
    assert desk.waits(60) == []


def test_a_validation_that_took_long_once_may_take_long_again(desk: Training) -> None:
    launched = desk.launch()
    desk.trains(launched, 5)
    assert desk.waits(25) == []
    desk.event(launched, "progress", train_step=6, metrics={"accuracy": 0.5})
    assert desk.waits(70) == []
    assert desk.waits(10) == ["notice", "cancel"]


def test_slow_train_steps_are_given_as_many_of_them(desk: Training) -> None:
    launched = desk.launch_with("{stall_factor: 100}")
    desk.trains(launched, 20)
    assert desk.waits(99) == []
    assert "notice" in desk.waits(60)
    assert "100 times the 1m" in desk.why(launched)


def test_a_run_that_never_reports_is_left_alone(desk: Training) -> None:
    launched = desk.launch()
    desk.event(launched, "started", job_id="1", nodes=["n1"])
    assert desk.waits(90) == []
    assert desk.acts(launched) == []


def test_a_checkpoint_now_and_then_is_no_promise_of_more(desk: Training) -> None:
    launched = desk.launch()
    desk.event(launched, "started", job_id="1", nodes=["n1"])
    for step in (100, 200):
        path = f"checkpoints/{step}"
        desk.event(launched, "checkpoint", train_step=step, path=path, size_bytes=1)
        assert desk.waits(40) == []


def test_never_is_never(desk: Training) -> None:
    launched = desk.launch_with("{stall_after: never}")
    desk.trains(launched, 20)
    assert desk.waits(90) == []


def test_a_program_that_only_prints_is_watched_by_its_log_when_asked(desk: Training) -> None:
    launched = desk.launch_with("{stall_log: true}")
    desk.event(launched, "started", job_id="1", nodes=["n1"])
    for _ in range(40):
        with desk.files(launched).log.open("a") as file:
            file.write("loss 0.1\n")
        assert desk.waits(1) == []
    assert desk.waits(29) == []
    assert desk.waits(5) == ["notice", "cancel"]
    desk.tick()
    assert desk.seen(launched.run_id).attempts[0].cause is Cause.STALLED


def test_a_start_that_hangs_is_given_longer_and_only_where_it_ever_reported(
    desk: Training,
) -> None:
    launched = desk.launch()
    desk.trains(launched, 5)
    desk.end(launched.job_id, "PREEMPTED", checkpoint=5)
    desk.tick()
    desk.event(launched, "started", attempt=2, job_id="2", nodes=["n1"])
    assert desk.waits(59) == []
    assert desk.waits(5) == ["notice", "cancel"]


def test_each_stall_doubles_the_patience_of_the_next_attempt(desk: Training) -> None:
    """Perhaps it was only slow; then it is not ended for that again and again."""
    launched = desk.launch()
    desk.trains(launched, 20)
    assert desk.waits(40) == ["notice", "cancel"]
    assert len(desk.alive()) == 1
    desk.trains(launched, 5, attempt=2)
    assert desk.waits(59) == []
    assert desk.waits(5) == ["notice", "cancel"]


def test_who_hears_the_notice_each_time_is_given_twice_as_long_and_not_more(
    desk: Training,
) -> None:
    """The silence in which it stalled is not taken for its rhythm, too."""
    launched = desk.launch()
    for attempt, minutes in ((1, 30), (2, 60), (3, 120)):
        desk.trains(launched, 2, attempt=attempt)
        assert desk.waits(minutes - 1) == []
        assert desk.waits(2) == ["notice"]
        for kind in ("progress", "notice"):
            desk.event(launched, kind, attempt=attempt, train_step=3)
        desk.end(desk.alive()[0], "FAILED", exit_code=75, checkpoint=attempt)
        desk.tick()
        desk.clock.advance(3600)
        desk.tick()
        assert desk.seen(launched.run_id).attempts[attempt - 1].cause is Cause.STALLED


def test_a_persons_cancel_wins(desk: Training) -> None:
    launched, other = desk.launch(), desk.launch()
    for each in (launched, other):
        desk.trains(each, 1)
    desk.waits(30)
    assert [desk.acts(each) for each in (launched, other)] == [["notice"], ["notice"]]
    desk.cancel(desk.dir_of(launched))
    desk.slurm.cancel([other.job_id])  # scancel by hand
    assert desk.waits(3) == []
    for each in (launched, other):
        assert desk.seen(each.run_id).run.state is RunState.CANCELLED


def test_who_is_to_be_cancelled_gets_no_notice(desk: Training) -> None:
    """hpcflow cancel was requested while Slurm did not answer; its job runs on."""
    launched = desk.launch()
    desk.trains(launched, 1)
    request_cancel(desk.dir_of(launched), settings=desk.settings, clock=desk.clock)
    assert desk.waits(40) == []


def test_those_that_stall_together_are_cancelled_in_one_call(desk: Training) -> None:
    runs = [desk.launch() for _ in range(5)]
    for each in runs:
        desk.trains(each, 1)
    desk.slurm.calls.clear()
    while len(desk.alive()) == 5:
        desk.waits(1)
    assert desk.slurm.calls.count("cancel") == 1
