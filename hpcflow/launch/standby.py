"""Standbys: jobs that are pending until the running attempt ends, and then continue the run.

The records of one are wrapped into ``standby`` records until it is an attempt. Its claim file
decides whether it may execute: docs/architecture.md, section "Standby".
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from hpcflow.clock import Clock
from hpcflow.errors import SchedulerError, SchedulerUnavailable
from hpcflow.history import LastAttempt, RunHistory
from hpcflow.launch import submission
from hpcflow.launch.context import LaunchContext
from hpcflow.launch.jobs import cancel_requested, require_journal
from hpcflow.launch.submission import read_claim
from hpcflow.model.ids import parse_job_name
from hpcflow.model.journal import Standby, Submitted, Withdrawn
from hpcflow.model.run import Run
from hpcflow.model.state import AttemptState, Cause
from hpcflow.schedulers.base import JobInfo, Scheduler
from hpcflow.storage.journal import Journal
from hpcflow.storage.layout import RunDir
from hpcflow.storage.locks import HeldLock

# The modules that render scripts are slow to import, and most rounds submit nothing.
if TYPE_CHECKING:
    from hpcflow.launch.run import Launched

_log = logging.getLogger(__name__)

#: After these causes a standby continues the run by itself. After others it exits, unless the
#: journal has it as the next attempt when it starts.
_CONTINUES_AFTER: Final = (Cause.PREEMPTED, Cause.TIMEOUT, Cause.CHECKPOINTED)

#: From its start in Slurm to its claim, or its end: prologs of the nodes, and a slow scontrol.
_DECIDES_WITHIN: Final = timedelta(minutes=3)


def send_standby(
    context: LaunchContext,
    journal: Journal,
    run: Run,
    *,
    after: int,
    lock: HeldLock,
    avoid: Sequence[str] = (),
) -> Launched | None:
    """Submit a standby for the attempt ``after``, if that still runs and has none.

    The caller holds ``lock``. Return None if another process has submitted or cancelled the run, or
    there is a standby.

    Raises:
        StorageError: the journal is missing.
        SchedulerError: it could not be submitted; journaled, and to be tried later.
    """
    scheduler, clock = context.scheduler, context.clock
    submission.settle_standby(journal, scheduler=scheduler, clock=clock, lock=lock)
    require_journal(journal, known_attempts=after)
    last = journal.history.last
    if last.number != after or not last.is_live or last.has_standby:
        return None
    if cancel_requested(journal, user=context.settings.user, clock=clock):
        return None
    if journal.run_dir.attempt(last.next_number).claim.exists():
        return None  # Slurm has restarted the job, which continues the run
    from hpcflow.launch.next_attempt import NextAttempt

    mem_mb = journal.history.own_mem_mb
    attempt = NextAttempt(context, run, journal, mem_mb=mem_mb, avoid=avoid, is_standby=True)
    return attempt.send(lock)


def continue_with_standby(
    journal: Journal,
    *,
    scheduler: Scheduler,
    clock: Clock,
    lock: HeldLock,
    queue: Sequence[JobInfo],
    mem_mb: int | None,
) -> Submitted | None:
    """Make the standby the next attempt of a run whose last attempt is over; journaled.

    A standby that can no longer execute the next attempt as it is wanted now is given up. The
    caller holds ``lock``. Return None if there is no standby (any more).

    Args:
        queue: the scheduler's queue a moment ago.
        mem_mb: memory on every node for the next attempt.
    """
    submission.settle_standby(journal, scheduler=scheduler, clock=clock, lock=lock)
    last = journal.history.last
    standby = last.standby
    if standby is None or standby.intent is None or not last.has_standby:
        return None
    if (holder := read_claim(journal.run_dir, standby.number)) is not None:
        return adopt(journal, holder, clock)
    is_sealed = journal.run_dir.attempt(standby.number).claim.exists()
    if not is_sealed and _waits(standby, queue) and standby.intent.mem_mb == mem_mb:
        return adopt(journal, standby.job_id or "", clock)
    why = "it does not fit the next attempt"
    return discard(journal, queue, scheduler=scheduler, clock=clock, lock=lock, why=why)


def is_deciding(
    run_dir: RunDir, last: LastAttempt, queue: Sequence[JobInfo], now: datetime
) -> bool:
    """Return whether the standby has just started, and decides by itself whether it continues.

    To give it up now would lose its time in the queue.
    """
    standby = last.standby
    if standby is None or last.cause not in _CONTINUES_AFTER:
        return False
    if run_dir.attempt(standby.number).claim.exists():
        return False
    return any(
        job.state is AttemptState.RUNNING
        and job.started_at is not None
        and abs(now - job.started_at) < _DECIDES_WITHIN
        for job in _jobs(standby, queue)
    )


def adopt(journal: Journal, job_id: str, clock: Clock) -> Submitted:
    """Journal that the standby's job is the next attempt; the caller holds the lock."""
    last = journal.history.last
    assert last.standby is not None
    assert last.standby.intent is not None
    here = socket.gethostname()
    intent = last.standby.intent.model_copy(update={"at": clock.now(), "after": None, "host": here})
    submitted = Submitted(
        at=clock.now(),
        attempt=intent.attempt,
        job_id=job_id,
        cluster=intent.cluster,
        how="standby",
    )
    journal.append(intent, submitted)
    return submitted


