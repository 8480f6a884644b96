"""Cancel and hold requests for a run, from its journal. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from hpcflow.model.journal import CancelRequested, Held, JournalRecord, Released, Resumed

#: Why a restore holds a run of which the store knows more than the home.
OLDER_HOME: Final = (
    "the store has more of its journal than this home, which may have come back from a backup"
)


def is_older_home_accepted(records: Sequence[JournalRecord]) -> bool:
    """Return whether the user has let a run continue that was held for :data:`OLDER_HOME`."""
    held = [number for number, each in enumerate(records) if _is_older_home(each)]
    return bool(held) and any(isinstance(each, (Released, Resumed)) for each in records[held[-1] :])


def _is_older_home(record: JournalRecord) -> bool:
    return isinstance(record, Held) and record.why == OLDER_HOME


def is_cancelled(records: Iterable[JournalRecord]) -> bool:
    """Return whether the last request cancels the run.

    A hold with a reason ends a cancel: a restore writes one if only the store knows the cancel.
    """
    requests = [
        each
        for each in records
        if isinstance(each, (CancelRequested, Resumed)) or (isinstance(each, Held) and each.why)
    ]
    return bool(requests) and isinstance(requests[-1], CancelRequested)


def cancel_signal(records: Iterable[JournalRecord]) -> str:
    """Return the content of the file ``cancel``, by the last request to cancel the run."""
    signals = [each.signal for each in records if isinstance(each, CancelRequested)]
    return f"{signals[-1]}\n" if signals and signals[-1] else ""


def active_hold(records: Iterable[JournalRecord]) -> Held | None:
    """Return the hold that is still in force; None without one."""
    requests = [each for each in records if isinstance(each, (Held, Released, Resumed))]
    return requests[-1] if requests and isinstance(requests[-1], Held) else None


def is_held(records: Iterable[JournalRecord]) -> bool:
    """Return whether the last request holds the run."""
    return active_hold(records) is not None


def is_stopped(records: Iterable[JournalRecord]) -> bool:
    """Return whether the last requests cancel or hold the run."""
    said = list(records)
    return is_cancelled(said) or is_held(said)
