"""Attempts whose job Slurm has restarted under its own id: they are over, and others have begun."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from hpcflow.clock import Clock
from hpcflow.history import LastAttempt, RunHistory
from hpcflow.launch.restarts import claims_after, follow, is_free, restarts_of
from hpcflow.model.journal import Ended, JournalRecord, Observed
from hpcflow.model.state import AttemptState, Cause, cause_of_end, normalize_raw_state
from hpcflow.model.views import AttemptView
from hpcflow.reconcile.attempt_events import last_exit, last_sign, own_record, was_told_to_leave
from hpcflow.reconcile.classify_end import observed
from hpcflow.reconcile.unreachable import request_checkpoint_exit
from hpcflow.schedulers.base import JobInfo
from hpcflow.storage.journal import Journal
from hpcflow.storage.layout import RunDir
from hpcflow.storage.locks import submit_lock


def may_be_restarted(run_dir: RunDir, attempt: AttemptView, job: JobInfo | None) -> bool:
    """Whether an answer, or its absence, leaves room for a restart that the journal lacks.

    Args:
        job: what the queue or accounting says of it; None when neither knows it.
    """
    if job is not None and job.restarts:
        return True
    if job is not None and job.state is AttemptState.QUEUED:
        return False
    # Nobody watched, and neither accounting nor every squeue counts restarts: some are wrappers,
    # and a controller that was killed forgets. A job that never was restarted has no claim there,
    # so in nearly all cases this is one look at a file that does not exist.
    return claims_after(run_dir, attempt.attempt, attempt.job_id or "") > 0


def is_news(run_dir: RunDir, job: JobInfo) -> bool:
    """Whether a job has been restarted more often than the journal says.

    Raises:
        StorageError: the journal cannot be read.
    """
    return restarts_of(job) > Journal(run_dir).history.last.restarts


def follow_restarts(
    journal: Journal,
    attempt: AttemptView,
    job: JobInfo | None,
    lives: Sequence[JobInfo],
    clock: Clock,
    *,
    is_certain: bool = True,
) -> AttemptView | None:
    """Journal what became of ``attempt`` if its job was restarted, and the attempts after it.

    Args:
        attempt: is not over, as far as the ledger knows.
        job: what is known of the job now; None when nobody knows it any more.
        lives: what accounting knows of it, oldest first.
        is_certain: whether accounting has said all that it knows.

    Returns:
        The attempt that ``job`` is about now: ``attempt`` where it was not restarted. None when
        somebody else is at it, nothing is left to say, or accounting must be heard first.

    Raises:
        StorageError: somebody else is sending the run (``retryable``), or it cannot be read.
    """
    run_dir = journal.run_dir
    with submit_lock(run_dir, wait_s=0):
        history = journal.history
        last = history.last
        if last.number != attempt.attempt or not last.is_live or last.job_id != attempt.job_id:
            return None
        claimed = claims_after(run_dir, last.number, last.job_id or "")
        restarts = max(_restarts(job, lives, history), last.restarts + claimed)
        if restarts <= last.restarts:
            return attempt
        records = _records(run_dir, last, restarts, job, lives, clock)
        if _is_completed(records[-1]) and len(records) == 1 and not is_certain:
            return None  # srun can leave with 0 when a node dies; only accounting knows of that
        for record in records:
            request_checkpoint_exit(run_dir, record)
        journal.append(*records)
    if isinstance(records[-1], Ended):
        return None
    number = last.number + restarts - last.restarts
    own = last_exit(run_dir, number)
    return replace(
        attempt,
        attempt=number,
        state=AttemptState.QUEUED,
        raw_state=None,
        reason=None,
        nodes=[],
        submitted_at=None,
        started_at=None,
        ended_at=own[1] if own else None,
        exit_code=own[0] if own else None,
        resume_from=None,
    )


def _restarts(job: JobInfo | None, lives: Sequence[JobInfo], history: RunHistory) -> int:
    if job is not None and job.restarts is not None:
        return restarts_of(job)
    last = history.last
    observed = history.attempt(last.number).observed
    seen = [each.submitted_at for each in observed if each.submitted_at]
    # The oldest lives may not have been asked for; those since the last that was seen have been.
    since = sum(_is_after(each, seen[-1]) for each in lives) if seen else 0
    return max(0, len(lives) - 1, last.restarts + since)


def _records(
    run_dir: RunDir,
    last: LastAttempt,
    restarts: int,
    job: JobInfo | None,
    lives: Sequence[JobInfo],
    clock: Clock,
) -> list[JournalRecord]:
    def ends(number: int, past: int) -> list[JournalRecord]:
        record = _life(lives, past - restarts, job, own_record(run_dir, number))
        # A restart counts as a submission, so that is when the life before it was over.
        until = job.submitted_at if job is not None and past == restarts - 1 else None
        return _end(run_dir, number, record, until=until, now=clock.now())

    own = ends(last.number, last.restarts)
    job_id = last.job_id or ""
    if (
        _is_completed(own[-1]) or not is_free(run_dir, last.number + 1, job_id)
    ) and not claims_after(run_dir, last.number, job_id):
        return own  # a process that restarts what is over finds nothing to do: the script leaves
    return follow(last, restarts, ends, clock)


def _life(
    lives: Sequence[JobInfo], before: int, job: JobInfo | None, number: int | None
) -> JobInfo | None:
    """Accounting's record of the life that was ``-before`` restarts before this one.

    By the number of the record, where that life knew it. Else counted back from the newest: those
    further back may not have been asked for. The record of this life may be there or not, and is
    known by its time.
    """
    if number is not None:
        over, before = [each for each in lives if each.record_id == number], -1
    elif job is not None and job.source == "queue" and job.submitted_at is not None:
        over = [each for each in lives if _is_before(each, job.submitted_at)]
    else:
        over = list(lives[:-1])
    record = over[before] if -before <= len(over) else None
    return record if record is not None and record.ended_at is not None else None


def _is_before(life: JobInfo, moment: datetime) -> bool:
    return (life.submitted_at is not None and life.submitted_at < moment) or (
        life.ended_at is not None and life.ended_at <= moment
    )


def _is_after(life: JobInfo, moment: datetime) -> bool:
    return life.submitted_at is not None and life.submitted_at > moment


def _is_completed(record: JournalRecord) -> bool:
    return isinstance(record, Ended) and record.cause is Cause.COMPLETED


def _end(
    run_dir: RunDir,
    number: int,
    record: JobInfo | None,
    *,
    until: datetime | None,
    now: datetime,
) -> list[JournalRecord]:
    """How a life ended: by accounting, by its own last word, else only that it was restarted.

    Accounting calls a life REQUEUED, up to that moment, also when it had ended long before. A word
    of its own counts only if nobody had told it to leave: what a program says once it is told to is
    no end of the run.
    """
    own = last_exit(run_dir, number)
    exit_code = own[0] if own else None
    word = normalize_raw_state(record.raw_state) if record is not None else ""
    if record is not None and cause_of_end(word, None) is not Cause.REQUEUED and word:
        raw_state, ended_at = record.raw_state, record.ended_at
        cause = cause_of_end(raw_state, exit_code if exit_code is not None else record.exit_code)
        rule = f"its job was restarted, and accounting says {raw_state}"
    elif own is not None and not was_told_to_leave(run_dir, number):
        raw_state, ended_at = word or "REQUEUED", own[1]
        cause, rule = cause_of_end("", exit_code), "the job's own last word; it was restarted later"
    else:
        raw_state = word or "REQUEUED"
        until = record.ended_at if record is not None else until
        ended_at = until or (own[1] if own else None) or _last_sign(run_dir, number, now)
        cause, rule = Cause.REQUEUED, "its job was restarted under the same id"
    ended = Ended(
        at=now,
        attempt=number,
        cause=cause,
        raw_state=raw_state,
        exit_code=exit_code,
        ended_at=ended_at,
        rule=rule,
    )
    return [ended] if record is None else [_past_life(number, record, now), ended]


def _last_sign(run_dir: RunDir, number: int, now: datetime) -> datetime | None:
    """When it last wrote anything; by a clock that may be wrong, but it has ended by now."""
    sign = last_sign(run_dir, number)
    return None if sign is None else min(sign, now)


def _past_life(number: int, record: JobInfo, now: datetime) -> Observed:
    """Where it ran and when, which nobody may have seen."""
    return observed(number, replace(record, state=AttemptState.ENDED, reason=None), now)
