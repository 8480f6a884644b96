"""Find the jobs of a run, and check before a submission that none may exist unseen."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from hpcflow.clock import Clock
from hpcflow.errors import StorageError, shell_word
from hpcflow.history import RunHistory
from hpcflow.model.ids import parse_job_name
from hpcflow.model.journal import CancelRequested
from hpcflow.model.state import AttemptState
from hpcflow.schedulers.base import JobInfo, Scheduler
from hpcflow.storage.disk_errors import storage_errors
from hpcflow.storage.journal import Journal
from hpcflow.storage.layout import RunDir

#: How far the clocks of login nodes and of the controller may differ.
_CLOCKS_DIFFER = timedelta(minutes=10)


def require_journal(journal: Journal, *, known_attempts: int = 0, begins: bool = False) -> None:
    """Check that the journal exists: without it the state of the run's jobs is unknown.

    Args:
        known_attempts: number of attempts in the ledger, which keeps them after a purge.
        begins: accept a missing journal, because the user resumes the run.

    Raises:
        StorageError: the journal has no attempt, and there was one; or it is missing.
    """
    run_dir = journal.run_dir
    if journal.history.last.number == 0 and (known_attempts or _has_executed(run_dir)):
        raise StorageError(
            f"the journal of run {journal.run_id} is missing, so the state of its jobs is unknown",
            next_action=f"put back {shell_word(run_dir.journal)} from a backup; if the run was "
            f"mirrored: hpcflow restore {journal.run_id}; else start a new run: hpcflow run "
            f"CONFIG. The remaining files of this one are in {run_dir.path}",
        )
    if not begins:
        journal.require()


def cancel_requested(journal: Journal, *, user: str, clock: Clock) -> bool:
    """Return whether a run is cancelled; the caller holds its lock.

    An older hpcflow that was killed may have left the file ``cancel`` without a journal record.
    Every job would exit at once because of it. So the missing record is written here.
    """
    if journal.history.is_cancelled:
        return True
    if not journal.run_dir.cancel.exists():
        return False
    why = "its run directory has the file `cancel`, without a record in the journal"
    journal.append(CancelRequested(at=clock.now(), by=user, why=why))
    return True


def discard_unrecorded(path: Path) -> None:
    """Delete the run directory of a run that has no record: its creation was killed.

    Raises:
        StorageError: a job has used it, so the record is lost; or it cannot be deleted.
    """
    if _has_executed(RunDir(path)):
        raise StorageError(
            f"{path} belongs to a run whose record is missing",
            next_action=f"put the folder {path.name} back into runs/ in HPCFLOW_HOME, from a "
            "backup; if the run was mirrored: hpcflow restore --from URL",
        )
    with storage_errors("delete", path):
        shutil.rmtree(path)


def _has_executed(run_dir: RunDir) -> bool:
    """Return whether a job has written a file for any attempt."""
    folders = map(run_dir.attempt, run_dir.attempt_numbers())
    return any(each.claim.exists() or each.events.exists() or each.log.exists() for each in folders)


def alive_jobs(
    run_id: str,
    scheduler: Scheduler,
    history: RunHistory,
    *,
    queue: Sequence[JobInfo] | None = None,
) -> list[str]:
    """Return the ids of the run's jobs in the queue that execute it now, or may do so again.

    Jobs are found by their names, because ids are reused. A user may rename a job, or name one
    submitted by hand. So the journal's job id also counts if the job has the journal's name or
    submit time, or was restarted, which changes its submit time. An id from a store never counts: a
    user who can write there would choose which job is cancelled.

    Args:
        history: empty if the journal cannot be read.
        queue: the scheduler's queue a moment ago; None to query it.
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

    The next attempt replaces them. A job that a user releases would find that, and exit.
    """
    held = [job for job in queue if job.is_held_for_its_exit]
    own = alive_jobs(run_id, scheduler, history, queue=held) if held else []
    if own:
        scheduler.cancel(own)
    return [job for job in queue if job.job_id not in own]
