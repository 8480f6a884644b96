"""Warn about runs that a query left out because a row of theirs is damaged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from hpcflow.ledger import queries
from hpcflow.ledger.connection import Connection

#: Most runs that one report names.
_MAX_NAMED: Final = 10
#: Most runs that are remembered: other roles can write new ones all the time.
_MAX_REPORTED: Final = 1_000


class LeftOutRuns:
    """The runs that were left out so far. Each is reported once, up to a limit."""

    def __init__(self, warn: Callable[[str], object] | None) -> None:
        """Report to ``warn``, one line for each warning; None for no warnings."""
        self._warn = warn
        self._reported: set[str] = set()
        self._is_full = False

    def report(self, connection: Connection, left_out: Mapping[str, str]) -> None:
        """Warn about the runs of ``left_out``, run id -> reason, that were not reported before."""
        new = {run_id: why for run_id, why in left_out.items() if run_id not in self._reported}
        if self._warn is None or not new or self._is_full:
            return
        count = len(self._reported) + len(new)
        self._is_full = count > _MAX_REPORTED
        if not self._is_full:
            self._reported.update(new)
        named = list(new.items())[:_MAX_NAMED]
        owners = queries.owners(connection, [run_id for run_id, _ in named], everyone=True)
        for run_id, why in named:
            self._warn(
                f"run {run_id[:80]} of user {str(owners.get(run_id, '?'))[:80]} is left out: a row "
                f"of it in the ledger is damaged or too large ({why[:120]}); its owner can rebuild "
                "it from the files: hpcflow ledger rebuild"
            )
        if len(new) > len(named):
            self._warn(f"{len(new) - len(named)} more runs are left out, for the same reason")
        if self._is_full:
            self._warn(
                f"{count} runs are left out so far because of damaged rows in the ledger; hpcflow "
                "reports no more of them"
            )
