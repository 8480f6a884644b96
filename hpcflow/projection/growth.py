"""Find runs with new data: two stats for each, without reading their rows.

Of ten thousand active runs, most have written nothing since the last read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from hpcflow.errors import StorageError
from hpcflow.ledger.rows import HowFar
from hpcflow.ledger.store import Ledger
from hpcflow.projection.reading import JOURNAL, MIRROR, events_of
from hpcflow.storage.files import size_of
from hpcflow.storage.layout import Home, RunDir
from hpcflow.storage.runs import InvalidRunLinkError, invalid_link_message, link_of


def grown(
    ledger: Ledger, home: Home, ids: Sequence[str], warn: Callable[[str], object]
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
            folder = link_of(home, run_id)
        except InvalidRunLinkError as error:
            warnings[invalid_link_message(home, run_id, error)] = None
            continue
        except OSError:
            continue  # it was deleted meanwhile
        if run_id not in known or not _is_read(folder, known[run_id]):
            found.append(RunDir(Path(folder)))
    for message in warnings:
        warn(message)
    return found


def _is_read(folder: str, far: HowFar) -> bool:
    offset_of = far.offsets.get
    try:
        for name in (JOURNAL, MIRROR, *map(events_of, far.attempts)):
            if (size_of(f"{folder}/{name}") or 0) != offset_of(name, 0):
                return False
    except StorageError:
        return False
    return True
