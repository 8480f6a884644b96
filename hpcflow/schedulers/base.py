"""The contract between hpcflow and a scheduler.

Implementations: :mod:`hpcflow.schedulers.slurm` (commands, or pyslurm for queries),
:mod:`hpcflow.schedulers.local` (submitit) and the shipped fake,
:mod:`hpcflow.testing.fake_scheduler`. All pass :mod:`hpcflow.testing.scheduler_contract`. To add a
scheduler, implement :class:`Scheduler` and run that suite.
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
    """Everything that a submission needs; it was built and could be looked at before.

    Attributes:
        script: the job script. All options stand in its ``#SBATCH`` lines.
        directory: where the submitting command runs; a relative ``--output`` is relative to it.
        job_name: as in the script; unique for all time.
        lock_fd: an open file descriptor that the submitting child process must inherit. The lock
            on it then lives exactly as long as anybody may still create this job.
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


@dataclass(frozen=True)
class JobInfo:
    """What the scheduler says about one job. Times are aware UTC; None where it does not say.

    Attributes:
        job_id: of a heterogeneous job the first component has its number, the others ``123+1``.
        restarts: how often the scheduler has restarted it under this id.
        submitted_at: a restart counts as a submission.
        begins_at: the time that it waits for, if that is what it waits for.
        preempted_at: when it was told that a job of higher priority takes its nodes. Only the queue
            knows it, and only of the job's last life.
        record_id: number of its record in accounting, unique for all time: each life of a job has a
            record, and each part of a resized one. From Slurm 24.11 on it is the SLUID of the life,
            or of the part, as a number. Only accounting knows it.
        elapsed_s: how long it ran, without what it was suspended. Only accounting knows it.
        usage: what it was allocated. Only accounting knows it.
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
        """Whether the queue holds this job, which ended with an error, until a user releases it."""
        word = normalize_raw_state(self.raw_state)
        is_over = self.state is AttemptState.ENDED and self.source == "queue"
        return is_over and word in HELD_FOR_ITS_EXIT


@dataclass(frozen=True)
class Lookup:
    """The answer to "does a job of this name exist?".

    Attributes:
        jobs: all that bear the name, newest last.
        is_certain: whether the absence of a job proves that there is none. False while accounting
            is configured but does not answer, unless the queue alone still remembers that far back.
    """

    jobs: tuple[JobInfo, ...] = ()
    is_certain: bool = True


class Scheduler(Protocol):
    """Submit, ask, cancel. Every method may raise SchedulerUnavailable."""

    name: str

    def cluster(self) -> str | None:
        """Name of the cluster that answers here; None where it has none, or does not answer.

        People have the same home and the same scratch on several clusters. Never raises.
        """
        ...

    def submit(self, request: SubmitRequest) -> JobRef:
        """Send one job.

        Raises:
            SubmissionRefused: no job exists and none would if the same were sent again.
            SubmissionDelayed: no job exists; a limit is full for now.
            SubmissionInDoubt: a job may exist.
            SchedulerUnavailable: no job exists, the scheduler does not answer.
        """
        ...

    def most_tasks(self) -> int:
        """How many tasks an array may have; 1 where there are no arrays."""
        ...

    def find(self, job_name: str, since: datetime) -> Lookup:
        """Every job of this name submitted at or after ``since``: in the queue, in accounting."""
        ...

    def queue(self, job_ids: Sequence[str] = ()) -> list[JobInfo]:
        """One batched question: these jobs, or all of this user's, as the queue knows them.

        A job that the queue has forgotten is absent from the answer; that is not an end.
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
        """One batched question to accounting, duplicates (requeues) included, oldest first.

        What is told is of jobs that have one of these ids or one of these names, and that were
        submitted since then; with ``is_named`` also of those for whose name it is true, even if
        they were submitted before and ran since then. A site that has no accounting answers with
        nothing: nobody knows more than the queue.

        Raises:
            SchedulerUnavailable: accounting does not answer.
        """
        ...

    def cancel(self, job_ids: Sequence[str]) -> None:
        """End these jobs. Those that ended already, or never were, are no error."""
        ...

    def start_now(self, job_ids: Sequence[str]) -> dict[str, str]:
        """Take the begin time of these waiting jobs away: they start as soon as there is room.

        Those that wait no more, or never were, are no error.

        Returns:
            Why not, in the scheduler's words, for each job whose begin time may not be changed.
        """
        ...

    def restart_delay_s(self) -> float:
        """How long a job waits that the scheduler has restarted, before it may start again."""
        ...

    def cluster_info(self) -> ClusterInfo:
        """What the cluster says about itself."""
        ...

    def accounts(self, user: str) -> frozenset[str] | None:
        """Accounts that ``user`` may charge; None when the cluster has no accounting, or it is
        silent."""
        ...

    def standing(self, user: str) -> Standing | None:
        """The accounts of ``user``, their limits, and their fair shares.

        Each part that cannot be had is left out and named in ``missing``. None when the cluster has
        no accounting, or says nothing at all.
        """
        ...

    def reservations(self) -> list[Reservation]:
        """What is set aside, and for whom, now or later, that has not ended; by its start."""
        ...

    def waiting(self, job_ids: Sequence[str]) -> list[WaitingJob]:
        """What is known of those of these jobs that wait, in the order in which they were given.

        One question about all waiting jobs of the cluster, and one about priorities, which may fail
        alone.
        """
        ...

    def cluster_queue(self) -> ClusterQueue:
        """Everybody's jobs that wait for room or run, as far as the site shows them."""
        ...

    def idle_nodes(self) -> list[IdleNode]:
        """Nodes that take jobs now, with what is idle on each."""
        ...

    def predicted_start(self, request: SubmitRequest) -> PredictedStart | None:
        """When, and where, this job would start if it were sent now. Nothing is sent.

        Slurm counts the jobs that run; where jobs of higher priority wait in the partition, it
        divides what they ask for by its nodes instead, and counts those that a limit holds, too.

        Returns:
            None where the scheduler cannot say.

        Raises:
            SubmissionRefused: it would be refused.
            SubmissionDelayed: a limit on the number of jobs is full for now.
        """
        ...
