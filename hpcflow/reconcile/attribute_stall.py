"""Decide whether hpcflow's cancel of a stalled attempt may have ended it.

If hpcflow is killed between the record of a cancel and the cancel itself, the attempt may run on
for days, and a later scancel is the user's request to stop. So a cancel counts only if the attempt
ended within :data:`CANCEL_TAKES`. That time has two sources, and the clock of each may be wrong:
Slurm's end time, and the time of the last line in the attempt's files, from a node or a file
server. The cancel counts unless all known sources are later: a corrected clock must not stop a run.
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

#: The longest time from the record of a cancel to the job's end, with clocks that differ. A later
#: retry has its own record.
CANCEL_TAKES: Final = timedelta(minutes=10)


def attribute_stall(
    run_dir: RunDir,
    history: RunHistory,
    attempt: AttemptView,
    job: JobInfo | None,
) -> Stall | None:
    """Return the last act about an attempt's stall; no cancel that cannot have ended it.

    Args:
        job: Slurm's record of its end, if any.
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
    """Return the last act about an attempt's stall.

    A cancel may reach a job that was just restarted, which is the attempt after the stall.
    """
    own, before = history.attempt(attempt.attempt), history.attempt(attempt.attempt - 1)
    if own.stall is not None or before.stall is None or before.stall.action != "cancel":
        return own.stall
    if not before.submissions or before.submissions[-1].job_id != attempt.job_id:
        return None
    is_cancelled = job is not None and cause_of_end(job.raw_state, None) is Cause.CANCELLED
    return before.stall if is_cancelled else None
