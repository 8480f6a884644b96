"""Find the jobs of a run, and check whether this is their cluster."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from hpcflow.errors import InputError, StorageError, Where
from hpcflow.history import RunHistory
from hpcflow.model.ids import parse_job_name
from hpcflow.model.state import AttemptState
from hpcflow.schedulers.base import JobInfo, Scheduler
from hpcflow.sites.schema import Site
from hpcflow.storage.journal import Journal
from hpcflow.storage.layout import RunDir

#: sbatch gives up after about two minutes; a process that holds the lock longer is in trouble.
LOCK_WAIT_S = 180.0

#: How far the clocks of login nodes and of the controller may differ.
_CLOCKS_DIFFER = timedelta(minutes=10)


def other_cluster(site: Site, scheduler: Scheduler) -> str | None:
    """Name of the cluster that answers here, if it is not the site's; None if it is, or may be."""
    here = scheduler.cluster()
    if here and site.cluster_name and here.lower() != site.cluster_name.lower():
        return here
    return None


def require_cluster(site: Site, scheduler: Scheduler) -> None:
    """Refuse to send to another cluster than the site's: homes and scratch can be common to many.

    Raises:
        InputError: the Slurm of this machine is another cluster's.
    """
    if here := other_cluster(site, scheduler):
        raise InputError(
            f"site {site.name} is the cluster {site.cluster_name}, and Slurm on this machine is "
            f"that of {here}",
            where=Where(key="--site"),
            next_action=f"log in to {site.cluster_name}, or name this cluster's site: "
            "hpcflow site list",
        )


def require_journal(journal: Journal, *, known_attempts: int = 0, begins: bool = False) -> None:
    """Refuse to go on without the journal: nobody knows then what became of the jobs.

    Args:
        known_attempts: how many the ledger knows; it remembers what a purge took from scratch.
        begins: accept a missing journal, because the user resumes the run.

    Raises:
        StorageError: the journal has no attempt, and there was one; or it is missing.
    """
    run_dir = journal.run_dir
    if journal.history.last.number == 0 and (known_attempts or _has_executed(run_dir)):
        raise StorageError(
            f"the journal of run {journal.run_id} is gone, and with it what became of its jobs",
            next_action="scratch may have been purged; if the run was mirrored: hpcflow restore "
            f"{journal.run_id}; else start a new run: hpcflow run CONFIG. "
            f"What is left of this one is in {run_dir.path}",
        )
    if not begins:
        journal.require()


def _has_executed(run_dir: RunDir) -> bool:
    """Whether a job has left something in the folder of any attempt; a script alone is no job."""
    folders = map(run_dir.attempt, run_dir.attempt_numbers())
    return any(each.claim.exists() or each.events.exists() or each.log.exists() for each in folders)


def alive_jobs(
    run_id: str,
    scheduler: Scheduler,
    history: RunHistory,
    *,
    queue: Sequence[JobInfo] | None = None,
) -> list[str]:
    """Ids of the jobs in the queue that are of the run, and execute it now or may once more.

    By their names, for ids are used again. People rename their jobs, and name those that they send
    by hand: an id of the journal counts under another name if it was submitted when the journal
    says, under the name that the journal knows, or if it was restarted, for then it has a new time.
    No id counts that came from a store: a user who may write there would choose which job is ended.

    Args:
        history: empty if the journal cannot be read.
        queue: what the scheduler said a moment ago, if it need not be asked.
    """
    last = history.last
    attempt = history.attempt(last.number)
    seen = [each.submitted_at for each in attempt.observed]
    sent = [each.at for each in attempt.submissions if each.how == "sbatch"]

    def is_of_run(job: JobInfo) -> bool:
        if (named := parse_job_name(job.job_name)) is not None:
            return named[0] == run_id
        if last.intent is None or job.job_id != last.job_id or not attempt.is_own:
            return False
        if job.restarts or job.is_held_for_its_exit:
            return True
        moment = job.submitted_at
        return job.job_name.strip() == last.intent.job_name.strip() or (
            moment is not None
            and (moment in seen or any(abs(moment - each) < _CLOCKS_DIFFER for each in sent))
        )

    return [
        job.job_id
        for job in (scheduler.queue() if queue is None else queue)
        if (job.state is not AttemptState.ENDED or job.is_held_for_its_exit) and is_of_run(job)
    ]


def cancel_held_jobs(
    run_id: str, scheduler: Scheduler, history: RunHistory, queue: Sequence[JobInfo]
) -> list[JobInfo]:
    """Cancel the run's jobs that Slurm holds for their exit code; return the other jobs.

    The next attempt takes their place. If a user released one, it would find that and leave.

    Raises:
        SchedulerError: Slurm did not cancel them.
    """
    held = [job for job in queue if job.is_held_for_its_exit]
    own = alive_jobs(run_id, scheduler, history, queue=held) if held else []
    if own:
        scheduler.cancel(own)
    return [job for job in queue if job.job_id not in own]
