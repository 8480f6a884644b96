"""A teammate writes budget lines with extreme values into each field: they say nothing, or they
count, and nothing that reads them fails."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import pytest

from hpcflow.budgets.amounts import Amounts
from hpcflow.budgets.budget_check import Pledge, reached, refusal, warnings_of
from hpcflow.budgets.compaction import budget_from, carried_line
from hpcflow.budgets.state import DAMAGED, Budget, fold
from hpcflow.cli.costs.budget_look import print_budgets, print_details, shown_budget
from hpcflow.cli.output import print_json
from hpcflow.clock import from_text
from tests.budgets.desk import VISION, BudgetDesk
from tests.budgets.extremes import (
    AMOUNTS,
    ATTACKS,
    BEGAN,
    CARRIED,
    COMMITTED,
    EXTREME,
    HERE,
    LINES,
    SET,
    extremes,
)


def use(budget: Budget) -> None:
    """All that is ever done with one."""
    now = from_text("2026-01-31T00:00:00Z")
    amounts = Amounts(Decimal(2), Decimal(2), Decimal(2))
    pledge = Pledge("ada-20260101-bcdefghj", 1, "ada", (budget.scope,), amounts, 60, "gpu")
    refusal(budget, pledge, now)
    reached(budget, now)
    warnings_of(budget, now)
    print_json(shown_budget(budget, now))
    print_budgets([budget], now)
    print_details(budget, now)
    line = carried_line(budget, now, "ada", at_byte=7).encode()
    again = budget_from(budget.scope, line, at_byte=7)
    for unit in AMOUNTS:
        used, read = budget.used(unit, now), again.used(unit, now)
        assert read.unknown == used.unknown, "what is written can be read"
        assert abs(read.taken - used.taken) < Decimal("0.0001")


def different(budgets: Iterable[Budget]) -> list[Budget]:
    """Without those that say the same, as after all the lines that say nothing."""
    return list({repr(budget): budget for budget in budgets}.values())


@pytest.mark.parametrize("kind", [kind for kind in LINES if kind != "carried"])
def test_no_extreme_value_of_a_line_fails_later(kind: str) -> None:
    first = [json.dumps(SET), json.dumps(COMMITTED), json.dumps(BEGAN)]
    unpriced = json.dumps({**COMMITTED, "attempt": 3, "amounts": {}})
    for budget in different(
        fold(Budget(VISION), [*first, line, unpriced]) for line in extremes(LINES[kind])
    ):
        use(budget)


def test_no_extreme_value_of_a_compacted_line_fails_later() -> None:
    budget_from(VISION, json.dumps(CARRIED).encode(), at_byte=0)
    budgets = []
    for line in extremes(CARRIED):
        with suppress(*DAMAGED):  # the reader goes on with the one before
            budgets.append(budget_from(VISION, line, at_byte=0))
    for budget in different(budgets):
        use(budget)


def test_a_tick_reports_what_it_sent(tmp_path: Path) -> None:
    desk = BudgetDesk(tmp_path)
    desk.set(soft="1")
    launched = desk.launch()
    desk.tick()
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    sent: dict[str, str] = {}
    with desk.budgets.file(VISION).open("a") as file:
        for value in EXTREME:
            for line in ATTACKS["unpriced"]:
                file.write(json.dumps(line).replace(f'"{HERE}"', value) + "\n")
    for _ in range(5):
        sent |= desk.tick().sent
        desk.clock.advance(600)
    assert list(sent) == [launched.run_id]
