"""The journal of one run during one pass: read once and written once, for all attempts.

A journal from a store can have thousands of attempts that seem to be running. Reading or writing it
for each of them would take hours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hpcflow.model.journal import JournalRecord
from hpcflow.storage.journal import Journal


@dataclass
class JournalBuffer:
    journal: Journal
    _added: list[JournalRecord] = field(default_factory=list)

    def add(self, records: Sequence[JournalRecord]) -> None:
        self._added += records

    @property
    def has_news(self) -> bool:
        return bool(self._added)

    def write(self) -> bool:
        """Append the added records with one write; return whether there were any."""
        added, self._added = self._added, []
        self.journal.append(*added)
        return bool(added)
