"""The cluster of the fake scheduler: its jobs, their events and their records.

Time passes only with the clock; nothing is executed. Its scheduler is
:mod:`hpcflow.testing.fake_scheduler`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Literal

from hpcflow.clock import Clock
from hpcflow.model.state import AttemptState, attempt_state
from hpcflow.model.usage import Usage
from hpcflow.schedulers.base import JobInfo
from hpcflow.schedulers.slurm.parse_jobs import since_resize

#: Slurm's default wait of a requeued job.
REQUEUE_WAIT = timedelta(seconds=121)

_DEPENDENCY = re.compile(r"^#SBATCH --dependency=afterany:(\S+)$", re.MULTILINE)
_ARRAY = re.compile(r"^#SBATCH --array=0-([0-9]+)$", re.MULTILINE)
_GPUS = re.compile(r"^#SBATCH --(?:gres=gpu|gpus-per-node=)(?::?([a-z]\w*))?:?(\d+)$", re.MULTILINE)
#: The allocation of every job on each node, except GPUs.
OF_A_NODE: Final = Usage(nodes=1, cpus=8, mem_mb=6000)
_HINT = re.compile(r"^# fake: (.*)$", re.MULTILINE)


@dataclass
class _Plan:
    duration_s: float | None = None
    exit_code: int = 0
    signal: int | None = None


class FakeCluster:
    """Jobs in memory.

    Args:
        min_job_age_s: how long the queue remembers a job that has ended.
        starts_at_once: whether jobs start when they are submitted, or wait for :meth:`start`.
    """

    def __init__(
        self, clock: Clock, *, min_job_age_s: float = 300, starts_at_once: bool = True
    ) -> None:
        self._clock = clock
        self._min_job_age = timedelta(seconds=min_job_age_s)
        self._starts_at_once = starts_at_once
        self.nodes: tuple[str, ...] = ("n1", "n2", "n3", "n4")
        self._jobs: dict[str, JobInfo] = {}
        self._plans: dict[str, _Plan] = {}
        self._gpus: dict[str, dict[str, int]] = {}  # of each node
        self._waits_for: dict[str, str] = {}
        self._past: list[JobInfo] = []
        self._resized: dict[str, JobInfo] = {}  # the current part of a resized job, for accounting
        self._components: dict[str, list[tuple[str, str, Usage]]] = {}
        self._record_ids: dict[object, int] = {}
        self.forgets_records = False  # slurmdbd answers, but knows no job
        self.tells_no_usage = False  # slurmdbd knows no allocations
        self.requeue_wait = REQUEUE_WAIT
        self.next_id: str | None = None  # a reused id, as after a crash of slurmctld

    def start(self, job_id: str, nodes: Sequence[str] = ("n1",)) -> None:
        self._change(job_id, "RUNNING", nodes=tuple(nodes), started_at=self._clock.now())

    def wait_for(self, job_id: str, reason: str) -> None:
        self._jobs[job_id] = replace(self._jobs[job_id], reason=reason)

    def move(self, job_id: str, partition: str) -> None:
        """``scontrol update partition=…``, by its owner."""
        self._jobs[job_id] = replace(self._jobs[job_id], partition=partition)

    def resize(self, job_id: str, nodes: Sequence[str]) -> None:
        """``scontrol update NumNodes=…`` of a running job: accounting begins another record with
        the start of the whole job; the queue keeps the submission time."""
        job, now = self._jobs[job_id], self._clock.now()
        part = replace(self._resized.get(job_id, job), nodes=job.nodes)
        state = attempt_state("RESIZING")
        ended = replace(part, raw_state="RESIZING", state=state, ended_at=now)
        self._past.append(replace(ended, source="accounting"))
        self._jobs[job_id] = replace(job, nodes=tuple(nodes))
        self._resized[job_id] = replace(job, submitted_at=now)

    def rename(self, job_id: str, job_name: str) -> None:
        """``scontrol update jobname=…``, by its owner."""
        self._jobs[job_id] = replace(self._jobs[job_id], job_name=job_name)

    def end(
        self,
        job_id: str,
        raw_state: str,
        *,
        exit_code: int | None = None,
        signal: int | None = None,
    ) -> None:
        """End a job that has not ended: COMPLETED, FAILED, TIMEOUT, NODE_FAIL, …"""
        if self._jobs[job_id].is_held_for_its_exit:
            self.release(job_id, starts=False)
        if self._jobs[job_id].state is not AttemptState.ENDED:
            now = self._clock.now()
            self._change(job_id, raw_state, ended_at=now, exit_code=exit_code, signal=signal)

    def preempt(self, job_id: str, *, leaves_with: int | None = None) -> None:
        """Preempt a job.

        Args:
            leaves_with: its exit code, if it exits by itself within the grace time.
        """
        self._jobs[job_id] = replace(self._jobs[job_id], preempted_at=self._clock.now())
        if leaves_with is None:
            self.end(job_id, "PREEMPTED", signal=15)
        else:
            self.end(job_id, "FAILED" if leaves_with else "COMPLETED", exit_code=leaves_with)

    def requeue(self, job_id: str, raw_state: str = "REQUEUED") -> None:
        """Requeue a job under the same id, to start after ``requeue_wait``.

        Accounting keeps the first record with ``raw_state``, or as the job had ended.
        """
        job = self._jobs[job_id]
        now = self._clock.now()
        if job.state is not AttemptState.ENDED:
            state = attempt_state(raw_state)
            job = replace(job, raw_state=raw_state, state=state, ended_at=now)
        self._past.append(replace(job, source="accounting"))
        self._jobs[job_id] = replace(
            _pending(job.job_id, job.job_name, job.partition or "gpu", now),
            restarts=(job.restarts or 0) + 1,
            reason="BeginTime",
            begins_at=now + self.requeue_wait,
        )

    def hold_for_its_exit(self, job_id: str, exit_code: int) -> None:
        """Fail a job that was submitted with ``--requeue=expedite``, without failed epilogs."""
        job, now = self._jobs[job_id], self._clock.now()
        word = "REQUEUE_HOLD"
        record = replace(job, raw_state="REQUEUED", state=attempt_state("REQUEUED"), ended_at=now)
        self._past.append(replace(record, exit_code=exit_code, source="accounting"))
        self._change(job_id, "FAILED", ended_at=now, nodes=(), exit_code=exit_code)
        self._jobs[job_id] = replace(self._jobs[job_id], raw_state=word, submitted_at=None)

    def release(self, job_id: str, *, starts: bool = True) -> None:
        """``scontrol release`` of a job that :meth:`hold_for_its_exit` held."""
        job = self._jobs[job_id]
        self._jobs[job_id] = replace(self._part(job), restarts=(job.restarts or 0) + 1)
        if starts:
            self._may_begin(job_id)

    def fail_launch(self, job_id: str, *, is_node_free: bool = True) -> None:
        """Fail to start a job that must not be requeued, as real Slurm reports it.

        Slurm counts a restart and cancels the job. Once its node is free, that moment is the job's
        submission time.
        """
        self.end(job_id, "CANCELLED")
        job = replace(self._jobs[job_id], restarts=(self._jobs[job_id].restarts or 0) + 1)
        if is_node_free:
            self._past.append(replace(job, raw_state="NODE_FAIL", source="accounting"))
            at = job.ended_at
            job = replace(job, nodes=(), submitted_at=at, started_at=at)
        self._jobs[job_id] = job

    def begin_at(self, job_id: str, begins_at: datetime) -> None:
        job = self._jobs[job_id]
        self._jobs[job_id] = replace(
            _pending(job_id, job.job_name, job.partition or "gpu", job.submitted_at or begins_at),
            restarts=job.restarts,
            reason="BeginTime",
            begins_at=begins_at,
        )

    def hold(self, job_id: str, reason: str = "JobHeldAdmin") -> None:
        """``scontrol hold``, or ``scontrol requeuehold`` of a requeued job."""
        self._jobs[job_id] = replace(self._jobs[job_id], reason=reason, begins_at=None)

    def set_raw_state(self, job_id: str, raw_state: str) -> None:
        """Set any state, known to hpcflow or not."""
        self._change(job_id, raw_state)

    def forget(self, job_id: str) -> None:
        """Drop a job from the queue; accounting keeps it."""
        self._past.append(replace(self._part(self._jobs.pop(job_id)), source="accounting"))

    def _part(self, job: JobInfo) -> JobInfo:
        """Return a job's current record in accounting, if it was resized or is held."""
        if job.is_held_for_its_exit:
            return _pending(job.job_id, job.job_name, job.partition or "gpu", job.ended_at)
        return replace(job, submitted_at=self._resized.get(job.job_id, job).submitted_at)

    def _add_all(
        self, job_name: str, script: str, partition: str, nodes: Sequence[str] = ("n1",)
    ) -> str:
        """Add a job, or all tasks of an array; return the job's or the array's id."""
        if _ARRAY.search(script) is None:
            return self._add(job_name, script, partition, nodes)
        number = str(1001 + len({job.job_id for job in self._records()}))
        for task in range(tasks_in(script)):
            self.next_id = f"{number}_{task}"
            self._add(job_name, script, partition, nodes)
        return number

    def _add(
        self, job_name: str, script: str, partition: str, nodes: Sequence[str] = ("n1",)
    ) -> str:
        job_id = self.next_id or str(1001 + len({job.job_id for job in self._records()}))
        self.next_id = None
        hint, gpus = _HINT.search(script), _GPUS.search(script)
        self._gpus[job_id] = {gpus[1] or "": int(gpus[2])} if gpus else {}
        words = dict(word.split("=", 1) for word in hint[1].split()) if hint else {}
        self._plans[job_id] = _Plan(
            float(words["duration_s"]) if "duration_s" in words else None,
            int(words.get("exit_code", "0")),
            int(words["signal"]) if "signal" in words else None,
        )
        self._jobs[job_id] = _pending(job_id, job_name, partition, self._clock.now())
        other = _DEPENDENCY.search(script)
        if other and not self._is_over(other[1]):
            self._waits_for[job_id] = other[1]
            self.wait_for(job_id, "Dependency")
        elif self._starts_at_once:
            self.start(job_id, nodes[:1])
        return job_id

    def _never_started(self, job_id: str) -> None:
        """Turn a job, or all tasks of an array, into records that never started."""
        now = self._clock.now()
        for each, job in list(self._jobs.items()):
            if each.partition("_")[0] == job_id:
                self._jobs[each] = replace(
                    _pending(each, job.job_name, job.partition or "gpu", now),
                    raw_state="FAILED",
                    state=AttemptState.ENDED,
                    reason="BadConstraints",
                    ended_at=now,
                )

    def _advance(self) -> None:
        """Start and end the jobs that are due."""
        now = self._clock.now()
        for job_id, job in list(self._jobs.items()):
            waits_for = self._waits_for.get(job_id)
            if waits_for is not None and self._is_over(waits_for):
                del self._waits_for[job_id]
                self._may_begin(job_id)
                continue
            if job.state is AttemptState.QUEUED and job.begins_at and job.begins_at <= now:
                self._may_begin(job_id)
                continue
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

    def _is_over(self, job_id: str) -> bool:
        """Return whether a job has ended or is unknown; a requeued one has not ended."""
        job = self._jobs.get(job_id)
        return job is None or job.state is AttemptState.ENDED

    def _may_begin(self, job_id: str) -> None:
        if self._jobs[job_id].state is not AttemptState.QUEUED:
            return
        self._jobs[job_id] = replace(self._jobs[job_id], reason=None, begins_at=None)
        if self._starts_at_once:
            self.start(job_id)

    def _remembered(self) -> Iterable[JobInfo]:
        now = self._clock.now()
        for job_id, job in list(self._jobs.items()):
            is_over = job.ended_at is not None and not job.is_held_for_its_exit
            if is_over and now - (job.ended_at or now) > self._min_job_age:
                self.forget(job_id)
            else:
                yield job

    def _records(self) -> list[JobInfo]:
        """Return all records of accounting, without restarts, as in Slurm before 24.11."""
        source: Literal["accounting"] = "accounting"
        known = [] if self.forgets_records else [*self._past, *map(self._part, self._jobs.values())]
        found = []
        for job in known:
            record = replace(
                job,
                source=source,
                restarts=None,
                qos="normal",
                elapsed_s=self._elapsed_s(job),
                usage=self._usage(job) if job.nodes and not self.tells_no_usage else None,
                record_id=self._record_id(job),
            )
            record = since_resize(record)
            found.append(record)
            for number, (partition, account, usage) in enumerate(
                self._components.get(job.job_id, ()), 1
            ):
                component = replace(record, job_id=f"{job.job_id}+{number}", account=account)
                component = replace(component, record_id=self._record_id(component))
                used = usage if job.nodes else None
                found.append(replace(component, partition=partition, usage=used))
        return found

    def _record_id(self, job: JobInfo) -> int:
        key = job.job_id, job.restarts, job.submitted_at
        return self._record_ids.setdefault(key, 1 + len(self._record_ids))

    def lose_record(self, record_id: int | None) -> None:
        """Lose the record of an earlier start of a job in slurmdbd."""
        self._past = [job for job in self._past if self._record_id(job) != record_id]

    def add_component(
        self, job_id: str, partition: str, usage: Usage, account: str = "physics"
    ) -> None:
        self._components.setdefault(job_id, []).append((partition, account, usage))

    def rename_record(self, job_id: str, name: str) -> None:
        """Reuse the id for another job; the queue has dropped the first."""
        job = replace(self._jobs.pop(job_id), job_name=name, submitted_at=self._clock.now())
        self._past.append(replace(job, source="accounting"))

    def change_record(self, job_id: str, *, ended_at: datetime) -> None:
        """Correct a record of accounting, as an admin."""
        self._jobs[job_id] = replace(self._jobs[job_id], ended_at=ended_at)

    def _usage(self, job: JobInfo) -> Usage:
        gpus = {name: count * len(job.nodes) for name, count in self._gpus[job.job_id].items()}
        return replace(OF_A_NODE, nodes=len(job.nodes), gpus=gpus)

    def _elapsed_s(self, job: JobInfo) -> int:
        if job.started_at is None:
            return 0
        return int(((job.ended_at or self._clock.now()) - job.started_at).total_seconds())

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
            reason=None,
            begins_at=None,
            nodes=job.nodes if nodes is None else nodes,
            started_at=started_at or job.started_at,
            ended_at=ended_at,
            exit_code=exit_code,
            signal=signal,
        )


def tasks_in(script: str) -> int:
    """Return the number of array tasks of a script; 1 without an array."""
    array = _ARRAY.search(script)
    return int(array[1]) + 1 if array else 1


def _pending(job_id: str, job_name: str, partition: str, now: datetime | None) -> JobInfo:
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
