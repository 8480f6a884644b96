"""What a stall has to do with the end of its attempt: whether our cancel may be what ended it.

A process that is killed between the record of a cancel and the cancel itself leaves a record of
what never was. The attempt may go on for days, and its end is then somebody else's: a person's
scancel is a request to stop. So a cancel counts for :data:`CANCEL_TAKES`. How long after it the end
came, two tell, and each may be wrong: Slurm's time of the end, for it has another clock than the
journal; and the last line that was written into the attempt's files, even that of its death, for a
file has its time from the node that writes it or from a file server. Ours is the end unless all who
know say otherwise: a run is never given up because one clock was put right.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from hpcflow.history import RunHistory
from hpcflow.model.journal import Stall
from hpcflow.model.state import Cause, cause_of_end
from hpcflow.model.views import AttemptView
from hpcflow.reconcile.attempt_events import last_sign
from hpcflow.schedulers.base import JobInfo
from hpcflow.storage.layout import RunDir

#: From the word that we cancel a stalled job to its end, with clocks that differ. A process that
#: tries it again later says so again.
CANCEL_TAKES: Final = timedelta(minutes=10)


def attribute_stall(
    run_dir: RunDir,
    history: RunHistory,
    attempt: AttemptView,
    job: JobInfo | None,
) -> Stall | None:
    """What was last said about its lack of progress; no cancel that cannot be what ended it.

    Args:
        job: what Slurm says of its end, if anything.
    """
    stall = _last_stall(history, attempt, job)
    if stall is None or stall.action != "cancel":
        return stall
    later = []
    if job is not None and job.ended_at is not None:
        later.append(job.ended_at - stall.at)
    written_at = last_sign(run_dir, attempt.attempt)
    if written_at is not None and stall.files_at is not None:
        later.append(written_at - stall.files_at)
    return stall if min(later, default=CANCEL_TAKES) <= CANCEL_TAKES else None


def _last_stall(history: RunHistory, attempt: AttemptView, job: JobInfo | None) -> Stall | None:
    """What was last said about its lack of progress.

    Our cancel may reach a job that was restarted a moment before, as the attempt after the stall.
    """
    own, before = history.attempt(attempt.attempt), history.attempt(attempt.attempt - 1)
    if own.stall is not None or before.stall is None or before.stall.action != "cancel":
        return own.stall
    if not before.submissions or before.submissions[-1].job_id != attempt.job_id:
        return None
    is_cancelled = job is not None and cause_of_end(job.raw_state, None) is Cause.CANCELLED
    return before.stall if is_cancelled else None
