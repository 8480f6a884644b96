"""A scheduler in memory that behaves like Slurm, as far as hpcflow can tell: it passes the same
contract suite. Time passes only when the clock is moved; nothing is executed.

A script may say what it will do, ``# fake: duration_s=5 exit_code=3``; without ``duration_s`` it
runs until it is told otherwise. Everything that goes wrong on a real cluster can be ordered::

    fake.faults.append(Fault.LOST_ANSWER)      # the next sbatch "times out", but the job exists
    fake.is_controller_down = True             # squeue, sbatch, scancel fail
    fake.is_accounting_down = True             # sacct fails
    fake.preempt(job_id); fake.requeue(job_id); fake.end(job_id, "NODE_FAIL")
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Literal

from hpcflow.clock import Clock
from hpcflow.errors import (
    SchedulerUnavailable,
    SubmissionDelayed,
    SubmissionInDoubt,
    SubmissionRefused,
    Where,
)
from hpcflow.model.state import AttemptState, attempt_state
from hpcflow.schedulers.base import JobInfo, JobRef, Lookup, SubmitRequest
from hpcflow.sites.live import ClusterInfo, PartitionInfo

_HINT = re.compile(r"^# fake: (.*)$", re.MULTILINE)


class Fault(Enum):
    """What goes wrong with one submission."""

    LOST_ANSWER = "the job exists, but the answer is lost"
    LOST_REQUEST = "nothing arrives, and nobody can tell"
    REFUSED = "a rule of the site"
    DELAYED = "too many jobs"
    UNAVAILABLE = "no controller"


@dataclass
class _Plan:
    """What a script will do."""

    duration_s: float | None = None
    exit_code: int = 0
    signal: int | None = None


class FakeScheduler:
    """A :class:`hpcflow.schedulers.base.Scheduler`.

    Args:
        clock: its time.
        min_job_age_s: how long the queue remembers a job that has ended.
        has_accounting: whether there is a sacct at all.
        starts_at_once: whether jobs start when they are submitted, or wait for :meth:`start`.
        max_jobs: as MaxSubmitJobs: jobs that may be queued or running.
    """

    name = "fake"

    def __init__(
        self,
        clock: Clock,
        *,
        min_job_age_s: float = 300,
        has_accounting: bool = True,
        starts_at_once: bool = True,
        max_jobs: int | None = None,
    ) -> None:
        self.faults: list[Fault] = []
        self.is_controller_down = False
        self.is_accounting_down = False
        self.partitions = ("gpu", "spot")
        self.calls: list[str] = []
        self._clock = clock
        self._min_job_age = timedelta(seconds=min_job_age_s)
        self._has_accounting = has_accounting
        self._starts_at_once = starts_at_once
        self._max_jobs = max_jobs
        self._jobs: dict[str, JobInfo] = {}
        self._plans: dict[str, _Plan] = {}
        self._past: list[JobInfo] = []

    # --- the contract ----------------------------------------------------------------------

    def submit(self, request: SubmitRequest) -> JobRef:
        self._say("submit")
        fault = self.faults.pop(0) if self.faults else None
        if fault is Fault.LOST_REQUEST:
            raise SubmissionInDoubt("the job may or may not exist: it did not answer")
        if fault is Fault.UNAVAILABLE:
            raise SchedulerUnavailable("Unable to contact slurm controller (connect failure)")
        if fault is Fault.DELAYED or self._is_full():
            raise SubmissionDelayed("AssocMaxSubmitJobLimit", next_action="try again later")
        script = request.script.read_text()
        wanted = re.search(r"^#SBATCH --partition[= ](\S+)", script, re.MULTILINE)
        if fault is Fault.REFUSED or (wanted and wanted[1] not in self.partitions):
            raise SubmissionRefused(
                "Invalid partition name specified",
                where=Where(key="resources.partition"),
                next_action="see what there is with `hpcflow site show`",
            )
        job_id = self._add(request.job_name, script, wanted[1] if wanted else "gpu")
        if fault is Fault.LOST_ANSWER:
            raise SubmissionInDoubt("the job may or may not exist: Socket timed out")
        return JobRef(job_id)

    def find(self, job_name: str, since: datetime) -> Lookup:
        self._say("find")
        jobs = {job.job_id: job for job in self._remembered() if job.job_name == job_name}
        if not self._has_accounting or self._clock.now() - since < self._min_job_age:
            return Lookup(tuple(jobs.values()))
        if self.is_accounting_down:
            return Lookup(tuple(jobs.values()), is_certain=False)
        known = {job.job_id: job for job in self._records() if job.job_name == job_name}
        found = [job for job in (known | jobs).values() if _submitted(job) >= since]
        return Lookup(tuple(sorted(found, key=_submitted)))

    def queue(self, job_ids: Sequence[str] = ()) -> list[JobInfo]:
        self._say("queue")
        return [job for job in self._remembered() if not job_ids or job.job_id in job_ids]

    def accounting(self, job_ids: Sequence[str], since: datetime) -> list[JobInfo]:
        self._advance()
        self.calls.append("accounting")
        if self.is_accounting_down or not self._has_accounting:
            raise SchedulerUnavailable("sacct got no answer: Connection refused")
        return sorted(
            (j for j in self._records() if j.job_id in job_ids and _submitted(j) >= since),
            key=_submitted,
        )

    def cancel(self, job_ids: Sequence[str]) -> None:
        self._say("cancel")
        for job_id in job_ids:
            if job_id in self._jobs:
                self.end(job_id, "CANCELLED by 1000", signal=15)

    def cluster_info(self) -> ClusterInfo:
        self._say("cluster_info")
        partitions = tuple(
            PartitionInfo(name, name == "gpu", True, 1440, 4, 8, 8192, 4, ("a100",))
            for name in self.partitions
        )
        return ClusterInfo("fake", "22.05.8", partitions, has_accounting=self._has_accounting)

    def accounts(self, user: str) -> frozenset[str] | None:  # noqa: ARG002
        silent = self.is_accounting_down or not self._has_accounting
        return None if silent else frozenset({"physics"})

    # --- what the cluster does -------------------------------------------------------------

    def start(self, job_id: str, nodes: Sequence[str] = ("n1",)) -> None:
        """Let a waiting job run."""
        self._change(job_id, "RUNNING", nodes=tuple(nodes), started_at=self._clock.now())

    def end(
        self,
        job_id: str,
        raw_state: str,
        *,
        exit_code: int | None = None,
        signal: int | None = None,
    ) -> None:
        """End a job that has not ended: COMPLETED, FAILED, TIMEOUT, NODE_FAIL, …"""
        if self._jobs[job_id].state is not AttemptState.ENDED:
            now = self._clock.now()
            self._change(job_id, raw_state, ended_at=now, exit_code=exit_code, signal=signal)

    def preempt(self, job_id: str) -> None:
        """A job of higher priority takes its nodes."""
        self.end(job_id, "PREEMPTED", signal=15)

    def requeue(self, job_id: str) -> None:
        """Slurm itself starts the job anew, under the same id; accounting keeps both."""
        job = self._jobs[job_id]
        now = self._clock.now()
        state = attempt_state("REQUEUED")
        self._past.append(
            replace(job, raw_state="REQUEUED", state=state, ended_at=now, source="accounting")
        )
        self._jobs[job_id] = replace(
            _pending(job.job_id, job.job_name, job.partition or "gpu", now),
            restarts=(job.restarts or 0) + 1,
        )

    def set_raw_state(self, job_id: str, raw_state: str) -> None:
        """Any word of Slurm's, known or not."""
        self._change(job_id, raw_state)

    def forget(self, job_id: str) -> None:
        """The queue loses a job at once, accounting keeps it."""
        self._past.append(replace(self._jobs.pop(job_id), source="accounting"))

    # --- inside ----------------------------------------------------------------------------

    def _say(self, call: str) -> None:
        self._advance()
        self.calls.append(call)
        if self.is_controller_down:
            raise SchedulerUnavailable(
                "Unable to contact slurm controller (connect failure)", next_action="try again"
            )

    def _is_full(self) -> bool:
        alive = [job for job in self._jobs.values() if job.state is not AttemptState.ENDED]
        return self._max_jobs is not None and len(alive) >= self._max_jobs

    def _add(self, job_name: str, script: str, partition: str) -> str:
        job_id = str(1001 + len({job.job_id for job in self._records()}))
        hint = _HINT.search(script)
        words = dict(word.split("=", 1) for word in hint[1].split()) if hint else {}
        self._plans[job_id] = _Plan(
            float(words["duration_s"]) if "duration_s" in words else None,
            int(words.get("exit_code", "0")),
            int(words["signal"]) if "signal" in words else None,
        )
        self._jobs[job_id] = _pending(job_id, job_name, partition, self._clock.now())
        if self._starts_at_once:
            self.start(job_id)
        return job_id

    def _advance(self) -> None:
        """Let happen what should have happened since the last call."""
        now = self._clock.now()
        for job_id, job in list(self._jobs.items()):
            plan = self._plans[job_id]
            if (
                job.state is not AttemptState.RUNNING
                or plan.duration_s is None
                or not job.started_at
            ):
                continue
            due = job.started_at + timedelta(seconds=plan.duration_s)
            if due <= now:
                failed = bool(plan.exit_code or plan.signal)
                exit_code = None if plan.signal else plan.exit_code
                raw_state = "FAILED" if failed else "COMPLETED"
                self._change(
                    job_id, raw_state, ended_at=due, exit_code=exit_code, signal=plan.signal
                )

    def _remembered(self) -> Iterable[JobInfo]:
        now = self._clock.now()
        for job_id, job in list(self._jobs.items()):
            if job.ended_at is not None and now - job.ended_at > self._min_job_age:
                self.forget(job_id)
            else:
                yield job

    def _records(self) -> list[JobInfo]:
        """What accounting knows: what was, and what is."""
        source: Literal["accounting"] = "accounting"
        return self._past + [replace(job, source=source) for job in self._jobs.values()]

    def _change(
        self,
        job_id: str,
        raw_state: str,
        *,
        nodes: tuple[str, ...] | None = None,
        started_at: datetime | None = None,
        ended_at: datetime | None = None,
        exit_code: int | None = None,
        signal: int | None = None,
    ) -> None:
        job = self._jobs[job_id]
        self._jobs[job_id] = replace(
            job,
            raw_state=raw_state,
            state=attempt_state(raw_state),
            nodes=job.nodes if nodes is None else nodes,
            started_at=started_at or job.started_at,
            ended_at=ended_at,
            exit_code=exit_code,
            signal=signal,
        )


def _pending(job_id: str, job_name: str, partition: str, now: datetime) -> JobInfo:
    return JobInfo(
        job_id=job_id,
        job_name=job_name,
        raw_state="PENDING",
        state=AttemptState.QUEUED,
        partition=partition,
        account="physics",
        restarts=0,
        submitted_at=now,
    )


def _submitted(job: JobInfo) -> datetime:
    assert job.submitted_at is not None
    return job.submitted_at
