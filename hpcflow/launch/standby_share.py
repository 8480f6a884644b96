"""Release the commitment of a standby, if another job is submitted instead."""

from __future__ import annotations

from dataclasses import replace

from hpcflow.budgets.amounts import NOTHING
from hpcflow.budgets.budget_check import Pledge
from hpcflow.budgets.folder import budgets_of
from hpcflow.clock import Clock
from hpcflow.history import LastAttempt
from hpcflow.launch.budgeted import scopes_of_run
from hpcflow.launch.committing import Commitment, commitment_of
from hpcflow.model.run import Run
from hpcflow.sites.placement import next_placement
from hpcflow.sites.schema import Site
from hpcflow.storage.journal import Journal
from hpcflow.storage.layout import Home


def require_room_instead(
    run: Run,
    journal: Journal,
    *,
    mem_mb: int | None,
    site: Site,
    home: Home,
    clock: Clock,
) -> None:
    """Check that the budgets have room for an attempt that replaces the pending standby.

    Raises:
        BudgetError: a hard budget has no room.
    """
    last = journal.history.last
    if last.standby is None or not last.has_standby:
        return
    placement = next_placement(run, site, mem_mb)
    found = commitment_of(run, last.next_number, placement, site=site, home=home, clock=clock)
    pledge = replace(found.pledge, instead_of=(run.run_id, last.standby.number))
    Commitment(found.folder, pledge).require_room(clock, journal)


def give_back_standby(
    run: Run, before: LastAttempt, journal: Journal, *, site: Site, home: Home, clock: Clock
) -> None:
    """Release the commitment of a standby that was given up since.

    Args:
        before: the last attempt, from the journal before that.
    """
    if before.standby is None or not before.has_standby:
        return
    number, now = before.standby.number, journal.history.last.standby
    if now is None or now.number != number or not now.is_void:
        return
    pledge = Pledge(run.run_id, number, run.user, scopes_of_run(run), NOTHING, None, run.partition)
    Commitment(budgets_of(site, home), pledge).give_back(clock, "its standby was given up")
