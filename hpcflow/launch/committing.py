"""Commit the most that an attempt can cost to its budgets, before it is submitted."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from hpcflow.budgets.amounts import NOTHING, billed
from hpcflow.budgets.budget_check import Pledge, warnings_of
from hpcflow.budgets.commitments import Settlement, commit, no_room_for, release
from hpcflow.budgets.folder import BudgetFolder, budgets_of
from hpcflow.budgets.records import terms_of
from hpcflow.clock import Clock
from hpcflow.errors import HpcflowError, StorageError, words_for
from hpcflow.history import LastAttempt
from hpcflow.launch.budgeted import scopes_of_run
from hpcflow.launch.context import LaunchContext
from hpcflow.model.journal import Accounted
from hpcflow.model.run import Run
from hpcflow.model.state import BILL_TRIES
from hpcflow.placement.price import amounts_of
from hpcflow.sites.placement import Placement, next_placement
from hpcflow.sites.schema import Site
from hpcflow.storage.journal import Journal
from hpcflow.storage.layout import Home
from hpcflow.storage.rundir import read_run

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Commitment:
    """The most that one attempt can cost, and the folder of its budgets."""

    folder: BudgetFolder
    pledge: Pledge

    def make(self, journal: Journal, clock: Clock) -> None:
        """Write the commitment to the budgets. Raise BudgetError if a hard budget has no room."""
        earlier = partial(earlier_lines, self.pledge, journal, clock.now())
        commit(self.folder, [self.pledge], clock, earlier=earlier)

    def require_room(self, clock: Clock, journal: Journal | None = None) -> None:
        """Check that :meth:`make` would succeed now; nothing is written.

        Args:
            journal: of the run; None if the run does not exist yet.

        Raises:
            BudgetError: a hard budget has no room.
        """
        now = clock.now()
        earlier = tuple if journal is None else partial(earlier_lines, self.pledge, journal, now)
        no_room = no_room_for(self.folder, self.pledge, now, earlier=earlier)
        if no_room is not None:
            raise no_room.as_error()

    def give_back(self, clock: Clock, why: str) -> None:
        """Release it, because there is no job. If that cannot be written, a later look does it."""
        give_back([self], clock, why)


def give_back(commitments: Sequence[Commitment], clock: Clock, why: str) -> None:
    """Release several commitments on one site, under one lock."""
    pledges = [each.pledge for each in commitments]
    try:
        release(commitments[0].folder, pledges, clock.now(), why=why)
    except StorageError as error:
        _log.warning("%s", error.message)


def warnings_about(runs: Iterable[tuple[Run, Site]], home: Home, now: datetime) -> list[str]:
    """Return warnings about the budgets of these runs: exceeded soft limits, costs that cannot be
    counted, damaged or unreadable budgets.

    This never raises: the jobs exist, and after an error the user would submit them again.
    """
    concerned = {
        (folder, scope): None if folder.site is None else run.site
        for run, site in runs
        for folder in [budgets_of(site, home)]
        for scope in scopes_of_run(run)
    }
    found: list[str] = []
    for (folder, scope), named in concerned.items():
        try:
            if folder.has(scope):
                budget = folder.look(scope)
                damage = folder.damage(budget)
                found += warnings_of(budget, now, named) if damage is None else [damage]
        except HpcflowError as error:  # noqa: PERF203 - each is reported
            found.append(error.message)
        except Exception as error:  # other users write there
            _log.debug("budget %s", scope, exc_info=True)
            found.append(f"budget {scope}: {words_for(error)}")
    return list(dict.fromkeys(found))  # all budgets may have the same error


def commitment_of(
    run: Run,
    attempt: int,
    placement: Placement,
    *,
    site: Site,
    home: Home,
    clock: Clock,
) -> Commitment:
    folder, overrun_s = budgets_of(site, home), site.time_limit_overrun_s
    limit_s = None
    if placement.time_limit_min is not None:
        limit_s = placement.time_limit_min * 60 + overrun_s
    pledge = Pledge(
        run.run_id,
        attempt,
        run.user,
        scopes_of_run(run),
        amounts_of(placement, clock.now(), limit_s),
        limit_s,
        placement.partition,
        overrun_s=overrun_s,
        own=None if run.spec.budget is None else terms_of(run.spec.budget),
        home=os.path.realpath(home.path),
        site=None if folder.site is None else run.site,
    )
    return Commitment(folder, pledge)


def require_room_instead(
    context: LaunchContext, run: Run, journal: Journal, *, mem_mb: int | None
) -> None:
    """Check that the budgets have room for an attempt that replaces the pending standby.

    Raises:
        BudgetError: a hard budget has no room.
    """
    last = journal.history.last
    if last.standby is None or not last.has_standby:
        return
    site, home, clock = context.site, context.settings.home, context.clock
    placement = next_placement(run, site, mem_mb)
    found = commitment_of(run, last.next_number, placement, site=site, home=home, clock=clock)
    pledge = replace(found.pledge, instead_of=(run.run_id, last.standby.number))
    Commitment(found.folder, pledge).require_room(clock, journal)


def give_back_standby(
    context: LaunchContext, run: Run, before: LastAttempt, journal: Journal
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
    folder = budgets_of(context.site, context.settings.home)
    Commitment(folder, pledge).give_back(context.clock, "its standby was given up")


def settlement_of(record: Accounted, run: Run) -> Settlement:
    return Settlement(
        run.run_id,
        record.attempt,
        run.user,
        scopes_of_run(run),
        billed(record.cost_usd, record.cost_su, record.gpu_hours, record.elapsed_s),
        record.ended_at or record.at,
        is_final=record.source == "accounting" or record.tries >= BILL_TRIES,
        billed_at=record.at,
    )


def earlier_lines(pledge: Pledge, journal: Journal, now: datetime) -> list[str]:
    """Return budget lines for earlier attempts: their bills, or commitments without a bill yet."""
    history, run = journal.history, read_run(journal.run_dir)
    bills = {each.attempt: each for each in history.own_bills}
    unbilled = sorted(history.submitted_attempts - bills.keys() - {pledge.attempt})
    return [
        *(settlement_of(each, run).to_line() for each in bills.values()),
        *(replace(pledge, attempt=number).to_line(now) for number in unbilled),
    ]
