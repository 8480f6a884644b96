"""A scheduler in memory that passes the same contract suite as Slurm.

Time passes only with the clock; nothing is executed. A script can set what it does,
``# fake: duration_s=5 exit_code=3``; without ``duration_s`` it runs until the test ends it. Faults
of real clusters can be injected::

    fake.faults.append(Fault.LOST_ANSWER)      # the next sbatch "times out", but the job exists
    fake.is_controller_down = True             # squeue, sbatch, scancel fail
    fake.is_accounting_down = True             # sacct fails
    fake.forbids_start_now = True              # a site where only admins may change a begin time
    fake.preempt(job_id); fake.requeue(job_id); fake.end(job_id, "NODE_FAIL")

Associations and the pending queue are in :mod:`hpcflow.testing.fake_outlook`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from enum import Enum

from hpcflow.clock import Clock
from hpcflow.errors import (
    SchedulerUnavailable,
    SubmissionDelayed,
    SubmissionInDoubt,
    SubmissionRefused,
    Where,
)
from hpcflow.model.state import AttemptState, normalize_raw_state
from hpcflow.schedulers.base import JobInfo, JobRef, Lookup, SubmitRequest
from hpcflow.schedulers.slurm.hostlist import expand
from hpcflow.schedulers.waiting import ClusterQueue, IdleNode, PredictedStart, WaitingJob
from hpcflow.sites.live import ClusterInfo, NodeKind, PartitionInfo
from hpcflow.sites.standing import Reservation, Standing
from hpcflow.testing.fake_cluster import tasks_in
from hpcflow.testing.fake_outlook import FakeOutlook


class Fault(Enum):
    LOST_ANSWER = "the job exists, but the answer is lost"
    CONTROLLER_DIES = "the job exists, the answer is lost, and nobody can be asked"
    STILLBORN = "refused, and yet there is a record of it"
    REFUSED_TWICE = "the job exists, and what sbatch sends again is refused"
    LOST_REQUEST = "nothing arrives, and nobody can tell"
    REFUSED = "a rule of the site"
    DELAYED = "too many jobs"
    UNAVAILABLE = "no controller"


class FakeScheduler(FakeOutlook):
    """A :class:`hpcflow.schedulers.base.Scheduler`.

    Args:
        min_job_age_s: how long the queue remembers a job that has ended.
        has_accounting: whether there is a sacct at all.
        starts_at_once: whether jobs start when they are submitted, or wait for :meth:`start`.
        max_jobs: as MaxSubmitJobs: most jobs pending or running.
        cluster_name: as ClusterName.
        max_array_size: as MaxArraySize.
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
        cluster_name: str = "fake",
        max_array_size: int = 1001,
    ) -> None:
        super().__init__(clock, min_job_age_s=min_job_age_s, starts_at_once=starts_at_once)
        self.faults: list[Fault] = []
        self.is_controller_down = False
        self.is_accounting_down = False
        self.forbids_start_now = False
        self.partitions: tuple[str, ...] = ("gpu", "spot")
        self.enforced = "associations,limits,qos"
        self.calls: list[str] = []
        self.cluster_name = cluster_name
        self._has_accounting = has_accounting
        self.max_jobs = max_jobs
        self.max_array_size = max_array_size

    def cluster(self) -> str | None:
        return None if self.is_controller_down else self.cluster_name

    def submit(self, request: SubmitRequest) -> JobRef:
        self._say("submit")
        fault = self.faults.pop(0) if self.faults else None
        if fault is Fault.LOST_REQUEST:
            raise SubmissionInDoubt("the job may or may not exist: it did not answer")
        if fault is Fault.UNAVAILABLE:
            raise SchedulerUnavailable("Unable to contact slurm controller (connect failure)")
        script = request.script.read_text()
        if fault is Fault.DELAYED or self._is_full(tasks_in(script)):
            raise SubmissionDelayed("AssocMaxSubmitJobLimit", next_action="try again later")
        partition = self._partition(script, refuses=fault is Fault.REFUSED)
        job_id = self._add_all(request.job_name, script, partition, self._allowed(script))
        if (later := re.search(r"^#SBATCH --begin=now\+(\d+)", script, re.MULTILINE)) is not None:
            self.begin_at(job_id, self._clock.now() + timedelta(seconds=int(later[1])))
        if fault is Fault.STILLBORN:
            self._never_started(job_id)
            raise SubmissionRefused("Requested node configuration is not available")
        if fault is Fault.REFUSED_TWICE:
            raise SubmissionDelayed("QOSMaxSubmitJobPerUserLimit", next_action="try again later")
        if fault is Fault.CONTROLLER_DIES:
            self.is_controller_down = True
        if fault in (Fault.LOST_ANSWER, Fault.CONTROLLER_DIES):
            raise SubmissionInDoubt("the job may or may not exist: Socket timed out")
        return JobRef(job_id)

    def most_tasks(self) -> int:
        return self.max_array_size

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
        return [
            replace(job, raw_state=normalize_raw_state(job.raw_state))  # squeue hides who cancelled
            for job in self._remembered()
            if not job_ids or job.job_id in job_ids
        ]

    def accounting(
        self,
        job_ids: Sequence[str],
        since: datetime,
        *,
        job_names: Sequence[str] = (),
        is_named: Callable[[str], bool] | None = None,
    ) -> list[JobInfo]:
        self._advance()
        self.calls.append("accounting")
        if not self._has_accounting:
            return []
        if self.is_accounting_down:
            raise SchedulerUnavailable("sacct got no answer: Connection refused")
        return sorted(
            (
                job
                for job in self._records()
                if (
                    _submitted(job) >= since
                    and (job.job_id.partition("+")[0] in job_ids or job.job_name in job_names)
                )
                or (
                    is_named is not None
                    and is_named(job.job_name)
                    and (job.ended_at is None or job.ended_at >= since)
                )
            ),
            key=_submitted,
        )

    def cancel(self, job_ids: Sequence[str]) -> None:
        self._say("cancel")
        for job_id in job_ids:
            if job_id in self._jobs:
                self.end(job_id, "CANCELLED by 1000", signal=15)

    def start_now(self, job_ids: Sequence[str]) -> dict[str, str]:
        self._say("start_now")
        waiting = [
            job_id
            for job_id in job_ids
            if job_id in self._jobs and self._jobs[job_id].begins_at is not None
        ]
        if self.forbids_start_now:
            return dict.fromkeys(waiting, "Access/permission denied")
        for job_id in waiting:
            self._may_begin(job_id)
        return {}

    def restart_delay_s(self) -> float:
        return self.requeue_wait.total_seconds()

    def cluster_info(self) -> ClusterInfo:
        self._say("cluster_info")
        partitions = tuple(
            PartitionInfo(name, name == "gpu", True, 1440, (NodeKind(4, 8, 8192, {"a100": 4}),))
            for name in self.partitions
        )
        known = self._has_accounting and not self.is_accounting_down
        return ClusterInfo(
            self.cluster_name,
            "22.05.8",
            partitions,
            settings={"AccountingStorageEnforce": self.enforced},
            has_accounting=self._has_accounting,
            qos=frozenset({"normal"}) if known else None,
        )

    def accounts(self, user: str) -> frozenset[str] | None:  # noqa: ARG002
        silent = self.is_accounting_down or not self._has_accounting
        return None if silent else frozenset({"physics"})

    def standing(self, user: str) -> Standing | None:
        self.calls.append("standing")
        silent = self.is_accounting_down or not self._has_accounting
        return None if silent else self._standing(user)

    def reservations(self) -> list[Reservation]:
        self._say("reservations")
        return self._reservations()

    def waiting(self, job_ids: Sequence[str]) -> list[WaitingJob]:
        self._say("waiting")
        return self._waiting(job_ids)

    def cluster_queue(self) -> ClusterQueue:
        self._say("cluster_queue")
        return self._cluster_queue()

    def idle_nodes(self) -> list[IdleNode]:
        self._say("idle_nodes")
        return self.idle

    def predicted_start(self, request: SubmitRequest) -> PredictedStart | None:
        self._say("predicted_start")
        return self._predicted(self._partition(request.script.read_text()))

    def _say(self, call: str) -> None:
        self._advance()
        self.calls.append(call)
        if self.is_controller_down:
            raise SchedulerUnavailable(
                "Unable to contact slurm controller (connect failure)", next_action="try again"
            )

    def _partition(self, script: str, *, refuses: bool = False) -> str:
        wanted = re.search(r"^#SBATCH --partition[= ](\S+)", script, re.MULTILINE)
        if refuses or (wanted and wanted[1] not in self.partitions):
            raise SubmissionRefused(
                "Invalid partition name specified",
                where=Where(key="resources.partition"),
                next_action="see what there is with `hpcflow site show`",
            )
        return wanted[1] if wanted else "gpu"

    def _allowed(self, script: str) -> list[str]:
        """Return the nodes that ``--exclude`` leaves; an unknown node is an error, as in sbatch."""
        found = re.search(r"^#SBATCH --exclude[= ](\S+)", script, re.MULTILINE)
        excluded = set(expand(found[1])) if found else set()
        if not excluded <= set(self.nodes):
            raise SubmissionRefused(
                "Invalid node name specified", where=Where(key="resources.exclude")
            )
        allowed = [node for node in self.nodes if node not in excluded]
        if not allowed:
            raise SubmissionRefused("Requested node configuration is not available")
        return allowed

    def _is_full(self, more: int) -> bool:
        alive = [job for job in self._jobs.values() if job.state is not AttemptState.ENDED]
        return self.max_jobs is not None and len(alive) + more > self.max_jobs


def _submitted(job: JobInfo) -> datetime:
    assert job.submitted_at is not None
    return job.submitted_at
