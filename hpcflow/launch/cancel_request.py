"""Check for a cancel request before a submission."""

from __future__ import annotations

from hpcflow.clock import Clock
from hpcflow.model.journal import CancelRequested
from hpcflow.storage.journal import Journal


def cancel_requested(journal: Journal, *, user: str, clock: Clock) -> bool:
    """Return whether a run is cancelled; the caller holds its lock.

    An older hpcflow that was killed may have left the file ``cancel`` without a journal record.
    Every job would exit at once because of it. So the missing record is written here.
    """
    if journal.history.is_cancelled:
        return True
    if not journal.run_dir.cancel.exists():
        return False
    why = "its run directory has the file `cancel`, without a record in the journal"
    journal.append(CancelRequested(at=clock.now(), by=user, why=why))
    return True
