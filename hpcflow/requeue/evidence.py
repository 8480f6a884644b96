"""Read the evidence about nodes once a round: from the ledger, and the overrides of the user."""

from __future__ import annotations

from datetime import datetime

from hpcflow.ledger.ends import MOST_ENDS
from hpcflow.ledger.store import Ledger
from hpcflow.requeue.nodes import (
    CLOCKS_DIFFER,
    LOOK_BACK,
    WEIGHTS,
    WELL,
    WELL_IF_SAVED,
    Evidence,
    weigh,
)
from hpcflow.storage.layout import Home
from hpcflow.storage.node_overrides import read_overrides


def read_evidence(ledger: Ledger, home: Home, now: datetime) -> Evidence:
    """Return the evidence about nodes now."""
    until = now + CLOCKS_DIFFER
    against = ledger.ends(WEIGHTS, since=now - LOOK_BACK, until=until)
    if not against:
        return Evidence()
    since = min(end.ended_at for end in against)
    well = ledger.ends(WELL | WELL_IF_SAVED, since=since, until=until)
    if len(well) >= MOST_ENDS:
        # Before the oldest of these only failures were read, which would bias the scores.
        oldest = min(end.ended_at for end in well)
        against = [end for end in against if end.ended_at >= oldest]
    return weigh([*against, *well], now, read_overrides(home))
