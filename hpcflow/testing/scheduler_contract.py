"""The contract of every scheduler, as tests. Subclass it, add the two fixtures, run pytest::

    class TestMyScheduler(SchedulerContract):
        @pytest.fixture
        def scheduler(self) -> Scheduler: ...
        @pytest.fixture
        def directory(self, tmp_path) -> Path: ...   # a fresh folder where jobs may write

:class:`LostAnswerContract` is for schedulers whose sbatch can lose its answer. It needs a third
fixture, ``forgetful``: the same scheduler, whose next submission creates the job but loses the
answer. Scripts are real bash; the comment ``# fake: …`` tells the fake what they do.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from hpcflow.errors import SubmissionInDoubt, SubmissionRefused
from hpcflow.model.state import AttemptState
from hpcflow.schedulers.base import JobInfo, JobRef, Scheduler, SubmitRequest

SLEEPS = "# fake:\nsleep 600"
"""A script that runs until it is cancelled."""

#: A path with characters that are special in a shell.
WEIRD = "a b'c\"d;$(touch oops)&*"


class SchedulerContract:
    """The tests. A subclass may override the methods before them."""

    #: Longest time that a small job may take from submission to its end.
    patience_s = 60.0

    def refused_lines(self) -> str:
        return "#SBATCH --partition=nowhere"

    def begin_lines(self) -> str:
        """Lines of a script that begins in an hour."""
        return "#SBATCH --begin=now+3600"

    def waiting_lines(self, job_id: str) -> str:
        """Lines of a script that waits for the end of a job; none if the scheduler has no wait."""
        return f"#SBATCH --dependency=afterany:{job_id}"

    def let_pass(self, seconds: float) -> None:
        time.sleep(seconds)

    def now(self) -> datetime:
        """The scheduler's time, give or take a second."""
        return datetime.now(timezone.utc)

    # --- tools -----------------------------------------------------------------------------

    def request(
        self, directory: Path, body: str, *, lines: str = "", lock_fd: int | None = None
    ) -> SubmitRequest:
        """Return a request with a unique job name."""
        job_name = f"contract-20260101-{secrets.token_hex(4)}:1"
        folder = directory / job_name.replace(":", "-")
        folder.mkdir(mode=0o777)
        folder.chmod(0o777)
        script = folder / "job.sbatch"
        head = f"#!/bin/bash\n#SBATCH --job-name={job_name}\n#SBATCH --output=out.log\n{lines}\n"
        script.write_text(f"{head}{body}\n")
        return SubmitRequest(script, folder, job_name, lock_fd)

    def until(
        self, scheduler: Scheduler, job_id: str, condition: Callable[[JobInfo], bool]
    ) -> JobInfo:
        seen: list[JobInfo] = []
        waited_s = 0.0
        while waited_s < self.patience_s:
            seen = scheduler.queue([job_id])
            if seen and condition(seen[0]):
                return seen[0]
            self.let_pass(0.3)
            waited_s += 0.3
        raise AssertionError(f"not within {self.patience_s} s; last seen: {seen}")

    def ended(self, scheduler: Scheduler, job_id: str) -> JobInfo:
        return self.until(scheduler, job_id, lambda job: job.state is AttemptState.ENDED)

    def running(self, scheduler: Scheduler, job_id: str) -> JobInfo:
        return self.until(scheduler, job_id, lambda job: job.state is AttemptState.RUNNING)

    # --- the contract ----------------------------------------------------------------------

    def test_a_submitted_job_is_in_the_queue_and_has_its_name(
        self, scheduler: Scheduler, directory: Path
    ) -> None:
        request = self.request(directory, SLEEPS)
        ref = scheduler.submit(request)
        (job,) = scheduler.queue([ref.job_id])
        assert (job.job_id, job.job_name) == (ref.job_id, request.job_name)
        assert job.state in (AttemptState.QUEUED, AttemptState.RUNNING)
        assert job.ended_at is None
        assert job.exit_code is None
        assert ref.job_id in [each.job_id for each in scheduler.queue()]
        scheduler.cancel([ref.job_id])

    def test_a_job_is_found_by_its_name_and_an_unused_name_is_certainly_absent(
        self, scheduler: Scheduler, directory: Path
    ) -> None:
        since = self.now() - timedelta(seconds=2)
        request = self.request(directory, SLEEPS)
        absent = scheduler.find(request.job_name, since)
        ref = scheduler.submit(request)
        found = scheduler.find(request.job_name, since)
        scheduler.cancel([ref.job_id])
        assert absent.jobs == ()
        assert absent.is_certain
        assert [job.job_id for job in found.jobs] == [ref.job_id]
        assert found.jobs[0].job_name == request.job_name

    def test_names_that_begin_alike_are_not_taken_for_each_other(
        self, scheduler: Scheduler, directory: Path
    ) -> None:
        request = self.request(directory, SLEEPS)
        ref = scheduler.submit(request)
        lookup = scheduler.find(request.job_name + "0", self.now() - timedelta(hours=1))
        scheduler.cancel([ref.job_id])
        assert lookup.jobs == ()

    @pytest.mark.parametrize(
        ("body", "raw_state", "exit_code", "signal"),
        [
            ("# fake: duration_s=1\nexit 0", "COMPLETED", 0, None),
            ("# fake: duration_s=1 exit_code=75\nexit 75", "FAILED", 75, None),
            ("# fake: duration_s=1 exit_code=143\nexit 143", "FAILED", 143, None),
            ("# fake: duration_s=1 signal=9\nkill -9 $$", "FAILED", None, 9),
        ],
        ids=["well", "with a code", "with a code above 128", "by a signal"],
    )
    def test_an_ended_job_tells_how(
        self,
        scheduler: Scheduler,
        directory: Path,
        body: str,
        raw_state: str,
        exit_code: int | None,
        signal: int | None,
    ) -> None:
        ref = scheduler.submit(self.request(directory, body))
        job = self.ended(scheduler, ref.job_id)
        assert (job.raw_state, job.exit_code, job.signal) == (raw_state, exit_code, signal)
        assert job.submitted_at is not None
        assert job.started_at is not None
        assert job.ended_at is not None
        assert job.submitted_at <= job.started_at <= job.ended_at
        assert job.ended_at.utcoffset() == timedelta(0)
        assert abs(self.now() - job.ended_at) < timedelta(minutes=5)
        assert len(job.nodes) == 1

    def test_a_running_job_names_its_node_and_has_no_end(
        self, scheduler: Scheduler, directory: Path
    ) -> None:
        ref = scheduler.submit(self.request(directory, SLEEPS))
        job = self.running(scheduler, ref.job_id)
        scheduler.cancel([ref.job_id])
        assert len(job.nodes) == 1
        assert job.started_at is not None
        assert job.ended_at is None

    def test_a_cancelled_job_ends_and_cancelling_it_again_is_no_error(
        self, scheduler: Scheduler, directory: Path
    ) -> None:
        ref = scheduler.submit(self.request(directory, SLEEPS))
        self.running(scheduler, ref.job_id)
        scheduler.cancel([ref.job_id])
        job = self.ended(scheduler, ref.job_id)
        assert job.raw_state.startswith("CANCELLED")
        scheduler.cancel([ref.job_id])
        assert self.ended(scheduler, ref.job_id).raw_state.startswith("CANCELLED")

    def test_what_never_was_is_no_error(self, scheduler: Scheduler, directory: Path) -> None:
        ref = scheduler.submit(self.request(directory, SLEEPS))
        scheduler.cancel(["66999999", "not a job", "--user=root"])
        scheduler.cancel([])
        jobs = scheduler.queue(["66999999", ref.job_id])
        scheduler.cancel(["66999999", ref.job_id])
        assert [job.job_id for job in jobs] == [ref.job_id]
        assert scheduler.queue(["66999999"]) == []
        assert self.ended(scheduler, ref.job_id).raw_state.startswith("CANCELLED")

    def test_a_begin_time_is_taken_away_and_what_does_not_wait_is_no_error(
        self, scheduler: Scheduler, directory: Path
    ) -> None:
        later = scheduler.submit(self.request(directory, SLEEPS, lines=self.begin_lines()))
        waits = scheduler.queue([later.job_id])[0]
        assert scheduler.start_now(["66999999", later.job_id, "not a job"]) == {}
        if waits.begins_at is not None:  # else this scheduler has no begin times
            assert waits.state is AttemptState.QUEUED
            assert waits.begins_at > self.now() + timedelta(minutes=10)
        assert self.running(scheduler, later.job_id).begins_at is None
        assert scheduler.start_now([later.job_id]) == {}
        scheduler.cancel([later.job_id])
        self.ended(scheduler, later.job_id)
        assert scheduler.start_now([later.job_id]) == {}

    def test_a_job_that_waits_for_anothers_end_begins_then_however_that_ends(
        self, scheduler: Scheduler, directory: Path
    ) -> None:
        first = scheduler.submit(self.request(directory, SLEEPS))
        self.running(scheduler, first.job_id)
        lines = self.waiting_lines(first.job_id)
        second = scheduler.submit(self.request(directory, SLEEPS, lines=lines))
        if lines:
            self.until(scheduler, second.job_id, lambda job: job.reason == "Dependency")
        scheduler.cancel([first.job_id])
        self.running(scheduler, second.job_id)
        scheduler.cancel([second.job_id])
        self.ended(scheduler, second.job_id)

    def test_accounting_tells_of_jobs_oldest_first(
        self, scheduler: Scheduler, directory: Path
    ) -> None:
        since = self.now() - timedelta(seconds=2)
        first = scheduler.submit(
            self.request(directory, "# fake: duration_s=1 exit_code=3\nexit 3")
        )
        self.let_pass(1.1)  # submission times are whole seconds
        second = scheduler.submit(self.request(directory, "# fake: duration_s=1\nexit 0"))
        ids = [second.job_id, first.job_id]
        for job_id in ids:
            self.ended(scheduler, job_id)
        jobs = self._accounted(scheduler, ids, since)
        assert [job.job_id for job in jobs] == [first.job_id, second.job_id]
        assert [job.exit_code for job in jobs] == [3, 0]
        assert jobs[0].started_at is not None
        assert jobs[0].ended_at is not None
        assert scheduler.accounting([], since) == []
        names = [jobs[0].job_name]
        assert [job.job_id for job in scheduler.accounting([], since, job_names=names)] == ids[1:]
        both = scheduler.accounting([second.job_id], since, job_names=names)
        assert [job.job_id for job in both] == [first.job_id, second.job_id]
        so_named = scheduler.accounting([first.job_id], since, is_named=jobs[1].job_name.__eq__)
        assert [job.job_id for job in so_named] == [first.job_id, second.job_id]
        assert scheduler.accounting([], since, is_named="no job is called so".__eq__) == []

    def _accounted(self, scheduler: Scheduler, ids: list[str], since: datetime) -> list[JobInfo]:
        """Return accounting's records once they have the ends; accounting lags behind."""
        jobs: list[JobInfo] = []
        for _ in range(100):
            jobs = scheduler.accounting(ids, since)
            if len(jobs) == len(ids) and all(job.state is AttemptState.ENDED for job in jobs):
                return jobs
            self.let_pass(0.3)
        raise AssertionError(f"accounting knows only {jobs}")

    def test_a_refused_job_says_why_and_leaves_nothing_alive(
        self, scheduler: Scheduler, directory: Path
    ) -> None:
        request = self.request(directory, SLEEPS, lines=self.refused_lines())
        with pytest.raises(SubmissionRefused) as refused:
            scheduler.submit(request)
        assert refused.value.exit_code == 2
        assert refused.value.message
        jobs = scheduler.find(request.job_name, self.now() - timedelta(seconds=2)).jobs
        assert all(job.state is AttemptState.ENDED for job in jobs)

    def test_the_lock_is_free_once_nobody_is_submitting(
        self, scheduler: Scheduler, directory: Path
    ) -> None:
        path = directory / "submit.lock"
        fd = os.open(path, os.O_RDWR | os.O_CREAT)
        fcntl.flock(fd, fcntl.LOCK_EX)
        ref = scheduler.submit(self.request(directory, SLEEPS, lock_fd=fd))
        os.close(fd)
        with path.open("r+") as again:
            fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)  # no part of the job holds it
        scheduler.cancel([ref.job_id])

    def test_a_weird_path_is_only_a_path(self, scheduler: Scheduler, directory: Path) -> None:
        folder = directory / WEIRD
        folder.mkdir(mode=0o777)
        folder.chmod(0o777)
        ref = scheduler.submit(self.request(folder, "# fake: duration_s=1\necho here; exit 0"))
        assert self.ended(scheduler, ref.job_id).raw_state == "COMPLETED"
        assert not (folder / "oops").exists()

    def test_many_jobs_are_told_apart_in_one_answer(
        self, scheduler: Scheduler, directory: Path
    ) -> None:
        refs: list[JobRef] = []
        for _ in range(5):
            refs.append(scheduler.submit(self.request(directory, SLEEPS)))  # noqa: PERF401
        ids = [ref.job_id for ref in refs]
        jobs = scheduler.queue(ids[1:])
        scheduler.cancel(ids)
        assert sorted(job.job_id for job in jobs) == sorted(ids[1:])
        assert len({job.job_name for job in jobs}) == 4

    def test_an_array_may_have_some_tasks(self, scheduler: Scheduler) -> None:
        assert scheduler.most_tasks() >= 1

    def test_the_cluster_tells_about_itself(self, scheduler: Scheduler) -> None:
        info = scheduler.cluster_info()
        assert info.name
        assert scheduler.cluster() in (None, info.name)
        assert any(partition.is_default for partition in info.partitions)
        assert all(partition.cpus_per_node > 0 for partition in info.partitions)
        assert info.qos is None or "normal" in info.qos

    def test_accounts_are_names_or_unknown(self, scheduler: Scheduler) -> None:
        accounts = scheduler.accounts("hpcf-ada")
        assert accounts is None or "physics" in accounts

    def test_a_user_stands_somewhere_or_nobody_says(self, scheduler: Scheduler) -> None:
        standing = scheduler.standing("hpcf-ada")
        if standing is None:
            assert scheduler.accounts("hpcf-ada") is None
            return
        association = standing.association("physics")
        assert standing.user == "hpcf-ada"
        assert standing.missing == ()
        assert association is not None
        assert association == standing.association()
        assert association.default_qos in (None, *association.qos)
        assert standing.qos_named("normal") is not None
        own, whole = standing.share("physics"), standing.account_share("physics")
        assert own is not None
        assert own.factor is not None
        assert 0 <= own.factor <= 1
        assert whole is not None
        assert whole.factor is None
        limits = [*association.limits, *(each for qos in standing.qos for each in qos.limits)]
        assert all(limit.allowed >= 0 and limit.holder for limit in limits)

    def test_what_is_reserved_has_not_ended(self, scheduler: Scheduler) -> None:
        reserved = scheduler.reservations()
        assert all(each.start < each.end and each.end > self.now() for each in reserved)
        assert reserved == sorted(reserved, key=lambda each: each.start)

    def test_a_job_that_waits_says_why_and_others_do_not_wait(
        self, scheduler: Scheduler, directory: Path
    ) -> None:
        running = scheduler.submit(self.request(directory, SLEEPS))
        self.running(scheduler, running.job_id)
        later = scheduler.submit(self.request(directory, SLEEPS, lines=self.begin_lines()))
        told = scheduler.waiting(["66999999", later.job_id, running.job_id, "not a job"])
        waits = [job.job_id for job in scheduler.queue([later.job_id]) if job.begins_at]
        scheduler.cancel([later.job_id, running.job_id])
        assert scheduler.waiting([]) == []
        assert [job.job_id for job in told] == waits
        for job in told:
            assert job.reason == "BeginTime"
            assert job.partitions
            assert job.expected_start is not None
            assert job.expected_start > self.now() + timedelta(minutes=10)
            assert job.position is None  # no other job competes with it

    def test_everybodys_queue_has_what_runs_and_not_what_waits_for_a_time(
        self, scheduler: Scheduler, directory: Path
    ) -> None:
        running = scheduler.submit(self.request(directory, SLEEPS))
        self.running(scheduler, running.job_id)
        later = scheduler.submit(self.request(directory, SLEEPS, lines=self.begin_lines()))
        queue = scheduler.cluster_queue()
        scheduler.cancel([later.job_id, running.job_id])
        assert later.job_id not in [job.job_id for job in queue.waiting]
        if queue.running:
            (own,) = [job for job in queue.running if job.job_id == running.job_id]
            assert own.partition in [each.name for each in scheduler.cluster_info().partitions]

    def test_asking_when_a_job_would_start_sends_nothing(
        self, scheduler: Scheduler, directory: Path
    ) -> None:
        request = self.request(directory, SLEEPS)
        predicted = scheduler.predicted_start(request)
        if predicted is not None:
            assert predicted.starts_at > self.now() - timedelta(minutes=1)
            assert predicted.nodes
            assert predicted.partition in [
                each.name for each in scheduler.cluster_info().partitions
            ]
            with pytest.raises(SubmissionRefused):
                scheduler.predicted_start(
                    self.request(directory, SLEEPS, lines=self.refused_lines())
                )
        assert scheduler.find(request.job_name, self.now() - timedelta(minutes=5)).jobs == ()


class LostAnswerContract(SchedulerContract):
    """For schedulers with a remote controller: the job is created, but its id may get lost."""

    def test_after_a_lost_answer_the_name_tells_that_the_job_exists(
        self, scheduler: Scheduler, forgetful: Scheduler, directory: Path
    ) -> None:
        request = self.request(directory, SLEEPS)
        since = self.now() - timedelta(seconds=2)
        with pytest.raises(SubmissionInDoubt):
            forgetful.submit(request)
        lookup = scheduler.find(request.job_name, since)
        scheduler.cancel([job.job_id for job in lookup.jobs])
        assert len(lookup.jobs) == 1
        assert lookup.jobs[0].job_name == request.job_name
