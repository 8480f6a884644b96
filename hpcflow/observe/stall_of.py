"""What a stall has to do with the end of its attempt: whether our cancel may be what ended it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from hpcflow.clock import from_text
from hpcflow.ledger.fold import RunFold, fold_events
from hpcflow.ledger.rhythm import signs_of
from hpcflow.model.events import parse_event
from hpcflow.model.journal import JournalRecord, Stall, Submitted
from hpcflow.model.state import Cause, cause_of_end
from hpcflow.model.views import AttemptView
from hpcflow.schedulers.base import JobInfo
from hpcflow.storage.files import open_file
from hpcflow.storage.layout import RunDir

#: From the word that we cancel a stalled job to its end, with clocks that differ. Whoever tries it
#: again later says so again.
CANCEL_TAKES: Final = timedelta(minutes=10)


def stall_of(
    run_dir: RunDir,
    records: Sequence[JournalRecord],
    attempt: AttemptView,
    job: JobInfo | None,
) -> Stall | None:
    """What was last said about its lack of progress, unless the attempt went on after our cancel.

    Args:
        records: the run's journal.
        job: what Slurm says of its end, if anything.
    """
    stall = _last_stall(records, attempt, job)
    if stall is None or stall.action != "cancel":
        return stall
    return None if _went_on(stall, _noticed_at(records, stall), run_dir) else stall


def _last_stall(
    records: Sequence[JournalRecord], attempt: AttemptView, job: JobInfo | None
) -> Stall | None:
    """What was last said about its lack of progress.

    Our cancel may reach a job that was restarted a moment before, as the attempt after the stall.
    """
    own = before = None
    was_same_job = False
    for record in records:
        if isinstance(record, Stall) and record.attempt == attempt.attempt:
            own = record
        elif isinstance(record, Stall) and record.attempt == attempt.attempt - 1:
            before = record
        elif isinstance(record, Submitted) and record.attempt == attempt.attempt - 1:
            was_same_job = record.job_id == attempt.job_id
    if own is not None or before is None or before.action != "cancel" or not was_same_job:
        return own
    is_ours = (
        job is not None
        and cause_of_end(job.raw_state, None) is Cause.CANCELLED
        and job.ended_at is not None
        and abs(job.ended_at - before.at) < CANCEL_TAKES
    )
    return before if is_ours else None


def _went_on(stall: Stall, noticed_at: datetime | None, run_dir: RunDir) -> bool:
    """Whether a cancel never came to Slurm: the attempt went on for longer than any cancel takes.

    Never by two clocks: by the job's own; or, where it only prints, by that of its folder, in which
    our notice lies, too. What it writes because it is told to leave is no training.
    """
    files, fold = run_dir.attempt(stall.attempt), RunFold(run_dir.path.name)
    trained_at = []
    with suppress(OSError), open_file(files.events) as file:
        for line in file:
            fold_events(fold, stall.attempt, [line])
            event = parse_event(line)
            if event is None or event["event"] != "progress":
                continue
            if signs_of(fold.attempts[stall.attempt].report) > stall.signs:
                with suppress(ValueError, OverflowError):
                    trained_at.append(from_text(event["at"]))
    if trained_at:
        return max(trained_at) - min(trained_at) > CANCEL_TAKES
    if stall.log_bytes is None or noticed_at is None:
        return False
    with suppress(OSError):
        printed_s = files.log.stat().st_mtime - files.notice.stat().st_mtime
        return printed_s - (stall.at - noticed_at).total_seconds() > CANCEL_TAKES.total_seconds()
    return False


def _noticed_at(records: Iterable[JournalRecord], stall: Stall) -> datetime | None:
    """When the notice was given that came before the cancel of a stalled attempt."""
    notices = (
        each.at
        for each in records
        if isinstance(each, Stall) and each.attempt == stall.attempt and each.action == "notice"
    )
    return max(notices, default=None)
