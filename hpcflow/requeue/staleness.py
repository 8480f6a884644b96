"""Check whether a decision from the ledger is still current: nothing was journaled since, and no
process is submitting the run.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from hpcflow.errors import StorageError, shell_word
from hpcflow.launch.submission import SENDING_TAKES
from hpcflow.ledger.rows import Known
from hpcflow.storage.files import read_from, size_of
from hpcflow.storage.layout import RunDir

_PORTION_BYTES: Final = 1 << 16


def no_submission_in_progress(known: Known, now: datetime) -> bool:
    """Return whether no process can be in sbatch for a run: a submission journals its intent just
    before."""
    return now - (known.run.journal_at or known.run.created_at) > SENDING_TAKES


def is_stale(known: Known, run_dir: RunDir) -> bool:
    """Return whether the journal has records that the ledger has not read, such as a new request.

    Raises:
        StorageError: it is shorter than what the ledger has read.
    """
    name = run_dir.journal.name
    read = next((each.offset_bytes for each in known.sources if each.path == name), 0)
    if (size_of(run_dir.journal) or 0) < read:
        raise StorageError(
            "the journal is truncated; the record of its jobs is lost",
            next_action=f"put back {shell_word(run_dir.journal)} from a backup; if the run was "
            f"mirrored: hpcflow restore {known.run.run_id}; else start a new run: hpcflow run "
            "CONFIG",
        )
    at = read
    while data := read_from(run_dir.journal, at, _PORTION_BYTES):
        if b"\n" in data:
            return True
        at += len(data)  # a line that is still being written
    return False
