"""Sending a run again because a rule said so: nobody is asked, and nobody's wish is changed."""

from __future__ import annotations

from hpcflow.clock import Clock
from hpcflow.errors import StorageError
from hpcflow.launch import submission
from hpcflow.launch.jobs import require_cluster
from hpcflow.launch.next_attempt import NextAttempt
from hpcflow.launch.run import Launched
from hpcflow.model.journal import (
    Ended,
    Held,
    JournalRecord,
    Released,
    Resumed,
    Submitted,
)
from hpcflow.model.run import Run
from hpcflow.schedulers.base import Scheduler
from hpcflow.settings import Settings
from hpcflow.sites.schema import Site
from hpcflow.storage import journal
from hpcflow.storage.layout import RunDir
from hpcflow.storage.locks import submit_lock


def resubmit(
    run_dir: RunDir,
    run: Run,
    *,
    after: int,
    mem_mb: int | None,
    settings: Settings,
    scheduler: Scheduler,
    site: Site,
    clock: Clock,
) -> Launched | None:
    """Send the next attempt of ``run``, if what the decision went by is still so.

    Args:
        after: the last attempt that was a job, as the decision knew it; 0 for none.
        mem_mb: memory on every node instead of what the run asks for.

    Returns:
        None where somebody else is at work on the run, has moved it on, or wants it to stop.

    Raises:
        SchedulerError: it could not be sent; journaled, and to be tried later.
    """
    require_cluster(site, scheduler)
    try:
        with submit_lock(run_dir, wait_s=0) as lock:
            found = submission.settle(run_dir, scheduler=scheduler, clock=clock, lock=lock)
            records = journal.read(run_dir)
            if found is not None or run_dir.cancel.exists() or _is_held(records):
                return None
            if not _is_over(records, after):
                return None
            last = submission.last_attempt(records)
            attempt = NextAttempt(run, run_dir, last, settings=settings, site=site, mem_mb=mem_mb)
            return attempt.send(scheduler=scheduler, clock=clock, lock=lock)
    except StorageError as error:
        if error.retryable:  # somebody else is submitting it right now
            return None
        raise


def _is_over(records: list[JournalRecord], after: int) -> bool:
    """Whether ``after`` is the last attempt that became a job, and has ended."""
    jobs = [record.attempt for record in records if isinstance(record, Submitted)]
    if max(jobs, default=0) != after:
        return False
    return after == 0 or any(
        isinstance(record, Ended) and record.attempt == after for record in records
    )


def _is_held(records: list[JournalRecord]) -> bool:
    """Whether somebody wants nothing sent: the ledger may not know yet."""
    held = False
    for record in records:
        if isinstance(record, Held):
            held = True
        elif isinstance(record, (Released, Resumed)):
            held = False
    return held
