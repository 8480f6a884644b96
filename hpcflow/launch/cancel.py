"""Cancel a run: record the request, then cancel the run's jobs.

docs/architecture.md, section "Cancelling", says why the request is both a record and a file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from hpcflow.clock import Clock
from hpcflow.errors import (
    HpcflowError,
    SchedulerUnavailable,
    StorageError,
    SubmissionInDoubt,
    shell_word,
)
from hpcflow.history import LastAttempt, RunHistory
from hpcflow.launch import submission
from hpcflow.launch.jobs import alive_jobs
from hpcflow.launch.standby import discard
from hpcflow.model.journal import CancelRequested
from hpcflow.model.state import AttemptState
from hpcflow.runtime.notice import PRUNED
from hpcflow.schedulers.base import JobInfo, Scheduler
from hpcflow.settings import Settings
from hpcflow.storage import journal as journals
from hpcflow.storage.dirty_marks import mark_dirty
from hpcflow.storage.files import write_durably
from hpcflow.storage.journal import Journal
from hpcflow.storage.layout import Home, RunDir
from hpcflow.storage.locks import LOCK_WAIT_S, HeldLock, submit_lock
from hpcflow.storage.restoring import forget_cancelled, is_restored_now, keep_cancelled
from hpcflow.storage.restoring import is_cancelled as is_kept
from hpcflow.storage.runs import is_gone


def request_cancel(
    run_dir: RunDir,
    *,
    settings: Settings,
    clock: Clock,
    why: str | None = None,
    prune: bool = False,
) -> None:
    """Record durably, before Slurm is called, that the run is cancelled.

    A job of this run that starts later, because its submission was in doubt, reads the request and
    exits at once. If the run has no journal, the home stores the request, and
    :func:`record_kept` records it once the journal is restored. A new journal would hide the lost
    one's records from the ledger and from a restore. The home stores it also during a restore,
    which may replace the journal.

    Args:
        why: the reason, for the journal.
        prune: tell the program to save nothing more; see ``hpcflow/runtime/notice.py``.

    Raises:
        StorageError: a part could not be written; the text says which, and what follows.
    """
    unmarked = _try_to_mark(settings, run_dir)
    run_id = run_dir.path.name
    signal = PRUNED if prune else None
    request = CancelRequested(at=clock.now(), by=settings.user, why=why, signal=signal)
    try:
        has_journal = not journals.is_lost(run_dir)
        if not has_journal or is_restored_now(settings.home, run_id):
            keep_cancelled(settings.home, run_id)
        if has_journal:
            journals.append(run_dir, request)
    except StorageError as error:
        what = "the run is not recorded as cancelled, and a daemon may resubmit it"
        raise _unwritten(what, error, run_id) from error
    try:
        if not is_gone(run_dir):
            write_durably(run_dir.cancel, RunHistory.of([request]).cancel_signal)
    except StorageError as error:
        what = "the run is recorded as cancelled, but a job that starts later will not see it"
        raise _unwritten(what, error, run_id) from error
    if unmarked is not None:
        what = "the run is recorded as cancelled, but hpcflow ls may not show it"
        raise _unwritten(what, unmarked, run_id) from unmarked


def record_kept(home: Home, run_dir: RunDir, *, user: str, clock: Clock) -> None:
    """Record the cancel request that the home stores for a run, if the run has a journal now.

    Raises:
        StorageError: another process is submitting the run (``retryable``).
    """
    run_id = run_dir.path.name
    if not is_kept(home, run_id) or journals.is_lost(run_dir):
        return
    with submit_lock(run_dir, wait_s=0):
        if not is_kept(home, run_id):
            return  # `hpcflow resume` has taken it back
        mark_dirty(home, run_dir)
        journal = Journal(run_dir)
        if not journal.history.is_cancelled:
            journal.append(CancelRequested(at=clock.now(), by=user))
        if not (is_gone(run_dir) or run_dir.cancel.exists()):
            write_durably(run_dir.cancel, journal.history.cancel_signal)
        forget_cancelled(home, run_id)


def end_jobs(
    run_dir: RunDir, *, scheduler: Scheduler, clock: Clock, cluster: str | None = None
) -> str | None:
    """Cancel all jobs of a run that are pending or running; return the id of one of them.

    If the run directory is missing, only the queue knows the jobs. The jobs are cancelled even if
    the journal cannot be written; that error is raised afterwards.

    Args:
        cluster: of its last job, by the ledger.

    Raises:
        SchedulerError: Slurm did not answer, the run is on another cluster, or a submission is
            still in doubt.
        StorageError: the run's files cannot be read or written. In this case, and if a submission
            is in doubt, the jobs that the queue shows are cancelled; ``details["job_id"]`` is one.
    """
    history = RunHistory()
    failed: HpcflowError | None = None
    journal = Journal(run_dir)
    if not is_gone(run_dir):
        try:
            with submit_lock(run_dir, wait_s=LOCK_WAIT_S) as lock:
                submission.settle(journal, scheduler=scheduler, clock=clock, lock=lock)
                _require_cluster(run_dir, scheduler, _cluster_of(journal.history.last))
                # First, because it starts when the running job ends.
                why = "the run was cancelled"
                # The job sees the request, or is found by its name.
                with suppress(SubmissionInDoubt):
                    discard(journal, scheduler=scheduler, clock=clock, lock=lock, why=why)
        except (StorageError, SubmissionInDoubt) as error:
            failed = error
        with suppress(StorageError):
            history = journal.history
        cluster = _cluster_of(history.last)
    _require_cluster(run_dir, scheduler, cluster)
    try:
        alive = alive_jobs(run_dir.path.name, scheduler, history)
        if alive:
            scheduler.cancel(alive)
    except SchedulerUnavailable as error:
        if isinstance(failed, SubmissionInDoubt):  # the more precise error
            raise failed from error
        raise
    if isinstance(failed, StorageError):
        what = "the state of its jobs is not recorded"
        failed = _unwritten(what, failed, run_dir.path.name)
    if failed is not None:
        if alive:
            failed.details["job_id"] = alive[0]
        raise failed
    return alive[0] if alive else None


def complete(
    journal: Journal,
    queue: Sequence[JobInfo],
    *,
    before: Callable[[], None],
    scheduler: Scheduler,
    lock: HeldLock,  # noqa: ARG001 - a proof that nothing is being submitted
) -> None:
    """Complete a cancel that was killed.

    A job that is already completing is left alone, so that it has time to save.

    Args:
        queue: the jobs in the queue that may belong to the run.
        before: called before a job is cancelled, if there is one.
    """
    run_dir, history = journal.run_dir, journal.history
    if not (is_gone(run_dir) or run_dir.cancel.exists()):
        write_durably(run_dir.cancel, history.cancel_signal)
    left = [job for job in queue if job.state is not AttemptState.COMPLETING]
    alive = alive_jobs(journal.run_id, scheduler, history, queue=left)
    if alive:
        before()
        scheduler.cancel(alive)


def _try_to_mark(settings: Settings, run_dir: RunDir) -> StorageError | None:
    """Mark the run as unread; return the error, which must not prevent the cancel."""
    try:
        mark_dirty(settings.home, run_dir)
    except StorageError as error:
        return error
    return None


def _unwritten(what: str, error: StorageError, run_id: str) -> StorageError:
    advice = (error.next_action or "").replace("; then repeat the command", "")
    explained = StorageError(
        f"{what}: {error.message}",
        next_action=f"{advice}; then: hpcflow cancel {shell_word(run_id)}",
    )
    explained.retryable = error.retryable
    return explained


def _cluster_of(last: LastAttempt) -> str | None:
    """Return the cluster of the run's pending or running jobs; None without such jobs."""
    is_out = last.is_live or last.is_open or last.has_standby
    return last.intent.cluster if last.intent is not None and is_out else None


def _require_cluster(run_dir: RunDir, scheduler: Scheduler, cluster: str | None) -> None:
    """Raise SchedulerUnavailable on another cluster, where the same job ids are other jobs."""
    here = scheduler.cluster()
    if here and cluster and here.lower() != cluster.lower():
        raise SchedulerUnavailable(
            f"its job is on cluster {cluster}, but this is {here}",
            next_action=f"run it there: hpcflow cancel {run_dir.path.name}",
        )
