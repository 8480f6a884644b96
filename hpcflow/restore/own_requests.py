"""Requests in the journal of a restored run that only the store knows: they hold the run. Pure.

A user who can write to the store can append a cancel, a hold, a resume, a release or a decision to
stop. What the user's ledger has read, and what is left of the journal on scratch, says which
requests the user made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from hpcflow.ledger.rows import Known
from hpcflow.model.journal import (
    CancelRequested,
    Decided,
    Held,
    Intended,
    JournalRecord,
    Released,
    Resumed,
    Standby,
)
from hpcflow.model.requests import is_cancelled, is_held, is_stopped
from hpcflow.restore.contradictions import folded

_TIME: Final = "%Y-%m-%d %H:%M:%S UTC"
_MOST_CHARS: Final = 60


@dataclass(frozen=True)
class OwnRequests:
    """What this home knows of a run's requests without the store.

    Attributes:
        here: what is left of the journal.
        is_cancelled: the home, or the file ``cancel``, says that the run is cancelled.
        known: what the ledger has read; None if it has read nothing, or from a store.
        is_less: the journal here is shorter than what the ledger has read of it.
        has_read_all: the ledger has read at least as many bytes as the store has.
    """

    here: Sequence[JournalRecord]
    is_cancelled: bool
    known: Known | None
    is_less: bool
    has_read_all: bool

    def answer(
        self, records: Sequence[JournalRecord], *, at: datetime, by: str, why: str = ""
    ) -> list[JournalRecord]:
        """Return the records to append, so that no request takes effect that only the store knows.
        Return none if the user has cancelled or held the run.

        Args:
            why: a further reason to hold the run.
        """
        unknown = self.unknown(records)
        if self._is_own_stop(records, unknown):
            return []
        if not why and is_stopped(records) and self._has_resumed_since():
            return [Resumed(at=at, by=by)]
        if not why and self._was_stopped() and not is_stopped(records):
            why = "it was stopped here, but the store says that it continues"
        if unknown:
            said = "only the store says: " + ", ".join(map(_words, unknown))
            why = f"{why}; {said}" if why else said
        return [Held(at=at, by=by, why=why)] if why else []

    def unknown(self, records: Sequence[JournalRecord]) -> list[JournalRecord]:
        """Return the requests in force after ``records``, and the last attempt, if only the store
        knows them."""
        said, own, found = folded(records).journal, self._in_force(), []

        def is_unknown(key: str) -> bool:
            return key in said and said[key] != own.get(key)

        if is_unknown("cancel_requested_at"):
            found.append(_last(records, CancelRequested))
        if is_unknown("held_at"):
            found.append(_last(records, Held))
        if is_unknown("resumed_at") or said.get("counted_from", 1) > own.get("counted_from", 1):
            found.append(_last(records, Resumed, Released))
        if said.get("decided", {}).get("action") == "stop" and is_unknown("decided"):
            found.append(_last(records, Decided))
        return [*found, *self._unknown_attempts(records)]

    def _unknown_attempts(self, records: Sequence[JournalRecord]) -> list[JournalRecord]:
        """Return the intent of the last attempt or standby, if the ledger knows only earlier ones:
        its job id may be that of any job, and its end was never observed here."""
        if self.known is None or not self.is_less:
            return []
        numbers = [row.attempt for row in self.known.attempts]
        numbers.append(self._of_ledger.get("standby", {}).get("attempt", 0))
        said = [each.says if isinstance(each, Standby) else each for each in records]
        later = [
            each for each in said if isinstance(each, Intended) and each.attempt > max(numbers)
        ]
        return [max(later, key=lambda each: each.attempt)] if later else []

    @property
    def _of_ledger(self) -> Mapping[str, Any]:
        return self.known.run.journal if self.known is not None else {}

    def _in_force(self) -> Mapping[str, Any]:
        return self._of_ledger if self.is_less else folded(self.here).journal

    def _is_own_stop(
        self, records: Sequence[JournalRecord], unknown: Sequence[JournalRecord]
    ) -> bool:
        kinds = {type(each) for each in unknown}
        if is_cancelled(records):
            return self.is_cancelled or CancelRequested not in kinds
        return is_held(records) and Held not in kinds

    def _was_stopped(self) -> bool:
        said = self._of_ledger
        return is_stopped(self.here) or "held_at" in said or "cancel_requested_at" in said

    def _has_resumed_since(self) -> bool:
        """Return whether the ledger has read all that an honest store can have, and the run was not
        stopped then: its user has resumed it since it was last mirrored."""
        decided = self._of_ledger.get("decided", {})
        is_free = not self._was_stopped() and decided.get("action") != "stop"
        return self.is_less and self.has_read_all and is_free


def _last(records: Sequence[JournalRecord], *kinds: type[JournalRecord]) -> JournalRecord:
    return next(each for each in reversed(records) if isinstance(each, kinds))


def _words(record: JournalRecord) -> str:
    if isinstance(record, Intended):
        return f"attempt {record.attempt} on {record.at:{_TIME}}"
    if isinstance(record, Decided):
        what, by = "stopped", f"the rule {record.rule}"
    else:
        what, by = record.record.replace("_", " "), str(getattr(record, "by", ""))
    return f"{what} by {by[:_MOST_CHARS]} on {record.at:{_TIME}}"
