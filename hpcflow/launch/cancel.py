"""Stopping a run for good: the wish, and the end of its jobs."""

from __future__ import annotations

from contextlib import suppress

from hpcflow.clock import Clock
from hpcflow.errors import SchedulerUnavailable, SubmissionInDoubt
from hpcflow.launch import submission
from hpcflow.launch.jobs import LOCK_WAIT_S, alive_jobs
from hpcflow.launch.standby import discard
from hpcflow.model.journal import CancelRequested, JournalRecord
from hpcflow.schedulers.base import Scheduler
from hpcflow.settings import Settings
from hpcflow.storage import journal
from hpcflow.storage.files import write_durably
from hpcflow.storage.layout import RunDir
from hpcflow.storage.locks import submit_lock
from hpcflow.storage.restoring import keep_cancelled
from hpcflow.storage.runs import is_gone
from hpcflow.storage.unread import mark_unread


def cancel(
    run_dir: RunDir, *, settings: Settings, scheduler: Scheduler, clock: Clock
) -> str | None:
    """Stop a run for good; returns the id of the job that was cancelled, if one was alive.

    Raises:
        StorageError: the wish could not be written.
        SchedulerError: Slurm could not be asked. The wish stands; say it again later.
    """
    wish_to_cancel(run_dir, settings=settings, clock=clock)
    return end_jobs(run_dir, scheduler=scheduler, clock=clock)


def wish_to_cancel(
    run_dir: RunDir,
    *,
    settings: Settings,
    clock: Clock,
    why: str | None = None,
    word: str = "",
) -> None:
    """Write down, durably and before Slurm is even looked for, that the run shall stop for good.

    A job of this run that starts later, because its submission was in doubt, sees it and leaves at
    once; whoever looks at the run ends a job that is found. Of a run whose directory is gone the
    home keeps it, for when it is restored.

    Args:
        why: for the journal.
        word: what the program is told beside; see ``hpcflow/runtime/notice.py``.

    Raises:
        StorageError: it could not be written.
    """
    mark_unread(settings.home, run_dir)
    if is_gone(run_dir):
        keep_cancelled(settings.home, run_dir.path.name)
        return
    write_durably(run_dir.cancel, f"{word}\n" if word else "")
    journal.append(run_dir, CancelRequested(at=clock.now(), by=settings.user, why=why))


def end_jobs(
    run_dir: RunDir, *, scheduler: Scheduler, clock: Clock, cluster: str | None = None
) -> str | None:
    """End whatever job of a run is alive; returns the id of one of them.

    Of a run whose directory is gone, only the queue can still tell.

    Args:
        cluster: where its last job was sent to, as the ledger knows it.

    Raises:
        SchedulerError: Slurm could not be asked, or this is another cluster than the run's.
        StorageError: the run's files cannot be read.
    """
    records: list[JournalRecord] = []
    if not is_gone(run_dir):
        with submit_lock(run_dir, wait_s=LOCK_WAIT_S) as lock:
            submission.settle(run_dir, scheduler=scheduler, clock=clock, lock=lock)
            last = submission.last_attempt(journal.read(run_dir))
            is_out = last.intent is not None and (last.is_live or last.has_standby)
            cluster = last.intent.cluster if last.intent is not None and is_out else None
            _require_cluster(run_dir, scheduler, cluster)
            # First, for the end of the running job is what it waits for.
            why = "the run was cancelled"
            with suppress(SubmissionInDoubt):  # it has read the wish, or is found by its name below
                discard(run_dir, scheduler=scheduler, clock=clock, lock=lock, why=why)
            records = journal.read(run_dir)
    _require_cluster(run_dir, scheduler, cluster)
    alive = alive_jobs(run_dir.path.name, scheduler, records)
    if not alive:
        return None
    scheduler.cancel(alive)
    return alive[0]


def _require_cluster(run_dir: RunDir, scheduler: Scheduler, cluster: str | None) -> None:
    """Raises SchedulerUnavailable: ids of jobs mean something else on this cluster."""
    here = scheduler.cluster()
    if here and cluster and here.lower() != cluster.lower():
        raise SchedulerUnavailable(
            f"its job is on cluster {cluster}, and this is {here}",
            next_action=f"say it there: hpcflow cancel {run_dir.path.name}",
        )
