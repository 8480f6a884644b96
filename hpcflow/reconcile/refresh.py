"""Bring the ledger up to date with the files and the schedulers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hpcflow.budgets.folder import BudgetFolder, budgets_of
from hpcflow.clock import Clock
from hpcflow.errors import HpcflowError, StorageError
from hpcflow.ledger.store import Ledger, open_ledger
from hpcflow.model.next_action import SETTLE_STANDBY
from hpcflow.ownership import temporary_folder
from hpcflow.projection import catch_up, catch_up_home
from hpcflow.reconcile.context import RefreshContext
from hpcflow.storage.layout import Home, RunDir
from hpcflow.storage.own_runs import OwnRuns, require_own
from hpcflow.storage.restoring import cancelled_runs
from hpcflow.storage.runs import is_unmounted, linked

if TYPE_CHECKING:
    from hpcflow.schedulers.base import JobInfo

#: After a maintenance an admin may restart the jobs that were killed for it.
_MAY_BE_RESTARTED: Final = timedelta(days=1)
#: The most bills of one query to accounting; the next look continues.
_BILLS_AT_ONCE: Final = 2000


def refresh(
    context: RefreshContext,
    *,
    own: OwnRuns | None = None,
    queue: Callable[[str], Sequence[JobInfo]] | None = None,
    purged: set[str] | None = None,
) -> list[str]:
    """Bring the ledger up to date with the files and the schedulers.

    Return warnings about what could not be queried or read, and about pending or running jobs whose
    run directory is gone.

    Args:
        own: the runs of this home, if the caller uses it further.
        queue: site name -> its queue, from a daemon: then ended runs are also checked for restarted
            jobs. Without it the queue is queried only for live attempts.
        purged: receives the ids of the runs with such a job.
    """
    home, user = context.settings.home, context.settings.user
    kept = _record_kept_cancels(home, user, context.clock)
    own = own or OwnRuns(home)
    summary = catch_up_home(context.ledger, home, user=user, now=context.clock.now(), own=own)
    warnings = kept + summary.problems
    context = replace(context, find_site=cache(context.find_site))  # each site file is read once
    warnings += _refresh_live(context, own, queue)
    warnings += _reconcile(context)
    if summary.purged:
        live = {run.run_id for run, _ in context.ledger.live_attempts(user=user)}
        without_files = live.intersection(summary.purged)
        warnings += map(_purged_warning, sorted(without_files))
        if purged is not None:
            purged |= without_files
    return list(dict.fromkeys(warnings))


def _purged_warning(run_id: str) -> str:
    return (
        f"{run_id}: its run directory is gone; hpcflow submits no job until it is restored; "
        f"if it was mirrored: hpcflow restore {run_id}; to stop the run, and a job of it that "
        f"still runs: hpcflow cancel {run_id}"
    )


def _record_kept_cancels(home: Home, user: str, clock: Clock) -> list[str]:
    """Record the cancel requests that the home stores; return warnings."""
    ids, warnings = cancelled_runs(home), []
    if ids:
        from hpcflow.launch.cancel import record_kept

        for run_dir in linked(home, ids):
            try:
                record_kept(home, require_own(run_dir), user=user, clock=clock)
            except StorageError as error:  # noqa: PERF203 - a few runs
                if not error.retryable:
                    warnings.append(
                        f"{run_dir.path.name}: its cancel is not recorded: {error.message}"
                    )
    return warnings


def _reconcile(context: RefreshContext) -> list[str]:
    marked, home = [], context.settings.home
    if home.unsettled.is_dir():  # imported then only: see below
        from hpcflow.reconcile.settling import settle_marked

        marked = settle_marked(home, context.find_site)
    folders = {home.budgets: BudgetFolder(home.budgets)}
    for name in context.ledger.sites_unsettled(user=context.settings.user):
        with suppress(HpcflowError):  # reported by the query
            folder = budgets_of(context.find_site(name), home)
            folders[folder.path] = folder
    there, warnings = [], marked
    for folder in folders.values():
        try:
            if folder.is_there():
                there.append(folder)
        except StorageError as error:  # noqa: PERF203 - a few folders
            warnings.append(f"budgets: {error.message}")
    if there:
        from hpcflow.reconcile.budgets import reconcile_budgets

        warnings += reconcile_budgets(context, there)
    return warnings


def refresh_without_ledger(
    run_dir: RunDir, context_with: Callable[[Ledger], RefreshContext]
) -> list[str]:
    """Refresh the journal of one run while the ledger is down, with a temporary ledger."""
    with (
        temporary_folder() as folder,
        open_ledger(str(Path(folder) / "ledger.sqlite")) as ledger,
    ):
        context = context_with(ledger)
        home = context.settings.home
        kept = _record_kept_cancels(home, context.settings.user, context.clock)
        catch_up(ledger, [run_dir])
        return kept + _refresh_live(context, OwnRuns(home))


def _refresh_live(
    context: RefreshContext,
    own: OwnRuns,
    queue: Callable[[str], Sequence[JobInfo]] | None = None,
) -> list[str]:
    ledger, user, now = context.ledger, context.settings.user, context.clock.now()
    live = [
        (run, attempt)
        for run, attempt in ledger.live_attempts(user=user)
        # The rows of a misfit are never updated, so each look would journal the same state again.
        if run.run_id not in ledger.misfits and own.has(run.run_id, run.run_dir)
    ]
    # Without a daemon, the first process that looks journals which standbys have started.
    over = ledger.due(SETTLE_STANDBY, now, user=user)
    known = ledger.known(over) if over else {}
    standbys = [
        (each.run.site, run_dir)
        for each in known.values()
        if (run_dir := own.dir_of(each.run.run_id, each.run.run_dir)) is not None
    ]
    # Only a daemon looks for restarted jobs of ended runs: other commands do not wait for Slurm.
    resting: list[str] = []
    if queue is not None:
        resting = ledger.resting_at(user=user, since=now - _MAY_BE_RESTARTED)
    due = [
        each
        for each in ledger.due_bills(now, user=user, limit=_BILLS_AT_ONCE)
        if own.has(each.attempt.run_id, each.run_dir)
        and not is_unmounted(RunDir(Path(each.run_dir)))
    ]
    warnings = own.warnings()
    if live or standbys or resting or due:
        # This needs pydantic, whose import takes as long as all else of `hpcflow ls`.
        from hpcflow.reconcile.attempts import reconcile_attempts

        changed = reconcile_attempts(
            context,
            live,
            standbys,
            resting,
            due,
            queue=queue or (lambda site: context.connect(site).queue()),
            warnings=warnings,
            open_journal=own.journal_of,
        )
        catch_up(ledger, changed)
    return warnings
