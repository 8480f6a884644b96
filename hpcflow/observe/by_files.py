"""Compare what a shared ledger says of an attempt with the files of its run, before a journal or a
budget gets it: other users write rows there, too."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from hpcflow.ledger.rows import AttemptRow, Known, SpendingRow
from hpcflow.ledger.store import Ledger
from hpcflow.model.views import AttemptView
from hpcflow.observe.answers import site_of
from hpcflow.projection import read_known
from hpcflow.storage.layout import RunDir

#: All but the progress: jobs report every second.
_COMPARED: Final = frozenset(each.name for each in fields(AttemptRow)) - {"report"}


class ByFiles:
    """Compares rows with the files of their runs. Each run is read once.

    Attributes:
        differing: the runs of which the ledger says something else; their rows are to be rebuilt.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.differing: list[RunDir] = []
        self._found: dict[str, Known | None] = {}

    def agree(
        self, run_dir: RunDir, said: AttemptView | AttemptRow | SpendingRow, **of_run: object
    ) -> bool:
        """Whether the files say the same of an attempt as the ledger.

        Args:
            said: what the ledger says of it.
            of_run: what the ledger says of its run.

        Raises:
            LedgerError: the database failed.
            StorageError: the files cannot be read.
        """
        run_id = run_dir.path.name
        if run_id not in self._found:
            known = self._ledger.known([run_id]).get(run_id)
            self._found[run_id] = read_known(run_dir, known, progress_of=()) if known else None
        found = self._found[run_id]
        if found is None or not _is_same(found, said, {} if site_of(run_dir) is None else of_run):
            self.differing.append(run_dir)
            return False
        return True


def _is_same(
    found: Known, said: AttemptView | AttemptRow | SpendingRow, of_run: dict[str, object]
) -> bool:
    row = next((each for each in found.attempts if each.attempt == said.attempt), None)
    names = [each.name for each in fields(said) if each.name in _COMPARED]
    return (
        row is not None
        and all(getattr(row, name) == getattr(said, name) for name in names)
        and all(getattr(found.run, name) == value for name, value in of_run.items())
    )
