"""Whether a journal from a store contradicts what this home knows of the run's attempts. Pure.

A user who can write to the store can append how an attempt ended, or give its number to another
job. The store may be behind, and it may know later attempts. What it says of an attempt that this
home knows must be the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, Final

from hpcflow.clock import from_text
from hpcflow.ledger.fold import RunFold, fold_journal
from hpcflow.ledger.rows import Known
from hpcflow.model.journal import CancelRequested, JournalRecord

#: Record of an attempt -> the fields that must agree beside the time.
_DECISIVE: Final = {
    "intended": ("job_name",),
    "submitted": ("job_id",),
    "refused": (),
    "withdrawn": (),
    "ended": ("cause",),
}
_NEVER: Final = datetime.min.replace(tzinfo=timezone.utc)


def folded(records: Sequence[JournalRecord]) -> RunFold:
    """Return the records folded as the ledger folds them."""
    fold = RunFold("")
    fold_journal(fold, [each.to_line().encode() for each in records])
    return fold


def contradicts(
    records: Sequence[JournalRecord], here: Sequence[JournalRecord], known: Known | None
) -> bool:
    """Return whether ``records``, some of which come from a store, contradict what this home knows
    of an attempt, or undo the cancel of the run.

    Args:
        here: what is left of the journal on scratch.
        known: what the ledger has read, where that is more than ``here``; else None.
    """
    said, own = folded(records), folded(here)
    attempts: Mapping[int, dict[str, Any]] = {
        number: each.journal for number, each in own.attempts.items()
    }
    journal: Mapping[str, Any] = own.journal
    if known is not None:
        attempts = {row.attempt: row.journal for row in known.attempts}
        journal = known.run.journal
    newest = max(said.attempts, default=0)
    for number, mine in attempts.items():
        theirs = said.attempts[number].journal if number in said.attempts else {}
        if number == newest and _begun_at(theirs) < _begun_at(mine):
            continue  # the store is behind: the number was used again later
        if any(_decisive(theirs, kind) not in (None, _decisive(mine, kind)) for kind in _DECISIVE):
            return True
    if "cancel_requested_at" not in journal or "cancel_requested_at" in said.journal:
        return False
    at = from_text(journal["cancel_requested_at"])
    return any(isinstance(each, CancelRequested) and each.at == at for each in records)


def _begun_at(attempt: Mapping[str, Any]) -> datetime:
    intended = attempt.get("intended", {})
    return from_text(intended["at"]) if "at" in intended else _NEVER


def _decisive(attempt: Mapping[str, Any], kind: str) -> list[Any] | None:
    """Return the values of a record that must agree; None if there is no such record. An end
    without a time does not count: hpcflow inferred it when the run directory was gone."""
    record = attempt.get(kind, {})
    if "at" not in record:
        return None
    return [from_text(record["at"]), *(record.get(name) for name in _DECISIVE[kind])]
