"""What budgets have room for in a round, as a fact for the policy."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from hpcflow.budgets.commitments import no_room_for
from hpcflow.budgets.scope import Scope
from hpcflow.budgets.state import Budget
from hpcflow.clock import Clock
from hpcflow.errors import InputError
from hpcflow.launch import submission
from hpcflow.launch.committing import commitment_of
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
        self._read: dict[Path, dict[Scope, Budget]] = defaultdict(dict)

    def no_room(self, run: Run, run_dir: RunDir, site: Site) -> str | None:
        """Which hard budget has no room for the next attempt of a run; None where all have, and
        where it has a standby, to which its share is committed already.

        Raises:
            StorageError: a budget, or the journal, cannot be read.
        """
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

    def forget(self) -> None:
        """Read them again: something was committed to what was sent."""
        self._read.clear()
