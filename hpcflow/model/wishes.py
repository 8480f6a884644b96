"""What people wish of a run, by its journal. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from hpcflow.model.journal import CancelRequested, Held, JournalRecord, Released, Resumed


def is_cancelled(records: Iterable[JournalRecord]) -> bool:
    """Whether the last wish is that the run shall stop for good."""
    wishes = [each for each in records if isinstance(each, (CancelRequested, Resumed))]
    return bool(wishes) and isinstance(wishes[-1], CancelRequested)


def is_held(records: Iterable[JournalRecord]) -> bool:
    """Whether the last wish is that the run is not to be sent for now."""
    wishes = [each for each in records if isinstance(each, (Held, Released, Resumed))]
    return bool(wishes) and isinstance(wishes[-1], Held)
