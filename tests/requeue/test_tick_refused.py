"""Slurm does not take what is sent, or does not say: no run is lost, and none waits for others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcflow.cli.output import next_words
from hpcflow.errors import HpcflowError, SchedulerUnavailable, SubmissionDelayed, SubmissionInDoubt
from hpcflow.model.ids import job_name
from hpcflow.model.journal import Intended, Refused, Released
from hpcflow.model.state import RunState
from hpcflow.requeue import run_errors
from hpcflow.schedulers.base import JobRef, SubmitRequest
from hpcflow.storage.journal import Journal
from hpcflow.storage.locks import submit_lock
from hpcflow.storage.runs import list_runs
from hpcflow.testing.fake_scheduler import FakeScheduler, Fault
from tests.requeue.watched import Watched


@pytest.fixture
def desk(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


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
    assert (seen.state, next_words(seen)) == (RunState.FAILED, "stop: refused")
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


def test_a_cancel_request_outlives_a_scancel_that_fails(
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


def test_of_very_many_in_doubt_some_are_settled_at_each_look(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is an open file for the length of the look."""
    monkeypatch.setattr("hpcflow.reconcile.attempts._MOST_UNSETTLED", 2)
    for _ in range(5):
        desk.slurm.faults.append(Fault.CONTROLLER_DIES)
        with pytest.raises(HpcflowError):
            desk.launch()
        desk.slurm.is_controller_down = False
    desk.clock.advance(301)
    left = []
    for _ in range(3):
        desk.look()
        runs = list_runs(desk.settings.home)
        left.append(sum(Journal(each).history.last.is_open for each in runs))
    assert left == [3, 1, 0]


def test_that_a_limit_is_full_is_found_out_by_few(desk: Watched) -> None:
    """Each try costs slurmctld two calls; where another limit counts, there may be room."""
    runs = [desk.launch() for _ in range(20)]
    desk.config.write_text(desk.config.read_text().replace("physics", "physics, qos: long"))
    other = desk.launch()
    for each in runs:
        desk.end(each.job_id, "PREEMPTED", checkpoint=100)
    desk.look()
    desk.clock.advance(1)
    desk.end(other.job_id, "PREEMPTED", checkpoint=100)
    desk.slurm.faults += [Fault.DELAYED] * 3
    desk.slurm.calls.clear()
    first = desk.tick()
    assert (desk.slurm.calls.count("submit"), list(first.sent)) == (4, [other.run_id])
    assert len(first.decisions) == 21, "what becomes of them is known all the same"
    sent = set(desk.tick().sent)
    desk.clock.advance(31)
    sent |= set(desk.tick().sent)
    assert sent == {each.run_id for each in runs}


def test_an_account_that_expires_under_many_runs_is_found_out_by_some_in_a_round(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is refused once, and looked up; with the account renewed, those that are left go on."""
    monkeypatch.setattr(run_errors, "_MOST_REFUSED", 3)
    runs = [desk.launch() for _ in range(9)]
    for each in runs:
        desk.end(each.job_id, "PREEMPTED", checkpoint=100)
    desk.look()
    for _ in range(2):
        desk.slurm.faults[:] = [Fault.REFUSED] * 9
        desk.slurm.calls.clear()
        assert desk.tick().sent == {}
        assert [desk.slurm.calls.count(call) for call in ("queue", "submit", "find")] == [2, 3, 3]
        desk.clock.advance(10)
    desk.slurm.faults.clear()
    assert len(desk.tick().sent) == 3
    states = [desk.seen(each.run_id).run.state for each in runs]
    assert states.count(RunState.FAILED) == 6


def test_runs_that_slurm_refuses_for_their_own_sake_hold_up_no_other(desk: Watched) -> None:
    runs = [desk.launch() for _ in range(11)]
    for each in runs:
        desk.end(each.job_id, "PREEMPTED", checkpoint=100)
    desk.slurm.faults[:] = [Fault.REFUSED] * 10
    assert len(desk.tick().sent) == 1


def test_whoever_is_in_doubt_for_slurm_is_silent_finds_that_out_for_all(desk: Watched) -> None:
    for launched in [desk.launch() for _ in range(5)]:
        desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    desk.slurm.faults.append(Fault.CONTROLLER_DIES)
    desk.slurm.calls.clear()
    (problem,) = desk.tick().problems.values()
    assert "may or may not exist" in problem
    assert [desk.slurm.calls.count(call) for call in ("submit", "find")] == [1, 1]


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


@pytest.mark.parametrize("error", [SubmissionDelayed, SubmissionInDoubt])
@pytest.mark.parametrize(
    ("interval_s", "others"),
    [
        *[(900, 1), (900, 4), (60, 20), (10, 30)],
        *[pytest.param(*case, marks=pytest.mark.soak) for case in ((60, 45), (10, 70))],
    ],
)
def test_who_can_be_sent_has_its_turn(
    desk: Watched,
    monkeypatch: pytest.MonkeyPatch,
    interval_s: float,
    others: int,
    error: type[HpcflowError],
) -> None:
    """However many are never taken, and are due again at each round. A plugin of the site that
    refuses without a word: sbatch cannot tell that from a lost answer."""
    never = {desk.launch().run_id for _ in range(others)}
    desk.clock.advance(1)
    well = desk.launch()
    submit = FakeScheduler.submit

    def deny(slurm: FakeScheduler, request: SubmitRequest) -> JobRef:
        if request.job_name.split(":")[0] in never:
            raise error("Job violates accounting/QOS policy")
        return submit(slurm, request)

    monkeypatch.setattr(FakeScheduler, "submit", deny)
    for job_id in desk.alive():
        desk.end(job_id, "PREEMPTED", checkpoint=100)
    desk.look()
    desk.clock.advance(1)
    rounds = 1
    while well.run_id not in desk.tick().sent:
        desk.clock.advance(interval_s)
        rounds += 1
        assert rounds <= 1 + others // 3
