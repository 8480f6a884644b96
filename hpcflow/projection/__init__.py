"""Project files to the ledger: read new lines in run directories, and write the rows.

Only this package knows both. It decides nothing: :mod:`hpcflow.ledger.fold` interprets lines,
:mod:`hpcflow.ledger.derive` derives the state of a run. It may be killed at any point, and run
twice at once: a line counts once, when its transaction is committed. Every function raises
LedgerError if the database fails.
"""

from __future__ import annotations

from hpcflow.projection.checking import check, unlinked
from hpcflow.projection.gone import forget_unsent
from hpcflow.projection.passes import Summary, catch_up, catch_up_home, rebuild

__all__ = [
    "Summary",
    "catch_up",
    "catch_up_home",
    "check",
    "forget_unsent",
    "rebuild",
    "unlinked",
]
