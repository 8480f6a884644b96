"""Standbys while something goes wrong: with Slurm, with their jobs, with their daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcflow.errors import SchedulerError, SchedulerUnavailable
from hpcflow.launch import submission
from hpcflow.launch.run import Launched
from hpcflow.launch.submission import seal
from hpcflow.model.journal import Submitted
from hpcflow.model.state import Cause, RunState
from hpcflow.storage.journal import Journal
from hpcflow.testing.fake_scheduler import FakeScheduler, Fault
from tests.requeue.killing import Killed
from tests.requeue.standbys import (
    begins,
    cannot_be_cancelled,
    job,
    says,
    told,
    waiting_standby,
    with_standby,
)
from tests.requeue.watched import Watched


@pytest.fixture
def desk(tmp_path: Path) -> Watched:
    desk = Watched(tmp_path)
    desk.config.write_text(desk.config.read_text() + "retry: {standby: true}\n")
    return desk


@pytest.mark.parametrize("fault", [Fault.DELAYED, Fault.UNAVAILABLE, Fault.LOST_REQUEST])
def test_what_slurm_does_not_take_now_is_tried_later_and_harms_nobody(
    desk: Watched, fault: Fault
) -> None:
    launched = desk.launch()
    desk.slurm.faults.append(fault)
    assert desk.tick().standbys == {}
    desk.slurm.calls.clear()
    desk.tick()
    assert "submit" not in desk.slurm.calls
    assert desk.seen(launched.run_id).run.state is RunState.RUNNING
    desk.clock.advance(31)
    assert list(desk.tick().standbys) == [launched.run_id]
    assert len(desk.alive()) == 2


def test_what_slurm_will_never_take_is_asked_for_once_an_attempt(desk: Watched) -> None:
    launched = desk.launch()
    desk.slurm.faults.append(Fault.REFUSED)
    desk.tick()
    desk.slurm.calls.clear()
    for _ in range(5):
        desk.clock.advance(3600)
        desk.tick()
    assert "submit" not in desk.slurm.calls
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    assert list(desk.tick().sent) == [launched.run_id], "the run itself is not refused"
    assert [each.attempt for each in desk.seen(launched.run_id).attempts] == [1, 2]


def test_an_answer_that_is_lost_doubles_nothing(desk: Watched) -> None:
    launched = desk.launch()
    desk.slurm.faults.append(Fault.CONTROLLER_DIES)
    assert desk.tick().standbys == {}
    desk.tick()
    desk.slurm.is_controller_down = False
    for _ in range(3):
        desk.clock.advance(60)
        desk.tick()
    assert len(desk.alive()) == 2
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    (standby,) = desk.alive()
    begins(desk, launched, 2, standby)
    for _ in range(2):
        desk.tick()
    assert len(desk.alive()) == 1 + 1, "the standby, and its own"


def _starts(desk: Watched, launched: Launched, standby: str, raw_state: str) -> None:
    """Attempt 1 is preempted after it was told to leave, and the standby starts."""
    says(desk, launched, 1, {"event": "notice", "signal": "USR2"})
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    desk.slurm.start(standby)
    desk.slurm.set_raw_state(standby, raw_state)


def test_one_that_has_just_started_is_left_to_judge_by_itself(desk: Watched) -> None:
    """It makes its claim within seconds; taken away from it, the nodes would be lost."""
    launched, standby = waiting_standby(desk)
    _starts(desk, launched, standby, "RUNNING")
    for _ in range(3):
        assert desk.tick().sent == {}
        desk.clock.advance(5)
    begins(desk, launched, 2, standby)
    desk.tick()
    seen = desk.seen(launched.run_id)
    assert told(seen) == [(1, launched.job_id, Cause.PREEMPTED), (2, standby, None)]


@pytest.mark.parametrize("how", ["leaves", "hangs"])
def test_one_that_leaves_or_never_judges_costs_the_run_nothing(desk: Watched, how: str) -> None:
    """No scontrol on its nodes, say: it leaves with exit code 1, and its node is cleared away."""
    launched, standby = waiting_standby(desk)
    _starts(desk, launched, standby, "COMPLETING" if how == "leaves" else "RUNNING")
    if how == "hangs":
        assert desk.tick().sent == {}
        desk.clock.advance(181)
    (sent,) = desk.tick().sent.values()
    assert sent != standby
    with pytest.raises(FileExistsError):
        begins(desk, launched, 2, standby)
    assert Cause.FAILED not in [each.cause for each in desk.seen(launched.run_id).attempts]
    assert desk.alive() == [sent]


def test_one_that_may_not_be_cancelled_hides_no_other_run(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """slurmctld restarted without its state, and the id is another user's now."""
    launched, standby = with_standby(desk)
    desk.config.write_text(desk.config.read_text().replace("standby: true", "standby: false"))
    other = desk.launch()
    desk.tick()
    error = SchedulerError("you may not cancel these jobs: Access/permission denied")
    cannot_be_cancelled(monkeypatch, standby, error)
    desk.slurm.forget(standby)
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    (sent,) = desk.tick().sent.values()
    assert sent not in (standby, launched.job_id)
    desk.end(other.job_id, "COMPLETED", exit_code=0)
    report = desk.tick()
    assert (report.warnings, report.problems) == ([], {})
    assert desk.seen(other.run_id).run.state is RunState.COMPLETED


