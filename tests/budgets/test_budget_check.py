"""Whether a budget has room, and what whoever is refused is told to do."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path

import pytest

from hpcflow.budgets.amounts import NOTHING, Amounts
from hpcflow.budgets.budget_check import Pledge, refusal
from hpcflow.budgets.folder import BudgetFolder
from hpcflow.budgets.records import Change, Limit, Opening, Terms
from hpcflow.budgets.scope import Scope
from hpcflow.budgets.state import Budget
from hpcflow.cli.costs.budget import changed_terms
from hpcflow.errors import LedgerError
from hpcflow.reconcile.set_budget import set_budget
from hpcflow.sites.schema import Site
from hpcflow.storage.layout import Home
from hpcflow.testing.clock import FakeClock

NOW = datetime(2026, 1, 20, tzinfo=timezone.utc)
ID = "small-20260120-aaaaaaaa"
FREE = Pledge(
    ID, 1, "ada", (Scope("run", ID),), Amounts(None, None, Decimal(0)), 1800, partition="cpu"
)
ONE = Limit(Decimal(1))


def test_no_gpu_hours_excuse_no_unknown_price() -> None:
    budget = Budget(Scope("project", "vision"), Terms({"cost_usd": ONE, "gpu_hours": ONE}))
    found = refusal(budget, FREE, NOW)
    assert found is not None
    assert "partition cpu has no price in USD" in found.message
    assert found.next_action.startswith("write `price` into the site file")
    some = replace(FREE, amounts=Amounts(None, None, Decimal("0.5")))
    assert refusal(budget, some, NOW) is None, "it is held to its hours"
    hours = Budget(Scope("project", "vision"), Terms({"gpu_hours": ONE}))
    assert refusal(hours, FREE, NOW) is None


def test_a_run_that_was_never_sent_is_told_what_to_set_in_its_config() -> None:
    terms = Terms({"cost_usd": ONE})
    dear = replace(FREE, amounts=Amounts(Decimal(3), None, Decimal(1)), own=terms)
    found = refusal(Budget(Scope("run", ID), terms), dear, NOW)
    assert found is not None
    assert found.next_action.startswith("raise it: --set budget.cost_usd=3.00")
    later = refusal(Budget(Scope("run", ID), terms), replace(dear, attempt=2), NOW)
    assert later is not None
    assert later.next_action.startswith(f"raise it: hpcflow budget set run:{ID} --hard 3.00")


def test_what_two_set_at_once_is_there_of_both(tmp_path: Path) -> None:
    folder, scope, clock = BudgetFolder(tmp_path), Scope("project", "vision"), FakeClock(NOW)
    mine = Change(NOW, "ada", Terms({"cost_usd": Limit(Decimal(200))}))
    with folder.lock():
        folder.append(scope, [replace(mine, opening=Opening(NOTHING)).to_line()])

    def warned(found: Terms | None) -> Terms:
        return changed_terms(found, "cost_usd", None, "50", None, None)

    theirs = Change(NOW, "grace", warned(Terms({"cost_usd": Limit(Decimal(100))})))
    budget = set_budget(
        None,
        folder,
        scope,
        theirs,
        home=Home(tmp_path),
        find_site=no_site,
        clock=clock,
        terms_from=warned,
    )
    assert budget.limit("cost_usd") == Limit(Decimal(200), Decimal(50))
    with pytest.raises(LedgerError, match="earlier spending is not known"):
        set_budget(
            None,
            folder,
            Scope("user", "ada"),
            theirs,
            home=Home(tmp_path),
            find_site=no_site,
            clock=clock,
        )


def no_site(name: str) -> Site:
    raise AssertionError(name)
