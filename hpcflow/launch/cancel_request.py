"""Check for a cancel request before a submission."""

from __future__ import annotations

from collections.abc import Iterable

from hpcflow.clock import Clock
from hpcflow.model.journal import CancelRequested, JournalRecord
from hpcflow.model.requests import is_cancelled
from hpcflow.storage import journal
from hpcflow.storage.layout import RunDir


def cancel_requested(
    run_dir: RunDir, records: Iterable[JournalRecord], *, user: str, clock: Clock
) -> bool:
    """Return whether a run is cancelled; the caller holds its lock.

    An older hpcflow that was killed may have left the file ``cancel`` without a journal record.
    Every job would exit at once because of it. So the missing record is written here.

    Raises:
        StorageError: the journal cannot be written.
    """
    if is_cancelled(records):
        return True
    if not run_dir.cancel.exists():
        return False
    why = "its run directory has the file `cancel`, without a record in the journal"
    journal.append(run_dir, CancelRequested(at=clock.now(), by=user, why=why))
    return True
