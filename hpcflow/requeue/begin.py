"""The two minutes that Slurm lets a job wait which it has restarted: nobody needs them. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from hpcflow.clock import from_text
from hpcflow.ledger.rows import AttemptRow, Known
from hpcflow.model.state import AttemptState

#: What Slurm calls it when a job waits for a time.
REASON: Final = "BeginTime"

#: Slurm's own wait is 121 s from the restart. A begin time further away is somebody's wish.
_BY_SLURM: Final = timedelta(minutes=5)
#: Not worth a call.
_SOON: Final = timedelta(seconds=2)


def to_be_lifted(known: Known, now: datetime) -> AttemptRow | None:
    """The attempt of a run whose begin time lies ahead because Slurm restarted its job; asked once.

    Never one that somebody chose: a job that was not restarted may wait for the time that its owner
    said, and so may one whose begin time was moved far away since.
    """
    last = max(known.attempts, key=lambda row: row.attempt, default=None)
    if last is None or last.state != AttemptState.QUEUED.value or last.job_id is None:
        return None
    said = last.journal
    observed = said.get("observed", {})
    if not said.get("intended", {}).get("restarts") or "begin_lifted" in said:
        return None
    if observed.get("reason") != REASON or "begins_at" not in observed:
        return None
    begins_at = from_text(observed["begins_at"])
    restarted_at = last.submitted_at or begins_at
    is_slurms = begins_at - restarted_at <= _BY_SLURM
    return last if is_slurms and begins_at - now > _SOON else None