def discard(
    journal: Journal,
    queue: Sequence[JobInfo] | None = None,
    *,
    scheduler: Scheduler,
    clock: Clock,
    lock: HeldLock,
    why: str,
) -> Submitted | None:
    """Give up the standby of a run, and cancel its job; the caller holds ``lock``.

    Return the next attempt, if the standby has become that meanwhile.

    Args:
        queue: the scheduler's queue a moment ago; None to query it.

    Raises:
        SubmissionInDoubt: it may have a job whose id is unknown.
        SchedulerError: the job could not be cancelled. It exits when it starts. Until that is
            journaled, the next call tries again.
    """
    last = journal.history.last
    if not last.has_standby:
        return None
    if (holder := give_up(journal.run_dir, last)) is not None:
        return adopt(journal, holder, clock)
    submission.settle_standby(journal, scheduler=scheduler, clock=clock, lock=lock)
    last = journal.history.last
    if last.standby is not None and last.has_standby:
        if last.standby.job_id is not None:
            shown = scheduler.queue() if queue is None else queue
            attempt = (journal.run_id, last.standby.number)
            end_jobs({last.standby.job_id: attempt}, shown, scheduler)
        write_off(journal, clock, why)
    return None


def end_jobs(
    jobs: Mapping[str, tuple[str, int]], queue: Sequence[JobInfo], scheduler: Scheduler
) -> None:
    """Cancel the jobs of standbys that were given up, but no other job with a reused id.

    The job name in the queue decides; a journal may be from a store.

    Args:
        jobs: job id -> run id and attempt.
        queue: the scheduler's queue a moment ago, or a part of it. A job that the whole queue does
            not show is cancelled all the same: the queue may be wrong, and a job without a record
            would block the run.

    Raises:
        SchedulerUnavailable: the queue could not be queried.
        SchedulerError: they could not be cancelled. Slurm itself may have answered.
    """
    shown = {job.job_id: job.job_name.strip() for job in queue}
    if unseen := [job_id for job_id in jobs if job_id not in shown]:
        shown |= {job.job_id: job.job_name.strip() for job in scheduler.queue(unseen)}
    own = [
        job_id
        for job_id, attempt in jobs.items()
        if parse_job_name(shown.get(job_id, "")) == attempt
    ]
    numbers = {_number(job_id) for job_id in shown}
    unseen = [job_id for job_id in jobs if _number(job_id) not in numbers]
    for job_ids in (own, unseen):
        try:
            if job_ids:
                scheduler.cancel(job_ids)
        except SchedulerUnavailable as error:  # noqa: PERF203 - two at most
            raise SchedulerError(error.message, next_action=error.next_action) from error
        except SchedulerError as error:
            if job_ids is own:
                raise
            _log.debug("%s", error.message)  # the ids may be of other users' jobs by now


def _number(job_id: str) -> str:
    """Return the number that all tasks of an array, or parts of a heterogeneous job, share."""
    return job_id.partition("_")[0].partition("+")[0]


def give_up(run_dir: RunDir, last: LastAttempt) -> str | None:
    """Prevent the standby from executing anything; return the id of its job if it already does.

    Raises:
        SubmissionInDoubt: its claim cannot be written or read.
    """
    assert last.standby is not None
    assert last.standby.intent is not None
    return submission.seal(run_dir, last.standby.intent)


def write_off(journal: Journal, clock: Clock, why: str) -> None:
    """Journal that the standby was given up and has no job any more."""
    standby = journal.history.last.standby
    assert standby is not None
    gone = Withdrawn(at=clock.now(), attempt=standby.number, reason=why)
    journal.append(Standby(at=gone.at, says=gone))


def follow_standby(
    journal: Journal,
    queue: Sequence[JobInfo],
    *,
    scheduler: Scheduler,
    clock: Clock,
    lock: HeldLock,
) -> bool:
    """Journal whether a standby has started or exited by itself; return whether it has.

    The caller holds ``lock``.

    Raises:
        SubmissionInDoubt: it has exited, and its claim could not be sealed.
    """
    last = journal.history.last
    standby = last.standby
    if standby is None or standby.intent is None or not last.has_standby:
        return False
    if (holder := read_claim(journal.run_dir, standby.number)) is not None:
        adopt(journal, holder, clock)
        return True
    is_elsewhere = submission.another_cluster(standby.intent, scheduler) is not None
    if standby.is_open or is_elsewhere or is_in_queue(standby, queue):
        return False
    why = "its job exited without executing anything"
    discard(journal, queue, scheduler=scheduler, clock=clock, lock=lock, why=why)
    return True


def without_standby(history: RunHistory, queue: Sequence[JobInfo]) -> list[JobInfo]:
    """Return ``queue`` without the standby of ``history``, which was given up since."""
    standby = history.last.standby
    gone = standby.job_id if standby is not None else None
    return [job for job in queue if gone is None or job.job_id != gone]


def is_in_queue(standby: LastAttempt, queue: Sequence[JobInfo]) -> bool:
    return any(job.state is not AttemptState.ENDED for job in _jobs(standby, queue))


def _waits(standby: LastAttempt, queue: Sequence[JobInfo]) -> bool:
    """Return whether it is pending; a running one may have decided to exit."""
    return any(job.state is AttemptState.QUEUED for job in _jobs(standby, queue))


def _jobs(standby: LastAttempt, queue: Sequence[JobInfo]) -> list[JobInfo]:
    """Return the queue's entries for a standby, by id and name, because ids are reused."""
    name = standby.intent.job_name if standby.intent is not None else None
    return [job for job in queue if job.job_id == standby.job_id and job.job_name.strip() == name]
