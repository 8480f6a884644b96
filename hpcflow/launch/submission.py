"""Submit an attempt exactly once, even if a process is killed at any moment.

The protocol, all of it under the run's submit lock:

1. the script is written durably; the most that the attempt can cost is committed to its budgets;
2. ``intended``, with the attempt's unique job name, is journaled durably;
3. sbatch runs. It inherits the lock, so the lock outlives this process as long as an orphaned
   sbatch may still create the job;
4. ``submitted`` or ``refused`` is journaled.

A process that finds an intent without an answer settles it before it submits anything else:
docs/architecture.md, section "Exactly once".
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from hpcflow.clock import Clock
from hpcflow.errors import (
    SchedulerError,
    SchedulerUnavailable,
    StorageError,
    SubmissionDelayed,
    SubmissionInDoubt,
    SubmissionLost,
    SubmissionRefused,
)
from hpcflow.history import LastAttempt
from hpcflow.model.ids import job_name, parse_job_name
from hpcflow.model.journal import Intended, Refused, Standby, Submitted, Withdrawn
from hpcflow.model.run import Run
from hpcflow.model.state import AttemptState
from hpcflow.runtime.reading import UnsafeFileError, read_file
from hpcflow.runtime.successor import SEAL
from hpcflow.schedulers.base import JobInfo, Lookup, Scheduler, SubmitRequest
from hpcflow.sites.placement import Placement
from hpcflow.storage.disk_errors import storage_error, storage_errors
from hpcflow.storage.files import write_durably, write_new
from hpcflow.storage.journal import Journal
from hpcflow.storage.layout import RunDir
from hpcflow.storage.locks import HeldLock
from hpcflow.storage.runs import is_purged

#: After this time, no process can still be submitting a journaled intent. It allows for clock skew
#: and late writes.
SENDING_TAKES: Final = timedelta(minutes=5)

#: Clocks of login nodes and of the controller differ; a job may seem older than its intent.
CLOCK_SKEW = timedelta(seconds=60)

if TYPE_CHECKING:
    from hpcflow.launch.committing import Commitment


def send(
    run: Run,
    journal: Journal,
    number: int,
    script: str,
    *,
    scheduler: Scheduler,
    clock: Clock,
    lock: HeldLock,
    placement: Placement,
    resume_from: str | None,
    commitment: Commitment | None,
    excluded: Sequence[str] = (),
    after: int | None = None,
) -> Submitted:
    """Submit attempt ``number``; the caller holds ``lock`` and has settled the last attempt.

    Args:
        commitment: to the budgets that it counts against; None without any.
        after: the attempt whose end it waits for, if it is a standby.

    Raises:
        BudgetError: a hard budget has no room; no intent is journaled.
        StorageError: the journal is missing, or a file cannot be written.
        SubmissionRefused, SubmissionDelayed, SubmissionLost, SchedulerUnavailable: no job exists;
            journaled.
        SubmissionInDoubt: Slurm could not be queried; the intent stays open.
    """
    journal.require()
    _seal_barred(journal)
    attempt = journal.run_dir.attempt(number)
    attempt.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_durably(attempt.script, script.encode())
    intent = Intended(
        at=clock.now(),
        attempt=number,
        job_name=job_name(run.run_id, number),
        scheduler=scheduler.name,
        partition=placement.partition,
        account=placement.account,
        resume_from=resume_from,
        cluster=scheduler.cluster(),
        host=socket.gethostname(),
        mem_mb=placement.mem_mb,
        excluded=list(excluded) or None,
        mirror=run.mirror.url if run.mirror is not None else None,
        standby=run.spec.retry.standby or None,
        after=after,
    )
    if commitment is not None:
        commitment.make(journal, clock)
    try:
        _put_down(journal, intent, intent)
        return _submit(journal, intent, scheduler=scheduler, clock=clock, lock=lock)
    except SubmissionInDoubt:
        raise  # the job may exist
    except (SchedulerError, StorageError) as error:
        if commitment is not None and not _is_open(journal, intent):
            commitment.give_back(clock, error.message)
        raise


def _seal_barred(journal: Journal) -> None:
    """Seal each attempt that no job may execute any more, and that has no claim yet.

    A vanished job may still be pending. A purge may have deleted its seal, or the folder before
    there was one; by now, the folder may be back.
    """
    for number in journal.history.barred_attempts:
        claim = journal.run_dir.attempt(number).claim
        with storage_errors("write", claim), suppress(FileExistsError, FileNotFoundError):
            write_new(claim, f"{SEAL}\n".encode())


def _is_open(journal: Journal, intent: Intended) -> bool:
    """Return whether the journal has no result of an intent, so that its job may exist."""
    last = journal.history.last
    if intent.after is None:
        return last.is_open
    return last.standby is not None and last.standby.is_open


def settle(
    journal: Journal,
    *,
    scheduler: Scheduler,
    clock: Clock,
    lock: HeldLock,
    lookup: Lookup | None = None,
) -> Submitted | None:
    """Settle an open intent: adopt its job, or withdraw it.

    Args:
        lookup: the jobs found by name since the lock was taken; None to query now.

    Returns:
        The adopted job; None if there was no open intent, or it was withdrawn.

    Raises:
        SubmissionInDoubt: queue or accounting gave no certain answer.
    """
    return _settle(journal, journal.history.last, scheduler, clock, lock, lookup)


def settle_standby(
    journal: Journal, *, scheduler: Scheduler, clock: Clock, lock: HeldLock
) -> Submitted | None:
    """Settle the open intent of a run's standby, which remains a standby.

    Raises:
        SubmissionInDoubt: queue or accounting gave no certain answer.
    """
    standby = journal.history.last.standby
    if standby is None:
        return None
    return _settle(journal, standby, scheduler, clock, lock, None)


def _settle(
    journal: Journal,
    last: LastAttempt,
    scheduler: Scheduler,
    clock: Clock,
    lock: HeldLock,
    lookup: Lookup | None,
) -> Submitted | None:
    if not last.is_open or last.intent is None:
        return None
    found = _find(journal, last.intent, scheduler, clock, lookup)
    if found is not None:
        return found
    # Lustre can be mounted so that a lock holds only on its own node.
    is_ours = lock.is_reliable and last.intent.host in (None, socket.gethostname())
    if not is_ours and clock.now() - last.intent.at < SENDING_TAKES:
        where = last.intent.host or "another node"
        raise _doubt(
            last.intent, f"sbatch may still be running on {where}; wait up to five minutes"
        )
    return _withdraw(journal, last.intent, clock)


def _put_down(
    journal: Journal, intent: Intended, record: Intended | Submitted | Refused | Withdrawn
) -> None:
    """Journal ``record`` about ``intent``, wrapped if that is a standby's."""
    is_standby = intent.after is not None
    journal.append(Standby(at=record.at, says=record) if is_standby else record)


