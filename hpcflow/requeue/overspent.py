"""Give running attempts the notice if a hard budget is reached and its terms ask for that.

Usually running jobs cannot exceed a budget, because their whole time limit is committed;
docs/budgets.md has the exceptions. The record is journaled first, then the notice file is written.
A process that is killed in between does both again. The policy then decides: the budget has no room
for the next attempt, so the run waits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hpcflow.budgets.budget_check import reached
from hpcflow.budgets.folder import BudgetFolder, budgets_of
from hpcflow.budgets.records import OnExceeded
from hpcflow.budgets.scope import Scope, scopes_of
from hpcflow.budgets.state import Budget
from hpcflow.errors import HpcflowError, StorageError
from hpcflow.launch.standby import discard
from hpcflow.ledger.rows import SpendingRow
from hpcflow.model.journal import Overspent
from hpcflow.model.state import AttemptState
from hpcflow.projection import catch_up
from hpcflow.requeue.round_context import RoundContext
from hpcflow.requeue.run_errors import RunErrors
from hpcflow.schedulers.base import JobInfo
from hpcflow.storage.disk_errors import storage_errors
from hpcflow.storage.files import size_of, write_new
from hpcflow.storage.layout import RunDir
from hpcflow.storage.locks import submit_lock
from hpcflow.storage.own_runs import OwnRuns
from hpcflow.storage.rundir import read_run

#: Content of the notice file, for people.
NOTICE_WORD: Final = "budget"


def end_overspent(
    context: RoundContext,
    queue: Callable[[str], Sequence[JobInfo]],
    own: OwnRuns,
    run_errors: RunErrors,
) -> dict[str, str]:
    """Give the notice to running attempts whose budget is reached; return run id -> reason.

    Args:
        queue: site name -> its queue; queried only for a run that has a standby.

    Raises:
        LeaseLostError: another process has taken the lease.
    """
    return _Round(context, queue, own, run_errors).go()


@dataclass
class _Round:
    _context: RoundContext
    _queue: Callable[[str], Sequence[JobInfo]]
    _own: OwnRuns
    _run_errors: RunErrors
    _read: dict[tuple[Path, Scope], str | None] = field(default_factory=dict)

    def go(self) -> dict[str, str]:
        context = self._context
        noticed: dict[str, str] = {}
        changed: list[RunDir] = []
        folders = self._folders()
        for row in self._running() if folders else ():
            folder = folders.get(row.site)
            if folder is None:
                continue
            run_dir = context.settings.home.run_dir(row.run_dir)
            with self._run_errors.of(row.run_id, row.site):
                found = self._reached(row, folder)
                if found is not None and self._tell(row, run_dir, *found):
                    noticed[row.run_id] = found[1]
                    changed.append(run_dir)
        catch_up(context.ledger, changed)
        return noticed

    def _folders(self) -> dict[str, BudgetFolder]:
        context = self._context
        found = {}
        user = context.settings.user
        own = {
            Scope("user", user),
            *(Scope("project", each) for each in context.ledger.projects(user=user)),
        }
        for name in context.ledger.sites_unsettled(user=user):
            with suppress(HpcflowError):  # the round has reported the missing site file
                folder = budgets_of(context.find_site(name), context.settings.home)
                if folder.is_there() and _may_want_notice(folder, own):
                    found[name] = folder
        return found

    def _running(self) -> list[SpendingRow]:
        rows = self._context.ledger.spending_unsettled(user=self._context.settings.user)
        return [
            row
            for row in rows
            if row.state == AttemptState.RUNNING.value and self._own.has(row.run_id, row.run_dir)
        ]

    def _reached(self, row: SpendingRow, folder: BudgetFolder) -> tuple[Scope, str] | None:
        """Return the scope and the message of a reached budget that asks for the notice."""
        for scope in scopes_of(
            project=row.project, user=row.user, sweep=row.sweep, run_id=row.run_id
        ):
            key = (folder.path, scope)
            if key not in self._read:
                self._read[key] = self._words(folder, scope)
            if (words := self._read[key]) is not None:
                return scope, words
        return None

    def _words(self, folder: BudgetFolder, scope: Scope) -> str | None:
        if not folder.has(scope):
            return None
        budget = folder.look(scope)
        return reached(budget, self._context.clock.now()) if _wants_notice(budget) else None

    def _tell(self, row: SpendingRow, run_dir: RunDir, scope: Scope, why: str) -> bool:
        """Give the notice to one attempt; return whether this was done now."""
        notice = run_dir.attempt(row.attempt).notice
        if size_of(notice) is not None:
            return False
        with submit_lock(run_dir, wait_s=0) as lock:
            self._context.require_lease()
            journal = self._own.journal_of(run_dir)
            last = journal.history.last
            if last.number != row.attempt or not last.is_live or journal.history.is_cancelled:
                return False
            run = read_run(run_dir)
            if run.site != row.site:
                return False
            if last.has_standby:  # it would continue the run
                discard(
                    journal,
                    self._queue(row.site),
                    scheduler=self._context.connect(row.site),
                    clock=self._context.clock,
                    lock=lock,
                    why=why,
                )
            record = Overspent(
                at=self._context.clock.now(), attempt=row.attempt, budget=str(scope), why=why
            )
            journal.append(record)
            # FileExistsError: it just got another notice
            with storage_errors("write", notice), suppress(FileExistsError):
                write_new(notice, f"{NOTICE_WORD}\n".encode())
        return True


def _wants_notice(budget: Budget) -> bool:
    return budget.terms is not None and budget.terms.on_exceeded is OnExceeded.SAVE_AND_STOP


def _may_want_notice(folder: BudgetFolder, own: Collection[Scope]) -> bool:
    """Return whether a budget of the user's runs may ask for the notice. Budgets of sweeps and runs
    are not opened: there may be one for each run."""
    try:
        return any(
            scope.kind in ("sweep", "run") or (scope in own and _wants_notice(folder.look(scope)))
            for scope in folder.scopes()
        )
    except StorageError:  # the budgets of each running attempt are read later
        return True
