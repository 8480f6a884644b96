"""Whether what was decided from the ledger may be acted on: nobody has said anything since, nor is
sending it."""

from __future__ import annotations

from datetime import datetime

from hpcflow.errors import StorageError
from hpcflow.launch.submission import SENDING_TAKES
from hpcflow.ledger.rows import Known
from hpcflow.storage.files import read_file, storage_error
from hpcflow.storage.layout import RunDir


def nobody_sends(known: Known, now: datetime) -> bool:
    """Whether it is certain that nobody is at sbatch for a run: whoever is has said so in the
    journal just before."""
    return now - (known.run.journal_at or known.run.created_at) > SENDING_TAKES


def is_behind(known: Known, run_dir: RunDir) -> bool:
    """Whether the journal says more than the ledger has read: somebody has just wished something.

    Raises:
        StorageError: it says less, so it is not the journal that the ledger has read; or it cannot
            be read.
    """
    name = run_dir.journal.name
    read = next((each.offset_bytes for each in known.sources if each.path == name), 0)
    try:
        there = read_file(run_dir.journal).rfind(b"\n") + 1
    except FileNotFoundError:
        there = 0
    except OSError as error:
        raise storage_error("read", run_dir.journal, error) from error
    if there < read:
        raise StorageError(
            "its journal is shorter than it was; what became of its jobs is lost",
            next_action="scratch may have been purged; if the run was mirrored, see "
            f"hpcflow restore {known.run.run_id}; else start a new run: hpcflow run CONFIG",
        )
    return there > read
