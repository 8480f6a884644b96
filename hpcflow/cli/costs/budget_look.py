"""Print budgets, for people and for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypedDict

from hpcflow.budgets.amounts import UNITS, Amounts, shown
from hpcflow.budgets.budget_check import warnings_of
from hpcflow.cli.columns import Column, painted, print_table
from hpcflow.cli.output import picked
from hpcflow.cli.session import warn
from hpcflow.model.units import counted
from hpcflow.terminal import Styled, echo

if TYPE_CHECKING:
    from hpcflow.budgets.records import Change, OnExceeded
    from hpcflow.budgets.state import Budget

_COLUMNS: Final = (
    *Column.plain("BUDGET, UNIT"),
    *Column.numbers("SPENT, COMMITTED 2, LEFT, SOFT 3, HARD 1"),
    *Column.plain("PER 1"),
)


class BudgetAmount(TypedDict):
    """Amounts of a budget in one unit, as decimal texts; they omit the `unknown` attempts."""

    hard: str | None
    soft: str | None
    spent: str
    committed: str
    running_so_far: str
    left: str | None
    unknown: int


class BudgetJson(TypedDict):
    """A budget; `per` and `on_exceeded` are null if it was removed."""

    scope: str
    per: str | None
    on_exceeded: OnExceeded | None
    amounts: dict[str, BudgetAmount]


class CommittedAttempt(TypedDict):
    """An attempt that is not over, and its maximum amounts; the keys are units."""

    run_id: str
    attempt: int
    by: str
    at: datetime
    began_at: datetime | None
    amounts: dict[str, str]
    so_far: dict[str, str]


class BudgetChange(TypedDict):
    """A change of a budget; `set` is null if it was removed."""

    at: datetime
    by: str
    how: str
    why: str | None
    set: dict[str, Any] | None


class ShownBudget(BudgetJson):
    """A budget, its opening amounts, the attempts that take from it, and its changes."""

    opened_at: datetime | None
    opening: dict[str, str]
    committed_to: list[CommittedAttempt]
    changes: list[BudgetChange]
    skipped_lines: int


def as_values(budget: Budget, now: datetime) -> BudgetJson:
    terms = budget.terms
    return {
        "scope": str(budget.scope),
        "per": None if terms is None else "month" if terms.per_month else "ever",
        "on_exceeded": None if terms is None else terms.on_exceeded,
        "amounts": {unit: _amount_values(budget, unit, now) for unit in UNITS},
    }


def _amount_values(budget: Budget, unit: str, now: datetime) -> BudgetAmount:
    limit, used = budget.limit(unit), budget.used(unit, now)
    left = None if limit.hard is None else limit.hard - used.taken
    return {
        "hard": _text(limit.hard),
        "soft": _text(limit.soft),
        "spent": f"{used.spent:f}",
        "committed": f"{used.committed:f}",
        "running_so_far": f"{budget.so_far(unit, now):f}",
        "left": _text(left),
        "unknown": used.unknown,
    }


def shown_budget(budget: Budget, now: datetime) -> dict[str, Any]:
    """Return the values of a :class:`ShownBudget`."""
    return {
        **as_values(budget, now),
        "opened_at": budget.opened_at,
        "opening": budget.opening.amounts.to_json(),
        "committed_to": [
            picked(
                CommittedAttempt,
                each,
                amounts=each.amounts.to_json(),
                so_far=each.so_far(now).to_json(),
            )
            for each in budget.committed_to()
        ],
        "changes": [
            picked(BudgetChange, each, set=each.terms and each.terms.to_json())
            for each in budget.changes
        ],
        "skipped_lines": budget.skipped,
    }


def _text(value: Decimal | None) -> str | None:
    return None if value is None else f"{value:f}"


def print_budgets(budgets: Sequence[Budget], now: datetime) -> None:
    """Print a table with a line for each unit that is limited."""
    rows: list[list[Styled]] = []
    for budget in budgets:
        for unit, words in UNITS.items():
            limit, used = budget.limit(unit), budget.used(unit, now)
            if limit.hard is None and limit.soft is None:
                continue
            left = None if limit.hard is None else limit.hard - used.taken
            is_soft = limit.soft is not None and used.taken > limit.soft
            cells = (
                str(budget.scope),
                words,
                f"{used.spent:.2f}{'?' if used.unknown else ''}",
                f"{used.committed:.2f}",
                *("" if each is None else f"{each:.2f}" for each in (left, limit.soft, limit.hard)),
                "month" if budget.terms is not None and budget.terms.per_month else "",
            )
            is_over = left is not None and left <= 0
            rows.append(painted(cells, "red" if is_over else "yellow" if is_soft else None))
    print_table(_COLUMNS, rows)


def print_details(budget: Budget, now: datetime) -> None:
    def words(amounts: Amounts) -> str:
        known = [(unit, amounts.of(unit)) for unit in UNITS]
        return ", ".join(shown(value, unit) for unit, value in known if value) or "nothing"

    if budget.opened_at is not None and any(map(budget.opening.amounts.of, UNITS)):
        before = words(budget.opening.amounts)
        echo()
        echo(f"spent before it was set on {budget.opened_at:%Y-%m-%d}: {before}")
    open_ones = budget.committed_to()
    if open_ones:
        echo()
        echo(f"committed to {counted(len(open_ones), 'attempt')} not over yet:")
    for entry in open_ones:
        so_far = f", about {words(entry.so_far(now))} so far" if entry.began_at else ""
        echo(
            f"  {entry.run_id}, attempt {entry.attempt}, of {entry.by}: "
            f"at most {words(entry.amounts)}{so_far}"
        )
    echo()
    echo("changes:")
    for change in budget.changes:
        echo(f"  {change.at:%Y-%m-%d %H:%M:%S}  {change.by}  {_change_text(change)}")
    if budget.skipped:
        warn(
            f"{counted(budget.skipped, 'line')} of its file cannot be read: torn, damaged, or of a "
            "newer version"
        )


def _change_text(change: Change) -> str:
    why = f" ({change.why})" if change.why else ""
    if change.terms is None:
        return f"removed{why}"
    parts = [
        f"{name} {shown(value, unit)}"
        for unit in UNITS
        if (limit := change.terms.limits.get(unit)) is not None
        for name, value in (("hard", limit.hard), ("soft", limit.soft))
        if value is not None
    ]
    per = " per month" if change.terms.per_month else ""
    on_exceeded = change.terms.on_exceeded.value.replace("_", " ")
    how = ", by the run's config" if change.how == "config" else ""
    return f"{', '.join(parts)}{per}; when exceeded: {on_exceeded}{how}{why}"


def warn_about(budgets: Sequence[Budget], now: datetime) -> None:
    """Warn about exceeded soft limits, and about amounts that are unknown."""
    for budget in budgets:
        for text in warnings_of(budget, now):
            warn(text)
