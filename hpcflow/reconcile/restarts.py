"""Journal restarts of a job under its own id: the old attempt has ended, and another has begun."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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
    """Return whether a job may have been restarted since the journal's last record.

    Args:
        job: from the queue or accounting; None if neither knows it.
    """
    if job is not None and job.restarts:
        return True
    if job is not None and job.state is AttemptState.QUEUED:
        return False
    # Accounting does not count restarts, nor does every squeue: some are wrappers, and a controller
    # that was killed forgets. A job without a restart has no claim there, so this is usually one
    # look for a missing file.
    return claims_after(run_dir, attempt.attempt, attempt.job_id or "") > 0


def is_news(run_dir: RunDir, job: JobInfo) -> bool:
    """Return whether a job was restarted more often than the journal has."""
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
    """Journal the end of ``attempt`` if its job was restarted, and the attempts after it.

    Args:
        attempt: an attempt without an end in the ledger.
        job: the newest answer about the job, if any.
        lives: accounting's records of the job, one for each start, oldest first.
        is_certain: whether accounting has answered.

    Returns:
        The attempt that ``job`` is about now: ``attempt`` if it was not restarted. None if another
        process has changed the run, nothing remains to journal, or accounting must answer first.

    Raises:
        StorageError: another process is submitting the run (``retryable``), or it cannot be read.
    """
    run_dir = journal.run_dir
    with submit_lock(run_dir, wait_s=0):
        history = journal.history
        last = history.last
        if last.number != attempt.attempt or not last.is_live or last.job_id != attempt.job_id:
            return None
        job_id = last.job_id or ""
        claimed = claims_after(run_dir, last.number, job_id)
        restarts = max(_restarts(job, lives, history), last.restarts + claimed)
        if restarts <= last.restarts:
            return attempt
        now = clock.now()
        ends = _ends(run_dir, last, restarts, job, lives, now)
        first = next(ends)
        is_completed = first.ended.cause is Cause.COMPLETED
        # A restart of a completed attempt has nothing to do: the script exits.
        goes_on = (not is_completed and is_free(run_dir, last.number + 1, job_id)) or claims_after(
            run_dir, last.number, job_id
        ) > 0
        if is_completed and first.seen is None and not (goes_on or is_certain):
            return None  # srun can exit with 0 when a node dies; only accounting knows that
        over = [first, *ends] if goes_on else [first]
        for each in over:
            request_checkpoint_exit(run_dir, each.ended)
        records = [each.records for each in over]
        journal.append(*(follow(last, records, now) if goes_on else first.records))
    if not goes_on:
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
    # The query may not cover the oldest records, but it covers those since the last observation.
    since = sum(_is_after(each, seen[-1]) for each in lives) if seen else 0
    return max(0, len(lives) - 1, last.restarts + since)


@dataclass(frozen=True)
class _End:
    """The end of an attempt, and when and where it ran, by accounting."""

    ended: Ended
    seen: Observed | None

    @property
    def records(self) -> list[JournalRecord]:
        return [self.ended] if self.seen is None else [self.seen, self.ended]


def _ends(
    run_dir: RunDir,
    last: LastAttempt,
    restarts: int,
    job: JobInfo | None,
    lives: Sequence[JobInfo],
    now: datetime,
) -> Iterator[_End]:
    """Yield the end of ``last``, and of each attempt that its job began and left since."""
    for number, past in enumerate(range(last.restarts, restarts), start=last.number):
        record = _life(lives, past - restarts, job, own_record(run_dir, number))
        # A restart counts as a submission, so its time is the end of the attempt before.
        until = job.submitted_at if job is not None and past == restarts - 1 else None
        yield _end(run_dir, number, record, until=until, now=now)


def _life(
    lives: Sequence[JobInfo], before: int, job: JobInfo | None, number: int | None
) -> JobInfo | None:
    """Return accounting's record of the start that was ``-before`` restarts ago.

    It is found by the record number, if the job reported it. Else it is counted back from the
    newest, because the query may not cover the oldest. The record of the current start may be
    among them, and is recognized by its time.
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


def _end(
    run_dir: RunDir,
    number: int,
    record: JobInfo | None,
    *,
    until: datetime | None,
    now: datetime,
) -> _End:
    """Return an attempt's end: by accounting, by its own exit event, else as restarted.

    Accounting says REQUEUED even if the job had ended long before. The exit event counts only
    without a notice: an exit after a notice does not end the run.
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
        cause, rule = cause_of_end("", exit_code), "the job's own exit event; restarted later"
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
    return _End(ended, None if record is None else _past_life(number, record, now))


def _last_sign(run_dir: RunDir, number: int, now: datetime) -> datetime | None:
    """Return when the job last wrote anything, at most ``now``: the file's clock may be wrong."""
    sign = last_sign(run_dir, number)
    return None if sign is None else min(sign, now)


def _past_life(number: int, record: JobInfo, now: datetime) -> Observed:
    """Return the record of where and when it ran, which may not have been observed."""
    return observed(number, replace(record, state=AttemptState.ENDED, reason=None), now)
