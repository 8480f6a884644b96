"""Project files to the ledger: read what is new in run directories, and write the rows.

This is the only place that knows both. It decides nothing: what lines mean is in
:mod:`hpcflow.ledger.fold`, what a run is, in :mod:`hpcflow.ledger.derive`. It may be killed
anywhere, and run twice at once: a line counts when the transaction that says so is committed, and
then once.
"""

from __future__ import annotations

from hpcflow.projection.checking import check, unlinked
from hpcflow.projection.gone import end_purged, forget_unsent, purged_warning, record_damaged
from hpcflow.projection.passes import Summary, catch_up, catch_up_home, rebuild

__all__ = [
    "Summary",
    "catch_up",
    "catch_up_home",
    "check",
    "end_purged",
    "forget_unsent",
    "purged_warning",
    "rebuild",
    "record_damaged",
    "unlinked",
]
