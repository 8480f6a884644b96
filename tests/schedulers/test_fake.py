"""The shipped fake keeps the contract, and goes wrong on demand as a real cluster does."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from hpcflow.errors import (
    SchedulerUnavailable,
    SubmissionDelayed,
    SubmissionInDoubt,
    SubmissionRefused,
)
from hpcflow.model.state import AttemptState
from hpcflow.schedulers.base import Scheduler, SubmitRequest
from hpcflow.testing.clock import FakeClock
from hpcflow.testing.fake_scheduler import FakeScheduler, Fault
from hpcflow.testing.scheduler_contract import LostAnswerContract


class TestContract(LostAnswerContract):
    @pytest.fixture(autouse=True)
    def clock(self) -> FakeClock:
        self._clock = FakeClock()
        return self._clock

    @pytest.fixture
    def scheduler(self, clock: FakeClock) -> Scheduler:
        return FakeScheduler(clock)

    @pytest.fixture
    def forgetful(self, scheduler: Scheduler) -> Scheduler:
        assert isinstance(scheduler, FakeScheduler)
        scheduler.faults.append(Fault.LOST_ANSWER)
        return scheduler

    @pytest.fixture
    def directory(self, tmp_path: Path) -> Path:
        return tmp_path

    def let_pass(self, seconds: float) -> None:
        self._clock.advance(seconds)

    def now(self) -> datetime:
        return self._clock.now()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def request_(tmp_path: Path) -> SubmitRequest:
    script = tmp_path / "job.sbatch"
    script.write_text("#!/bin/bash\n")
    return SubmitRequest(script, tmp_path, "x-20260101-aaaaaaaa:1")


def test_the_queue_forgets_and_accounting_does_not(
    clock: FakeClock, request_: SubmitRequest
) -> None:
    fake = FakeScheduler(clock, min_job_age_s=300)
    since = clock.now()
    job_id = fake.submit(request_).job_id
    fake.end(job_id, "COMPLETED", exit_code=0)
    clock.advance(299)
    assert [job.job_id for job in fake.queue([job_id])] == [job_id]
    clock.advance(2)
    assert fake.queue([job_id]) == []
    assert [job.raw_state for job in fake.accounting([job_id], since)] == ["COMPLETED"]
    assert [job.job_id for job in fake.find(request_.job_name, since).jobs] == [job_id]


def test_absence_is_no_proof_while_accounting_is_silent(
    clock: FakeClock, request_: SubmitRequest
) -> None:
    fake = FakeScheduler(clock, min_job_age_s=300)
    since = clock.now()
    job_id = fake.submit(request_).job_id
    fake.end(job_id, "FAILED", exit_code=1)
    fake.is_accounting_down = True
    assert fake.find(request_.job_name, since).is_certain  # the queue still remembers
    clock.advance(301)
    lookup = fake.find(request_.job_name, since)
    assert lookup.jobs == ()
    assert not lookup.is_certain
    with pytest.raises(SchedulerUnavailable):
        fake.accounting([job_id], since)


def test_a_requeued_job_keeps_its_id_and_both_its_records(
    clock: FakeClock, request_: SubmitRequest
) -> None:
    fake = FakeScheduler(clock)
    since = clock.now()
    job_id = fake.submit(request_).job_id
    clock.advance(10)
    fake.requeue(job_id)
    (job,) = fake.queue([job_id])
    assert (job.state, job.restarts) == (AttemptState.QUEUED, 1)
    clock.advance(10)
    fake.start(job_id, ["n2"])
    fake.end(job_id, "NODE_FAIL")
    raw_states = [job.raw_state for job in fake.accounting([job_id], since)]
    assert raw_states == ["REQUEUED", "NODE_FAIL"]


@pytest.mark.parametrize(
    ("fault", "error", "exists"),
    [
        (Fault.LOST_ANSWER, SubmissionInDoubt, True),
        (Fault.LOST_REQUEST, SubmissionInDoubt, False),
        (Fault.REFUSED, SubmissionRefused, False),
        (Fault.DELAYED, SubmissionDelayed, False),
        (Fault.UNAVAILABLE, SchedulerUnavailable, False),
    ],
)
def test_each_fault_strikes_once_and_leaves_what_it_says(
    clock: FakeClock,
    request_: SubmitRequest,
    fault: Fault,
    error: type[Exception],
    exists: bool,
) -> None:
    fake = FakeScheduler(clock)
    fake.faults.append(fault)
    with pytest.raises(error):
        fake.submit(request_)
    assert bool(fake.find(request_.job_name, clock.now() - timedelta(hours=1)).jobs) is exists
    fake.submit(request_)


def test_a_limit_on_jobs_passes_when_one_ends(clock: FakeClock, request_: SubmitRequest) -> None:
    fake = FakeScheduler(clock, max_jobs=1)
    job_id = fake.submit(request_).job_id
    with pytest.raises(SubmissionDelayed):
        fake.submit(request_)
    fake.preempt(job_id)
    fake.submit(request_)


def test_a_controller_that_is_down_answers_nothing(
    clock: FakeClock, request_: SubmitRequest
) -> None:
    fake = FakeScheduler(clock)
    job_id = fake.submit(request_).job_id
    fake.is_controller_down = True
    for call in (
        lambda: fake.submit(request_),
        lambda: fake.queue([job_id]),
        lambda: fake.find(request_.job_name, clock.now()),
        lambda: fake.cancel([job_id]),
        fake.cluster_info,
    ):
        with pytest.raises(SchedulerUnavailable):
            call()
    fake.is_controller_down = False
    assert fake.queue([job_id])[0].state is AttemptState.RUNNING


def test_an_unknown_state_is_unknown(clock: FakeClock, request_: SubmitRequest) -> None:
    fake = FakeScheduler(clock)
    job_id = fake.submit(request_).job_id
    fake.set_raw_state(job_id, "LEVITATING")
    assert fake.queue([job_id])[0].state is AttemptState.UNKNOWN
