"""Find runs with new data: a few stats for each, without reading their rows.

Of ten thousand active runs, most have written nothing since the last read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from hpcflow.errors import StorageError
from hpcflow.ledger.rows import HowFar
from hpcflow.ledger.store import Ledger
from hpcflow.projection.reading import JOURNAL, MIRROR, events_of
from hpcflow.storage.files import size_of
from hpcflow.storage.layout import Home, RunDir
from hpcflow.storage.own_runs import OwnRuns
from hpcflow.storage.runs import InvalidRunLinkError, invalid_link_message

#: Missing after a purge.
_PARAMS: Final = RunDir(Path()).params_json.name


def grown(
    ledger: Ledger, home: Home, own: OwnRuns, ids: Sequence[str], warn: Callable[[str], object]
) -> list[RunDir]:
    """Return the directories of the ``ids`` whose files have another length than was read.

    Unknown runs and unreadable files are included: the reader finds out.

    Args:
        warn: called with one line for each link that does not lead to a run directory.
    """
    known = ledger.how_far(ids)
    found = []
    warnings: dict[str, None] = {}
    for run_id in ids:
        # Strings, not paths: this runs ten thousand times in a round.
        try:
            folder = own.link_of(run_id)
        except InvalidRunLinkError as error:
            warnings[invalid_link_message(home, run_id, error)] = None
            continue
        except OSError:
            continue  # it was deleted meanwhile
        if run_id not in known or not _is_read(home, run_id, folder, known[run_id]):
            found.append(home.run_dir(folder))
    for message in warnings:
        warn(message)
    return found


def _is_read(home: Home, run_id: str, folder: str, far: HowFar) -> bool:
    """Return whether all files have the length that was read, and the run directory is there."""
    offset_of = far.offsets.get
    try:
        if (size_of(f"{home.runs}/{run_id}/{JOURNAL}") or 0) != offset_of(JOURNAL, 0):
            return False
        has_read = False
        for name in (MIRROR, *map(events_of, far.attempts)):
            size_bytes = offset_of(name, 0)
            if (size_of(f"{folder}/{name}") or 0) != size_bytes:
                return False
            has_read |= size_bytes > 0
        if not has_read and size_of(f"{folder}/{_PARAMS}") is None:
            return False  # else a file that was read is there
    except StorageError:
        return False
    return True
