"""The journal of one run during one pass: read once and written once, for all attempts.

A journal from a store can have thousands of attempts that seem to be running. Reading or writing it
for each of them would take hours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from hpcflow.model.journal import JournalRecord, Restored, Standby
from hpcflow.model.requests import is_cancelled
from hpcflow.storage import journal
from hpcflow.storage.layout import RunDir


@dataclass
class JournalBuffer:
    """What one pass reads from a journal and adds to it."""

    run_dir: RunDir
    _added: list[JournalRecord] = field(default_factory=list)
    _read: _Read | None = None

    @property
    def is_cancelled(self) -> bool:
        """Whether the last request cancels the run.

        Raises:
            StorageError: the journal cannot be read.
        """
        return self._content.is_cancelled

    def of(self, attempt: int) -> list[JournalRecord]:
        """Return what the journal says of an attempt and of the one before, and the record of the
        last restore.

        Raises:
            StorageError: the journal cannot be read.
        """
        return self._content.of(attempt)

    def add(self, records: Sequence[JournalRecord]) -> None:
        """Add ``records`` to what is to be written."""
        self._added += records

    @property
    def has_news(self) -> bool:
        """Whether anything is to be written."""
        return bool(self._added)

    def write(self) -> bool:
        """Append what was added, with one write. Return whether there was any.

        Raises:
            StorageError: it could not be written.
        """
        added, self._added, self._read = self._added, [], None
        journal.append_all(self.run_dir, added)
        return bool(added)

    @property
    def _content(self) -> _Read:
        if self._read is None:
            self._read = _Read(journal.read(self.run_dir))
        return self._read


class _Read:
    """The records of a journal by their attempts."""

    def __init__(self, records: list[JournalRecord]) -> None:
        self._records, self._of = records, defaultdict[int, list[int]](list)
        self._restored: int | None = None
        self.is_cancelled = is_cancelled(records)
        for place, record in enumerate(records):
            about = record.says if isinstance(record, Standby) else record
            if isinstance(record, Restored) and record.journal:
                self._restored = place
            elif (attempt := getattr(about, "attempt", None)) is not None:
                self._of[attempt].append(place)

    def of(self, attempt: int) -> list[JournalRecord]:
        places = [*self._of.get(attempt - 1, ()), *self._of.get(attempt, ())]
        if self._restored is not None:
            places.append(self._restored)
        return [self._records[place] for place in sorted(places)]