def test_one_that_scancel_complains_of_holds_up_no_other_run(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the first in every round, for it ended before the others did."""
    launched, standby = with_standby(desk)
    desk.config.write_text(desk.config.read_text().replace("standby: true", "standby: false"))
    others = [desk.launch() for _ in range(3)]
    error = SchedulerUnavailable("scancel got no answer: in words that nobody knows")
    desk.slurm.forget(standby)
    with monkeypatch.context() as patch:
        cannot_be_cancelled(patch, standby, error)
        desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
        desk.tick()
        desk.clock.advance(60)
        for other in others:
            desk.end(other.job_id, "PREEMPTED", checkpoint=100)
        report = desk.tick()
    assert set(report.sent) == {other.run_id for other in others}
    assert report.problems == {launched.run_id: error.message}
    assert list(desk.tick().sent) == [launched.run_id]


@pytest.mark.parametrize("ended_as", ["PREEMPTED", "COMPLETED"])
def test_a_job_that_was_given_its_id_is_left_alone(desk: Watched, ended_as: str) -> None:
    launched, standby = with_standby(desk)
    desk.config.write_text(desk.config.read_text().replace("standby: true", "standby: false"))
    desk.slurm.forget(standby)
    desk.slurm.next_id = standby
    other = desk.launch()
    assert other.job_id == standby
    desk.end(launched.job_id, ended_as, checkpoint=100, exit_code=0)
    desk.tick()
    assert job(desk, standby).raw_state == "RUNNING"


def test_where_slurm_is_silent_it_is_given_up_all_the_same(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That takes a file alone, and else it would begin any moment."""
    first, _ = waiting_standby(desk)
    desk.config.write_text(
        desk.config.read_text().replace("standby: true", "standby: true, deadline: 1h")
    )
    launched = desk.launch()
    desk.slurm.start(launched.job_id)
    begins(desk, launched, 1, launched.job_id)
    standby = desk.tick().standbys[launched.run_id]
    desk.clock.advance(3700)
    for each in (first, launched):
        desk.end(each.job_id, "PREEMPTED", checkpoint=100)
    desk.look()

    def silent(*_: Any) -> Any:
        raise SchedulerUnavailable("Unable to contact slurm controller (connect failure)")

    monkeypatch.setattr("hpcflow.requeue.tick.resubmit", silent)
    monkeypatch.setattr(FakeScheduler, "cancel", silent)
    assert first.run_id in desk.tick().problems
    with pytest.raises(FileExistsError):
        begins(desk, launched, 2, standby)


def test_one_that_cannot_be_cancelled_keeps_no_other_run_from_having_one(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched, standby = with_standby(desk)
    error = SchedulerUnavailable("scancel: error: in words that nobody knows")
    cannot_be_cancelled(monkeypatch, standby, error)
    desk.end(launched.job_id, "COMPLETED", exit_code=0)
    desk.slurm.set_raw_state(standby, "PENDING")
    other = desk.launch()
    begins(desk, other, 1, other.job_id)
    assert list(desk.tick().standbys) == [other.run_id]


def test_no_more_are_tried_than_sent_where_a_limit_is_full(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(20):
        launched = desk.launch()
        begins(desk, launched, 1, launched.job_id)
    desk.slurm.faults += [Fault.DELAYED] * 20
    desk.slurm.calls.clear()
    desk.tick()
    assert desk.slurm.calls.count("submit") == 3
    monkeypatch.setattr("hpcflow.requeue.standbys.MOST_SENT", 2)
    desk.slurm.faults[:] = [Fault.LOST_REQUEST] * 20
    desk.slurm.calls.clear()
    desk.tick()
    assert desk.slurm.calls.count("submit") == 2


def test_while_slurm_cannot_cancel_it_the_standby_can_execute_nothing(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched, standby = with_standby(desk)
    desk.end(launched.job_id, "COMPLETED", exit_code=0)
    desk.look()

    def silent(*_: Any) -> None:
        raise SchedulerUnavailable("Unable to contact slurm controller (connect failure)")

    with monkeypatch.context() as patch:
        patch.setattr(FakeScheduler, "cancel", silent)
        assert launched.run_id in desk.tick().problems
    assert standby in desk.alive()
    with pytest.raises(FileExistsError):
        begins(desk, launched, 2, standby)
    desk.tick()
    assert desk.alive() == []
    assert desk.seen(launched.run_id).run.next_action is None


def test_a_job_that_slurm_restarts_has_no_attempt_beside_its_standby(desk: Watched) -> None:
    """Its script finds that attempt 2 was sent, and leaves; then the standby begins."""
    launched, standby = with_standby(desk)
    desk.slurm.requeue(launched.job_id)
    for _ in range(2):
        desk.tick()
    assert job(desk, standby).reason == "Dependency"
    desk.clock.advance(130)
    desk.slurm.queue()
    desk.end(launched.job_id, "FAILED", exit_code=1)
    desk.slurm.queue()
    begins(desk, launched, 2, standby)
    for _ in range(3):
        desk.tick()
    seen = desk.seen(launched.run_id)
    assert told(seen)[:2] == [(1, launched.job_id, Cause.REQUEUED), (2, standby, None)]
    assert seen.run.state is RunState.RUNNING


@pytest.mark.parametrize("ended_as", ["FAILED", "COMPLETED"])
def test_whose_daemon_was_killed_before_it_knew_the_job_has_none_left_behind(
    desk: Watched, monkeypatch: pytest.MonkeyPatch, ended_as: str
) -> None:
    """A run completed or waits for its backoff; its standby is found by its name, and cancelled."""
    desk.slurm = FakeScheduler(desk.clock, cluster_name="devcluster", starts_at_once=False)
    launched = desk.launch()
    desk.slurm.start(launched.job_id)
    begins(desk, launched, 1, launched.job_id)
    put_down = submission._put_down

    def killed(opened: Journal, intent: Any, record: Any) -> None:
        if isinstance(record, Submitted):
            raise Killed
        put_down(opened, intent, record)

    with monkeypatch.context() as patch:
        patch.setattr(submission, "_put_down", killed)
        with pytest.raises(Killed):
            desk.tick()
    assert len(desk.alive()) == 2
    code = 0 if ended_as == "COMPLETED" else 1
    desk.end(launched.job_id, ended_as, exit_code=code, checkpoint=100)
    desk.tick()
    assert desk.alive() == []
    desk.clock.advance(600)
    assert list(desk.tick().sent) == ([] if ended_as == "COMPLETED" else [launched.run_id])


def test_a_claim_that_is_made_in_the_last_moment_counts(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon gives the standby up, and at that moment it begins."""
    launched, standby = with_standby(desk)
    desk.end(launched.job_id, "FAILED", exit_code=1)
    desk.look()

    def late(*args: Any) -> Any:
        begins(desk, launched, 2, standby)
        return seal(*args)

    monkeypatch.setattr("hpcflow.launch.submission.seal", late)
    desk.tick()
    seen = desk.seen(launched.run_id)
    assert told(seen) == [(1, launched.job_id, Cause.FAILED), (2, standby, None)]
    assert standby in desk.alive()


def test_a_full_limit_keeps_nobody_from_a_standby_that_waits_already(desk: Watched) -> None:
    launched, standby = waiting_standby(desk)
    desk.config.write_text(desk.config.read_text().replace("standby: true", "standby: false"))
    others = [desk.launch() for _ in range(3)]
    for each in others:
        desk.slurm.start(each.job_id)
    desk.tick()
    for each in others:
        desk.end(each.job_id, "PREEMPTED", checkpoint=1)
    desk.look()
    desk.clock.advance(1)
    desk.end(launched.job_id, "PREEMPTED", checkpoint=1)
    desk.slurm.faults += [Fault.DELAYED] * 4
    desk.slurm.calls.clear()
    assert desk.tick().sent == {launched.run_id: standby}
    assert desk.slurm.calls.count("submit") == 3
