"""Whether a run may be sent, by what people wish."""

from __future__ import annotations

from collections.abc import Iterable

from hpcflow.clock import Clock
from hpcflow.model.journal import CancelRequested, JournalRecord
from hpcflow.model.wishes import is_cancelled
from hpcflow.storage import journal
from hpcflow.storage.layout import RunDir


def shall_stop(
    run_dir: RunDir, records: Iterable[JournalRecord], *, user: str, clock: Clock
) -> bool:
    """Whether nothing is to be sent for a run any more; the caller holds its lock.

    A file ``cancel`` without its record is the wish of somebody whose older hpcflow was killed
    between the two: every job would leave at once, so the journal learns of it here.

    Raises:
        StorageError: the journal cannot be written.
    """
    if is_cancelled(records):
        return True
    if not run_dir.cancel.exists():
        return False
    why = "its run directory has the file `cancel`, and its journal did not say so"
    journal.append(run_dir, CancelRequested(at=clock.now(), by=user, why=why))
    return True
