"""Resubmit a run because a rule says so; no request changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hpcflow.clock import Clock
from hpcflow.launch import submission
from hpcflow.launch.cancel_request import cancel_requested
from hpcflow.launch.jobs import alive_jobs, cancel_held_jobs, require_journal
from hpcflow.launch.restarts import adopt_restarted
from hpcflow.launch.standby import go_on_with_standby, judges_by_itself, without_standby
from hpcflow.launch.standby_share import give_back_standby
from hpcflow.model.journal import Ended, JournalRecord, Submitted
from hpcflow.model.run import Run
from hpcflow.schedulers.base import JobInfo, Scheduler
from hpcflow.settings import Settings
from hpcflow.sites.schema import Site
from hpcflow.storage import journal
from hpcflow.storage.layout import RunDir
from hpcflow.storage.locks import HeldLock

# What renders takes long to import, and most rounds send nothing.
if TYPE_CHECKING:
    from hpcflow.launch.run import Launched


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
    lock: HeldLock,
    queue: Sequence[JobInfo],
    avoid: Sequence[str] = (),
    has_room: bool = True,
) -> Launched | None:
    """Send the next attempt of ``run``, if what the decision went by is still so.

    Args:
        after: the last attempt that was a job, as the decision knew it; 0 for none.
        mem_mb: memory on every node instead of what the run asks for.
        scheduler: that of the run's own cluster, as the caller has made sure.
        lock: the run's, held by the caller.
        queue: what the scheduler said a moment ago.
        avoid: nodes to keep away from.
        has_room: whether Slurm takes jobs at all; a standby that waits already needs none.

    Returns:
        The next attempt: its standby, where it has one. None where somebody else has moved the run
        on or wants it to stop, or a job of it is alive that had ended (an admin requeued it, a node
        came back); one that was restarted is the next attempt from now on. None also where its
        standby has just started, and decides at this moment whether it goes on; or without room.

    Raises:
        StorageError: its journal is gone, and with it what became of its jobs.
        SchedulerError: it could not be sent; journaled, and to be tried later.
    """
    found = submission.settle(run_dir, scheduler=scheduler, clock=clock, lock=lock)
    records = journal.read(run_dir)
    require_journal(run_dir, records, known_attempts=after)
    if found is not None or not _is_over(records, after):
        return None
    if cancel_requested(run_dir, records, user=settings.user, clock=clock):
        return None
    before = submission.last_attempt(records)
    if judges_by_itself(run_dir, before, queue, clock.now()):
        return None
    waited = go_on_with_standby(
        run_dir, scheduler=scheduler, clock=clock, lock=lock, queue=queue, mem_mb=mem_mb
    )
    give_back_standby(run, before, run_dir, site=site, home=settings.home, clock=clock)
    if waited is not None:
        from hpcflow.launch.run import Launched

        return Launched(run.run_id, waited.attempt, waited.job_id, run_dir.path, run.site)
    queue, records = without_standby(records, queue), journal.read(run_dir)
    queue = cancel_held_jobs(run.run_id, scheduler, records, queue)
    if alive_jobs(run.run_id, scheduler, records, queue=queue):
        adopt_restarted(run_dir, records, queue, clock)
        return None
    if not has_room:
        return None
    from hpcflow.launch.next_attempt import NextAttempt

    attempt = NextAttempt(
        run,
        run_dir,
        records,
        settings=settings,
        site=site,
        clock=clock,
        mem_mb=mem_mb,
        avoid=avoid,
    )
    return attempt.send(scheduler=scheduler, clock=clock, lock=lock)


def _is_over(records: list[JournalRecord], after: int) -> bool:
    """Whether ``after`` is the last attempt that became a job, and has ended."""
    jobs = [record.attempt for record in records if isinstance(record, Submitted)]
    if max(jobs, default=0) != after:
        return False
    return after == 0 or any(
        isinstance(record, Ended) and record.attempt == after for record in records
    )
