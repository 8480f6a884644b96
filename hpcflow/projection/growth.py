"""Which runs have anything new: two looks at each, and none of their rows.

Of ten thousand runs that are under way, most have written nothing since they were last read.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from hpcflow.ledger.rows import HowFar
from hpcflow.ledger.store import Ledger
from hpcflow.projection.reading import JOURNAL, events_of
from hpcflow.storage.layout import Home


def grown(ledger: Ledger, home: Home, ids: Sequence[str]) -> list[str]:
    """Those of ``ids`` whose files are not exactly as long as what was read of them.

    Also those that the ledger does not know, and those that cannot be looked at: whoever reads
    them finds out.

    Raises:
        LedgerError: the database failed.
    """
    known = ledger.how_far(ids)
    links = str(home.runs)
    return [
        each for each in ids if each not in known or not _is_read(f"{links}/{each}", known[each])
    ]


def _is_read(link: str, far: HowFar) -> bool:
    # Texts, not paths: this is done ten thousand times in a round.
    try:
        folder = os.readlink(link)  # noqa: PTH115
        return _is_as_long(f"{folder}/{JOURNAL}", far.offsets.get(JOURNAL, 0)) and all(
            _is_as_long(f"{folder}/{name}", far.offsets.get(name, 0))
            for name in map(events_of, far.attempts)
        )
    except OSError:
        return False


def _is_as_long(path: str, size_bytes: int) -> bool:
    try:
        return os.stat(path).st_size == size_bytes  # noqa: PTH116
    except FileNotFoundError:
        return size_bytes == 0
