"""Check which budgets have room in a round, as a fact for the policy."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from hpcflow.budgets.budget_check import Refusal
from hpcflow.budgets.commitments import no_room_for
from hpcflow.budgets.folder import BudgetFolder, budgets_of
from hpcflow.budgets.scope import Scope
from hpcflow.budgets.state import Budget
from hpcflow.clock import Clock
from hpcflow.errors import InputError, StorageError
from hpcflow.launch.committing import commitment_of, earlier_lines, warnings_about
from hpcflow.model.run import Run
from hpcflow.sites.placement import next_placement
from hpcflow.sites.schema import Site
from hpcflow.storage.journal import Journal
from hpcflow.storage.layout import Home

#: Long enough for a process that reads and writes a few lines under the lock.
_WAIT_S: Final = 1.0


class BudgetFacts:
    """The budgets of a round, each read once until an attempt is submitted.

    They are read again, under their lock, when an attempt is submitted.
    """

    def __init__(self, home: Home, clock: Clock) -> None:
        self._home, self._clock = home, clock
        self._now = clock.now()
        self._is_there: dict[Path, bool] = {}
        self._lock: dict[Path, StorageError | None] = {}
        self._sent: list[tuple[Run, Site]] = []
        self._read: dict[Path, dict[Scope, Budget]] = defaultdict(dict)

    def no_room(
        self, run: Run, journal: Journal, site: Site, *, mem_mb: int | None = None
    ) -> Refusal | None:
        """Return why a hard budget has no room for the next attempt of a run; None if all have.

        None also if a standby is the next attempt: its share is already committed.

        Args:
            mem_mb: memory of the next attempt, instead of what the run requests.
        """
        if run.spec.budget is None and not self._may_have(budgets_of(site, self._home)):
            return None
        last = journal.history.last
        standby = last.standby if last.has_standby else None
        if standby is not None and standby.intent is not None and standby.intent.mem_mb == mem_mb:
            return None
        try:
            placement = next_placement(run, site, mem_mb)
        except InputError:  # the submission will report it
            return None
        commitment = commitment_of(
            run, last.next_number, placement, site=site, home=self._home, clock=self._clock
        )
        folder, pledge = commitment.folder, commitment.pledge
        if standby is not None:  # the new attempt replaces it
            pledge = replace(pledge, instead_of=(run.run_id, standby.number))
        read = self._read[folder.path]
        earlier = partial(earlier_lines, pledge, journal, self._now)
        found = no_room_for(folder, pledge, self._now, read, earlier=earlier)
        if found is None and (pledge.own is not None or any(map(read.get, pledge.scopes))):
            self._require_free(folder)
        return found

    def _require_free(self, folder: BudgetFolder) -> None:
        """Check once for all runs that the lock is free: each run would wait a minute for it."""
        if folder.path not in self._lock:
            self._lock[folder.path] = None
            try:
                with folder.lock(self._clock, wait_s=_WAIT_S):
                    pass
            except StorageError as error:
                self._lock[folder.path] = error
        if (held := self._lock[folder.path]) is not None:
            raise held

    def _may_have(self, folder: BudgetFolder) -> bool:
        """Return whether there may be any budget; this is fast, as most users have none."""
        if folder.path not in self._is_there:
            self._is_there[folder.path] = folder.site is not None or folder.is_there()
        return self._is_there[folder.path]

    def forget(self) -> None:
        """Drop what was read: another process has changed it."""
        self._read.clear()

    def was_sent(self, run: Run, site: Site) -> None:
        """Drop what was read: a commitment was made for an attempt of this run."""
        self.forget()
        self._sent.append((run, site))

    def warnings(self) -> list[str]:
        """Return warnings about budgets with a commitment in this round, or whose lock is held."""
        held = [
            f"budgets: {error.message}; no job is submitted"
            for error in self._lock.values()
            if error
        ]
        return [*held, *warnings_about(self._sent, self._home, self._now)]
