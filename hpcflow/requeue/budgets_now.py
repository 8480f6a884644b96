"""What budgets have room for in a round, as a fact for the policy."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from hpcflow.budgets.commitments import no_room_for
from hpcflow.budgets.folder import BudgetFolder, budgets_of
from hpcflow.budgets.scope import Scope
from hpcflow.budgets.state import Budget
from hpcflow.clock import Clock
from hpcflow.errors import InputError, StorageError
from hpcflow.launch import submission
from hpcflow.launch.committing import commitment_of, warnings_about
from hpcflow.model.run import Run
from hpcflow.sites.placement import place
from hpcflow.sites.schema import Site
from hpcflow.storage import journal
from hpcflow.storage.layout import Home, RunDir


class BudgetsNow:
    """The budgets as a round has read them: each once, until something is sent.

    What they say here decides nothing for good: when an attempt is sent they are asked again, under
    their lock.
    """

    def __init__(self, home: Home, clock: Clock) -> None:
        self._home, self._clock = home, clock
        self._now = clock.now()
        self._is_there: dict[Path, bool] = {}
        self._sent: list[tuple[Run, Site]] = []
        self._read: dict[Path, dict[Scope, Budget]] = defaultdict(dict)

    def no_room(self, run: Run, run_dir: RunDir, site: Site) -> str | None:
        """Which hard budget has no room for the next attempt of a run; None where all have, and
        where it has a standby, to which its share is committed already.

        Raises:
            StorageError: a budget, or the journal, cannot be read.
        """
        if run.spec.budget is None and not self._may_have(budgets_of(site, self._home)):
            return None
        last = submission.last_attempt(journal.read(run_dir))
        if last.has_standby:
            return None
        try:
            placement = place(run.spec, site)
        except InputError:  # it is not sent, and that is said where it is tried
            return None
        commitment = commitment_of(
            run, last.next_number, placement, site=site, home=self._home, clock=self._clock
        )
        read = self._read[commitment.folder.path]
        found = no_room_for(commitment.folder, commitment.pledge, self._now, read)
        return None if found is None else found.short

    def _may_have(self, folder: BudgetFolder) -> bool:
        """Whether there may be any budget: most people have none, and many runs to send."""
        if folder.path not in self._is_there:
            self._is_there[folder.path] = folder.site is not None or folder.path.is_dir()
        return self._is_there[folder.path]

    def was_sent(self, run: Run, site: Site) -> None:
        """Something was committed to an attempt of this run: what was read is old."""
        self._read.clear()
        self._sent.append((run, site))

    def warnings(self) -> list[str]:
        """What people are told of the budgets that something was committed to in this round."""
        try:
            return warnings_about(self._sent, self._home, self._now)
        except StorageError as error:
            return [error.message]