def _submit(
    journal: Journal, intent: Intended, *, scheduler: Scheduler, clock: Clock, lock: HeldLock
) -> Submitted:
    attempt = journal.run_dir.attempt(intent.attempt)
    try:
        with lock.lend() as fd:
            request = SubmitRequest(attempt.script, attempt.path, intent.job_name, fd)
            ref = scheduler.submit(request)
    except SubmissionInDoubt as doubt:
        found = _find(journal, intent, scheduler, clock) or _withdraw(journal, intent, clock)
        if found is not None:
            return found
        raise SubmissionLost(
            f"{doubt.message}; no job of this name exists", next_action=doubt.next_action
        ) from doubt
    except (SubmissionRefused, SubmissionDelayed) as error:
        # sbatch retries by itself, so an earlier try may have created the job.
        lookup = _look_up(intent, scheduler)
        jobs = tuple(job for job in lookup.jobs if not never_started(job))
        found = _find(journal, intent, scheduler, clock, replace(lookup, jobs=jobs))
        if found is not None:
            return found
        retryable = error.retryable
        _put_down(journal, intent, _refusal(intent, clock, error.message, retryable=retryable))
        raise
    except SchedulerUnavailable as error:
        _put_down(journal, intent, _refusal(intent, clock, error.message, retryable=True))
        raise
    submitted = Submitted(
        at=clock.now(), attempt=intent.attempt, job_id=ref.job_id, cluster=ref.cluster
    )
    _put_down(journal, intent, submitted)
    return submitted


def _refusal(intent: Intended, clock: Clock, reason: str, *, retryable: bool) -> Refused:
    return Refused(at=clock.now(), attempt=intent.attempt, reason=reason, retryable=retryable)


