"""Set a budget; a new one begins with earlier spending from the ledger."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from hpcflow.budgets.amounts import UNITS, Amounts, total
from hpcflow.budgets.folder import BudgetFolder
from hpcflow.budgets.records import Change, Opening, Terms, entry_line
from hpcflow.budgets.scope import COLUMNS, Scope
from hpcflow.budgets.state import Budget, fold
from hpcflow.clock import Clock
from hpcflow.errors import LedgerError
from hpcflow.ledger.rows import SpendingRow
from hpcflow.ledger.store import Ledger
from hpcflow.model.next_action import AWAIT_STANDBY
from hpcflow.reconcile.budgets import adopted, billed_amounts, standby_of
from hpcflow.sites.schema import Site
from hpcflow.storage.layout import Home

#: Another database role can write any number of rows, and a file with too many lines is unreadable.
_MOST_OF_OTHERS: Final = 1000
#: Older ends count in the first month of this time. Only the current month is ever read.
_MONTHS_OF: Final = timedelta(days=3660)


def set_budget(
    ledger: Ledger | None,
    folder: BudgetFolder,
    scope: Scope,
    change: Change,
    *,
    home: Home,
    find_site: Callable[[str], Site],
    clock: Clock,
    terms_from: Callable[[Terms | None], Terms] | None = None,
    warn: Callable[[str], object] = lambda _: None,
) -> Budget:
    """Set or change a budget and return it; a new one begins with earlier spending.

    Final bills are added up to one sum. Attempts that run, or whose bill is not final, get a line
    each, so that they are settled as if the budget had always existed.

    Args:
        ledger: None if it does not answer; an existing budget needs none.
        terms_from: merges partly named terms with those under the lock, which another process may
            have changed since they were read.
        warn: receives a warning about attempts that are not counted.

    Raises:
        LedgerError: the database does not answer, so earlier spending is unknown.
    """
    lines: list[str] = []
    if folder.read(scope).terms is None:
        if ledger is None:
            raise LedgerError("the ledger does not answer, so earlier spending is not known")
        filters = {COLUMNS[scope.kind]: scope.name}
        mine = {(row.run_id, row.attempt): row for row in ledger.spending(filters=filters)}

        def is_mine(row: SpendingRow) -> bool:
            return mine.get((row.run_id, row.attempt)) == row

        rows = _readable(_spent(ledger, scope, by=change.by), scope, clock.now(), warn)
        is_open = [row for row in rows if not row.is_billed_for_good]
        own = [row for row in is_open if is_mine(row)]
        # hpcflow opens no file that a row of another role names.
        others = [row for row in is_open if row.billed_by is not None and not is_mine(row)]
        summed = [row for row in rows if row.is_billed_for_good] + others[_MOST_OF_OTHERS:]
        # Bills journaled from now on are not in the sum.
        change = replace(change, at=clock.now(), opening=_opening(summed, clock.now()))
        lines = [line for row in own for line in _opening_lines(row, home, find_site, clock)]
        lines += [_bill_line(row, clock.now()) for row in others[:_MOST_OF_OTHERS]]
    with folder.lock(clock):
        budget = folder.read(scope)
        if budget.terms is not None:  # another process has just set it
            change, lines = replace(change, opening=None), []
        if terms_from is not None:
            change = replace(change, terms=terms_from(budget.terms))
        folder.append(scope, [change.to_line(), *lines])
        return folder.read(scope)


def _spent(ledger: Ledger, scope: Scope, *, by: str) -> list[SpendingRow]:
    """Return the attempts that count against a new budget.

    Rows of other roles count only for a project, or if this role has no rows for the scope.
    """
    filters = {COLUMNS[scope.kind]: scope.name}
    is_shared = scope.kind == "project"
    rows = ledger.spending(filters=filters, everyone=is_shared)
    if rows or is_shared or scope == Scope("user", by):
        return rows
    return ledger.spending(filters=filters, everyone=True)


def _readable(
    rows: Iterable[SpendingRow], scope: Scope, now: datetime, warn: Callable[[str], object]
) -> list[SpendingRow]:
    """Return the rows whose bills a budget file can hold, and warn about the others."""
    found: list[SpendingRow] = []
    left_out: list[SpendingRow] = []
    for row in rows:
        is_sound = row.billed_by is None or not fold(Budget(scope), [_bill_line(row, now)]).skipped
        (found if is_sound else left_out).append(row)
    if left_out:
        count = "1 attempt is" if len(left_out) == 1 else f"{len(left_out)} attempts are"
        first = left_out[0]
        warn(
            f"{count} not counted in budget {scope}: the ledger has an invalid id, amount or time; "
            f"the first is attempt {first.attempt} of run {first.run_id[:80]} of user "
            f"{first.user[:80]}, who can rebuild it from the files: hpcflow ledger rebuild"
        )
    return found


def _opening(rows: Iterable[SpendingRow], now: datetime) -> Opening:
    """Return the sum of final bills, with sums by month.

    A row of another role with an end in the future counts now.
    """
    counted: list[Amounts] = []
    months: dict[str, list[Amounts]] = defaultdict(list)
    for row in rows:
        counted.append(billed_amounts(row))
        ended_at = min(row.ended_at or now, now)
        # Without a month, all of it would count in the current one.
        months[f"{max(ended_at, now - _MONTHS_OF):%Y-%m}"].append(counted[-1])
    return replace(
        _sum(counted), months={month: _sum(some) for month, some in sorted(months.items())}
    )


def _sum(counted: Sequence[Amounts]) -> Opening:
    unpriced = {
        unit: count for unit in UNITS if (count := sum(each.of(unit) is None for each in counted))
    }
    return Opening(total(counted), unpriced)


def _bill_line(row: SpendingRow, now: datetime) -> str:
    return entry_line(
        "settled", now, row.user, row.run_id, row.attempt, amounts=billed_amounts(row),
        ended_at=row.ended_at, is_final=False,
    )  # fmt: skip


def _opening_lines(
    row: SpendingRow, home: Home, find_site: Callable[[str], Site], clock: Clock
) -> list[str]:
    """Return the lines for an attempt of this role without a last bill, and for its standby."""
    if row.billed_by is not None:
        return [_bill_line(row, clock.now())]
    if row.is_over and row.bill_due_at is None:
        return []
    is_awaited = not row.is_over and row.next_action == AWAIT_STANDBY
    standby = standby_of(row, home) if is_awaited else None
    numbers = [each for each in (row.attempt, standby) if each is not None]
    lines = (adopted(row, number, home, find_site, clock) for number in numbers)
    return [line for line in lines if line is not None]
