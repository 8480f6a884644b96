"""The contract between hpcflow and a scheduler.

Implementations: :mod:`hpcflow.schedulers.slurm` (commands, or pyslurm for queries),
:mod:`hpcflow.schedulers.local` (submitit) and the shipped fake,
:mod:`hpcflow.testing.fake_scheduler`. All pass :mod:`hpcflow.testing.scheduler_contract`. To add a
scheduler, implement :class:`Scheduler` and run that suite; docs/schedulers.md says how.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from hpcflow.model.state import HELD_FOR_ITS_EXIT, AttemptState, normalize_raw_state
from hpcflow.model.usage import Usage

if TYPE_CHECKING:
    from hpcflow.schedulers.waiting import ClusterQueue, IdleNode, PredictedStart, WaitingJob
    from hpcflow.sites.live import ClusterInfo
    from hpcflow.sites.standing import Reservation, Standing


@dataclass(frozen=True)
class SubmitRequest:
    """Everything that a submission needs.

    Attributes:
        script: the job script, with all options in its ``#SBATCH`` lines.
        directory: where the submitting command runs; a relative ``--output`` is relative to it.
        job_name: as in the script; never reused.
        lock_fd: an open file descriptor that the submitting child process must inherit. Its lock
            is held as long as a process may still create this job.
    """

    script: Path
    directory: Path
    job_name: str
    lock_fd: int | None = None


@dataclass(frozen=True)
class JobRef:
    """A job that exists."""

    job_id: str
    cluster: str | None = None


@dataclass(frozen=True, slots=True)
class JobInfo:
    """The scheduler's information about one job. Times are aware UTC; None means unknown.

    Attributes:
        job_id: of a heterogeneous job, the first component has its number, the others ``123+1``.
        restarts: how often the scheduler has requeued it under this id.
        submitted_at: a requeue counts as a submission.
        begins_at: the begin time of a job that is pending for that reason.
        preempted_at: when Slurm signalled the preemption. Only the queue has it, and only since the
            last requeue.
        record_id: number of its accounting record, never reused. Each requeue of a job, and each
            part of a resized one, has its own record. From Slurm 24.11 on, it is the record's SLUID
            as a number. Only accounting has it.
        elapsed_s: run time without suspended time. Only accounting has it.
        usage: the allocated resources. Only accounting has it.
    """

    job_id: str
    job_name: str
    raw_state: str
    state: AttemptState
    reason: str | None = None
    partition: str | None = None
    account: str | None = None
    nodes: tuple[str, ...] = ()
    exit_code: int | None = None
    signal: int | None = None
    restarts: int | None = None
    submitted_at: datetime | None = None
    begins_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    preempted_at: datetime | None = None
    qos: str | None = None
    record_id: int | None = None
    elapsed_s: int | None = None
    usage: Usage | None = None
    source: Literal["queue", "accounting", "local"] = "queue"

    @property
    def is_held_for_its_exit(self) -> bool:
        """Return whether the queue holds this job after an error until a user releases it."""
        word = normalize_raw_state(self.raw_state)
        is_over = self.state is AttemptState.ENDED and self.source == "queue"
        return is_over and word in HELD_FOR_ITS_EXIT


@dataclass(frozen=True)
class Lookup:
    """The answer to "does a job of this name exist?".

    Attributes:
        jobs: all jobs of this name, newest last.
        is_certain: whether the absence of a job proves that there is none. False while configured
            accounting does not answer, unless the queue alone goes back far enough.
    """

    jobs: tuple[JobInfo, ...] = ()
    is_certain: bool = True


class Scheduler(Protocol):
    """Submit, query and cancel jobs. Every method may raise SchedulerUnavailable.

    A method with a result here is for what many schedulers lack: arrays, begin times, accounting, a
    queue that others see.
    """

    name: str

    def cluster(self) -> str | None:
        """Return the name of the cluster; None if it has none or does not answer. Never raise.

        Several clusters may share one home and one scratch.
        """
        return None

    def submit(self, request: SubmitRequest) -> JobRef:
        """Submit one job.

        Raises:
            SubmissionRefused: no job exists, and a resubmission would fail, too.
            SubmissionDelayed: no job exists; a limit is full for now.
            SubmissionInDoubt: a job may exist.
            SchedulerUnavailable: no job exists; the scheduler does not answer.
        """
        ...

    def most_tasks(self) -> int:
        """Return the maximum number of tasks of an array; 1 if there are no arrays."""
        return 1

    def find(self, job_name: str, since: datetime) -> Lookup:
        """Find the jobs of this name submitted at or after ``since``, in queue and accounting."""
        ...

    def queue(self, job_ids: Sequence[str] = ()) -> list[JobInfo]:
        """Return these jobs, or all of this user's, from the queue, with one query.

        The absence of a job does not mean that it ended: the queue forgets jobs.
        """
        ...

    def accounting(
        self,
        job_ids: Sequence[str],
        since: datetime,
        *,
        job_names: Sequence[str] = (),
        is_named: Callable[[str], bool] | None = None,
    ) -> list[JobInfo]:
        """Return accounting records, oldest first, with one query. A requeued job has several.

        The jobs have one of these ids or names, and were submitted after ``since``. ``is_named``
        also selects jobs by name that were submitted earlier and ran after ``since``. A site
        without accounting returns an empty list.

        Raises:
            SchedulerUnavailable: accounting does not answer.
        """
        ...

    def cancel(self, job_ids: Sequence[str]) -> None:
        """Cancel these jobs; ignore those that ended or do not exist."""
        ...

    def start_now(self, job_ids: Sequence[str]) -> dict[str, str]:  # noqa: ARG002 - a default needs none
        """Remove the begin time of these pending jobs; ignore jobs that are not pending.

        Returns:
            Job id -> the scheduler's error, for each job whose begin time may not be changed.
        """
        return {}

    def restart_delay_s(self) -> float:
        """Return how long a requeued job waits before it may start again."""
        return 0.0

    def cluster_info(self) -> ClusterInfo:
        """Return the cluster's partitions, nodes and limits."""
        ...

    def accounts(self, user: str) -> frozenset[str] | None:  # noqa: ARG002 - a default needs none
        """Return the accounts that ``user`` may charge; None without an answer of accounting."""
        return None

    def standing(self, user: str) -> Standing | None:  # noqa: ARG002 - a default needs none
        """Return the accounts of ``user``, their limits and fair shares.

        ``missing`` names each part that is unavailable. None if the cluster has no accounting, or
        no part is available.
        """
        return None

    def reservations(self) -> list[Reservation]:
        """Return the present and future reservations, sorted by start."""
        return []

    def waiting(self, job_ids: Sequence[str]) -> list[WaitingJob]:  # noqa: ARG002 - a default needs none
        """Return those of these jobs that are pending, in the given order.

        One query asks for all pending jobs of the cluster, a second one for priorities. Only the
        second may fail silently.
        """
        return []

    def cluster_queue(self) -> ClusterQueue:
        """Return the pending and running jobs of all users, as far as the site shows them."""
        ...

    def idle_nodes(self) -> list[IdleNode]:
        """Return the nodes that accept jobs now, with the idle resources of each."""
        return []

    def predicted_start(self, request: SubmitRequest) -> PredictedStart | None:  # noqa: ARG002 - a default needs none
        """Return when and where this job would start if submitted now; None if unknown.

        Nothing is submitted. Slurm considers running jobs. If jobs of higher priority are pending
        in the partition, it divides their requests by the number of nodes instead, and counts jobs
        that a limit holds, too.

        Raises:
            SubmissionRefused: it would be refused.
            SubmissionDelayed: a limit on the number of jobs is full for now.
        """
        return None
