"""Resubmit a run by the decision of a rule; its request does not change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hpcflow.launch import submission
from hpcflow.launch.committing import give_back_standby
from hpcflow.launch.context import LaunchContext
from hpcflow.launch.jobs import alive_jobs, cancel_held_jobs, cancel_requested, require_journal
from hpcflow.launch.restarts import adopt_restarted
from hpcflow.launch.standby import continue_with_standby, is_deciding, without_standby
from hpcflow.model.run import Run
from hpcflow.schedulers.base import JobInfo
from hpcflow.storage.journal import Journal
from hpcflow.storage.locks import HeldLock

# The modules that render scripts are slow to import, and most rounds submit nothing.
if TYPE_CHECKING:
    from hpcflow.launch.run import Launched


def resubmit(
    context: LaunchContext,
    journal: Journal,
    run: Run,
    *,
    after: int,
    mem_mb: int | None,
    lock: HeldLock,
    queue: Sequence[JobInfo],
    avoid: Sequence[str] = (),
    has_room: bool = True,
) -> Launched | None:
    """Submit the next attempt of ``run``, if the facts of the decision still hold.

    Args:
        after: the last attempt that was a job when this was decided; 0 for none.
        mem_mb: memory on every node, instead of what the run requests.
        lock: the run's, held by the caller.
        queue: the scheduler's queue a moment ago.
        has_room: whether Slurm accepts new jobs; a pending standby needs none.

    Returns:
        The next attempt, which is the standby if there is one. None if

        - another process has submitted or cancelled the run,
        - an ended job is alive again (an admin requeued it, a node came back); a restarted one
          becomes the next attempt,
        - its standby has just started, and decides whether it continues,
        - there is no room.

    Raises:
        StorageError: its journal is missing, so the state of its jobs is unknown.
        SchedulerError: it could not be submitted; journaled, and to be tried later.
    """
    scheduler, clock = context.scheduler, context.clock
    found = submission.settle(journal, scheduler=scheduler, clock=clock, lock=lock)
    require_journal(journal, known_attempts=after)
    before = journal.history
    if found is not None or not before.is_over_after(after):
        return None
    if cancel_requested(journal, user=context.settings.user, clock=clock):
        return None
    run_dir = journal.run_dir
    if is_deciding(run_dir, before.last, queue, clock.now()):
        return None
    waited = continue_with_standby(
        journal, scheduler=scheduler, clock=clock, lock=lock, queue=queue, mem_mb=mem_mb
    )
    give_back_standby(context, run, before.last, journal)
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

    return NextAttempt(context, run, journal, mem_mb=mem_mb, avoid=avoid).send(lock)
