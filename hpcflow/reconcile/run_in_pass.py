"""One run in a pass over many: its errors are isolated, its journal is read and written once."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from hpcflow.errors import HpcflowError, words_for
from hpcflow.model.journal import JournalRecord
from hpcflow.storage.journal import Journal
from hpcflow.storage.layout import RunDir

Errors: TypeAlias = type[Exception] | tuple[type[Exception], ...]
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Isolated:
    """Turn an error of one run into a warning, so that it does not affect the others.

    Attributes:
        quiet: errors without a warning.
    """

    run_dir: RunDir
    warnings: list[str]
    quiet: Errors

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if not isinstance(error, Exception):
            return False
        run_id, words = self.run_dir.path.name, words_for(error)
        _log.debug("run %s", run_id, exc_info=error)
        # If the run is being submitted, the next look knows more.
        if words is not None and not isinstance(error, self.quiet):
            self.warnings.append(words if isinstance(error, HpcflowError) else f"{run_id}: {words}")
        return True


@dataclass
class JournalBuffer:
    """The journal of one run during one pass, for all its attempts.

    A journal from a store can have thousands of attempts that seem to be running. Reading or
    writing it for each of them would take hours.
    """

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
