"""Commit to jobs that hpcflow did not commit to: submitted before the budget was set, by hand, or
restarted by Slurm.
"""

from __future__ import annotations

from collections.abc import Callable

from hpcflow.clock import Clock
from hpcflow.errors import HpcflowError
from hpcflow.launch.committing import commitment_of
from hpcflow.ledger.rows import SpendingRow
from hpcflow.sites.placement import place
from hpcflow.sites.schema import Site
from hpcflow.storage.journal import Journal
from hpcflow.storage.layout import Home
from hpcflow.storage.rundir import read_run


def standby_of(row: SpendingRow, home: Home) -> int | None:
    """Return the number of the standby that a live attempt awaits, from the journal; None if it is
    not one, or if the run cannot be read."""
    try:
        last = Journal(home.run_dir(row.run_dir)).history.last
    except HpcflowError:
        return None
    is_waiting = last.number == row.attempt and last.standby is not None and last.has_standby
    return last.standby.number if is_waiting and last.standby is not None else None


def adopted(
    row: SpendingRow,
    attempt: int,
    home: Home,
    find_site: Callable[[str], Site],
    clock: Clock,
) -> str | None:
    """Return the commitment line for an active attempt. None if the run cannot be read (another
    user's, or missing), or if only a store has the attempt."""
    run_dir = home.run_dir(row.run_dir)
    try:
        run, site = read_run(run_dir), find_site(row.site)
        placement = place(run.spec, site, prefer=run.partition, is_granted=True)
        is_own = Journal(run_dir).history.attempt(attempt).is_own
    except HpcflowError:
        return None
    if not is_own:
        return None
    pledge = commitment_of(run, attempt, placement, site=site, home=home, clock=clock).pledge
    return pledge.to_line(clock.now())
