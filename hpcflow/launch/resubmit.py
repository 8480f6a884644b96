"""Resubmit a run because a rule says so; no request changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hpcflow.clock import Clock
from hpcflow.launch import submission
from hpcflow.launch.cancel_request import cancel_requested
from hpcflow.launch.jobs import alive_jobs, cancel_held_jobs, require_journal
from hpcflow.launch.restarts import adopt_restarted
from hpcflow.launch.standby import continue_with_standby, judges_by_itself, without_standby
from hpcflow.launch.standby_share import give_back_standby
from hpcflow.model.run import Run
from hpcflow.schedulers.base import JobInfo, Scheduler
from hpcflow.settings import Settings
from hpcflow.sites.schema import Site
from hpcflow.storage.journal import Journal
from hpcflow.storage.locks import HeldLock

# What renders takes long to import, and most rounds send nothing.
if TYPE_CHECKING:
    from hpcflow.launch.run import Launched


def resubmit(
    journal: Journal,
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
    found = submission.settle(journal, scheduler=scheduler, clock=clock, lock=lock)
    require_journal(journal, known_attempts=after)
    before = journal.history
    if found is not None or not before.is_over_after(after):
        return None
    if cancel_requested(journal, user=settings.user, clock=clock):
        return None
    run_dir = journal.run_dir
    if judges_by_itself(run_dir, before.last, queue, clock.now()):
        return None
    waited = continue_with_standby(
        journal, scheduler=scheduler, clock=clock, lock=lock, queue=queue, mem_mb=mem_mb
    )
    give_back_standby(run, before.last, journal, site=site, home=settings.home, clock=clock)
    if waited is not None:
        from hpcflow.launch.run import Launched

        return Launched(run.run_id, waited.attempt, waited.job_id, run_dir.path, run.site)
    queue, history = without_standby(before, queue), journal.history
    queue = cancel_held_jobs(run.run_id, scheduler, history, queue)
    if alive_jobs(run.run_id, scheduler, history, queue=queue):
        adopt_restarted(journal, queue, clock)
        return None
    if not has_room:
        return None
    from hpcflow.launch.next_attempt import NextAttempt

    attempt = NextAttempt(
        run,
        journal,
        settings=settings,
        site=site,
        clock=clock,
        mem_mb=mem_mb,
        avoid=avoid,
    )
    return attempt.send(scheduler=scheduler, clock=clock, lock=lock)