def _find(
    journal: Journal,
    intent: Intended,
    scheduler: Scheduler,
    clock: Clock,
    lookup: Lookup | None = None,
) -> Submitted | None:
    """Find the job of ``intent`` and journal it as submitted; None if there certainly is none."""
    claim = read_claim(journal.run_dir, intent.attempt)
    if claim is not None:
        return _claimed(journal, intent, claim, clock)
    if not is_own_name(journal.run_dir, intent):
        return None  # submitted by hand: other jobs may have the same name
    if (other := another_cluster(intent, scheduler)) is not None:
        raise _doubt(intent, f"it was submitted to cluster {intent.cluster}, but this is {other}")
    lookup = lookup or _look_up(intent, scheduler)
    # A refused attempt's number is reused, so Slurm's record may be of the refused job.
    jobs = [job for job in lookup.jobs if not (never_started(job) and job.raw_state == "FAILED")]
    if jobs:
        submitted = Submitted(
            at=clock.now(), attempt=intent.attempt, job_id=jobs[-1].job_id, how="found"
        )
        _put_down(journal, intent, submitted)
        return submitted
    if not lookup.is_certain:
        raise _doubt(intent, "accounting does not answer, and the queue lists no ended jobs")
    return None


def is_own_name(run_dir: RunDir, intent: Intended) -> bool:
    """Return whether hpcflow made the job name of an intent for this run, so that it is unique."""
    named = parse_job_name(intent.job_name)
    return named is not None and named[0] == run_dir.path.name


def _look_up(intent: Intended, scheduler: Scheduler) -> Lookup:
    try:
        return scheduler.find(intent.job_name, since=intent.at - CLOCK_SKEW)
    except SchedulerUnavailable as error:
        raise _doubt(intent, error.message) from error


def never_started(job: JobInfo) -> bool:
    """Return whether a job never ran: Slurm keeps records of some refused jobs (BadConstraints)."""
    return job.state is AttemptState.ENDED and job.started_at is None and not job.nodes


def another_cluster(intent: Intended, scheduler: Scheduler) -> str | None:
    """Return the name of this cluster, if ``intent`` was for another one."""
    here = scheduler.cluster()
    if here is None or intent.cluster is None or here.lower() == intent.cluster.lower():
        return None
    return here


def _claimed(journal: Journal, intent: Intended, job_id: str, clock: Clock) -> Submitted:
    submitted = Submitted(at=clock.now(), attempt=intent.attempt, job_id=job_id, how="claimed")
    _put_down(journal, intent, submitted)
    return submitted


def _withdraw(journal: Journal, intent: Intended, clock: Clock) -> Submitted | None:
    """Ensure that no job will ever execute this attempt, or adopt the job that already does."""
    holder = seal(journal.run_dir, intent)
    if holder is not None:
        return _claimed(journal, intent, holder, clock)
    reason = "neither the queue nor accounting has a job of this name"
    _put_down(journal, intent, Withdrawn(at=clock.now(), attempt=intent.attempt, reason=reason))
    return None


def seal(run_dir: RunDir, intent: Intended) -> str | None:
    """Seal the claim of ``intent``, so that no job executes it; return the job that has it, if any.

    Raises:
        SubmissionInDoubt: the claim cannot be written, or exists and cannot be read.
    """
    claim = run_dir.attempt(intent.attempt).claim
    try:
        write_new(claim, f"{SEAL}\n".encode())
    except FileExistsError:
        # An empty claim, left on a full disk, also stops every job.
        try:
            return read_claim(run_dir, intent.attempt)
        except StorageError as error:
            raise _doubt(intent, error.message) from error
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        if is_missing and is_purged(run_dir):
            return None  # a job cannot claim it either; :func:`send` seals it if the folder is back
        raise _doubt(intent, f"{claim} cannot be written: {error.strerror}") from error
    return None


def _doubt(intent: Intended, why: str) -> SubmissionInDoubt:
    return SubmissionInDoubt(
        f"job {intent.job_name} may or may not exist: {why}",
        next_action="nothing was resubmitted; repeat the command when Slurm answers",
    )


def read_claim(run_dir: RunDir, attempt: int) -> str | None:
    """Return the id of the job that claimed ``attempt``; None without a claim, or if it is sealed.

    Raises:
        StorageError: the claim cannot be read, so a job may execute the attempt or not.
    """
    claim = run_dir.attempt(attempt).claim
    try:
        text = read_file(claim).decode().strip()
    except (FileNotFoundError, NotADirectoryError, UnsafeFileError, UnicodeDecodeError):
        return None
    except OSError as error:
        raise storage_error("read", claim, error) from error
    return text if text and text != SEAL else None
