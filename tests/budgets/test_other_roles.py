"""A new budget in a shared ledger: rows of another role count as amounts, and lead nowhere."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from hpcflow.budgets.folder import BudgetFolder
from hpcflow.budgets.records import Change, Limit, Terms
from hpcflow.budgets.scope import parse_scope
from hpcflow.errors import SiteError
from hpcflow.ledger.store import Ledger
from hpcflow.observe.opening import set_budget
from hpcflow.sites.schema import Site
from hpcflow.storage.layout import Home, RunDir
from hpcflow.testing.clock import FakeClock
from tests.ledger.roles import SharedServer
from tests.ledger.shared import NOW, ada, copied, database, eve, run_dir, server, warnings

__all__ = ["ada", "database", "eve", "run_dir", "server", "warnings"]

pytestmark = pytest.mark.postgres

BILLED = {
    "cost_usd": "5000",
    "elapsed_s": "3600",
    "billed_by": "'accounting'",
    "state": "'ended'",
    "ended_at": "now()",
    "bill_due_at": "NULL",
}


@pytest.fixture
def asked() -> list[str]:
    """The sites that were opened."""
    return []


def _opening_usd(ledger: Ledger, folder: Path, scope: str, asked: list[str]) -> Decimal | None:
    """What a new budget begins with."""

    def find_site(name: str) -> Site:
        asked.append(name)
        raise SiteError(f"there is no site {name}")

    terms = Terms({"cost_usd": Limit(Decimal(10))})
    budget = set_budget(
        ledger,
        BudgetFolder(folder / "budgets"),
        parse_scope(scope),
        Change(NOW, "ada", terms),
        home=Home(folder / "home"),
        find_site=find_site,
        clock=FakeClock(NOW),
    )
    return budget.opening.amounts.of("cost_usd")


@pytest.mark.usefixtures("run_dir")
def test_what_eve_writes_in_adas_name_counts_against_the_project_alone(
    server: SharedServer, database: str, ada: Ledger, tmp_path: Path, asked: list[str]
) -> None:
    server.as_eve(database, copied("run"), copied("attempt", 1, **BILLED))
    assert _opening_usd(ada, tmp_path / "1", "project:vision", asked) == 0
    server.as_eve(database, "DELETE FROM attempt", "UPDATE run SET run_id = 'eve'")
    server.as_eve(database, copied("attempt", 1, run_id="'eve'", **BILLED))
    assert _opening_usd(ada, tmp_path / "2", "user:ada", asked) == 0
    assert _opening_usd(ada, tmp_path / "2", "project:vision", asked) == 10_000


def test_no_row_of_eve_leads_to_a_site_or_a_run_directory(
    server: SharedServer, database: str, ada: Ledger, tmp_path: Path, asked: list[str],
    run_dir: RunDir,
) -> None:  # fmt: skip
    """Two of ada's attempts have no bill: their site is looked up, and no other."""
    _opening_usd(ada, tmp_path / "before", "project:vision", asked)
    before = [*asked]
    server.as_eve(
        database,
        copied("run", site="'/tmp/eve.yaml'", run_dir="run_dir || '/../eve'"),
        copied("attempt"),
    )
    asked.clear()
    _opening_usd(ada, tmp_path / "after", "project:vision", asked)
    assert asked == before
    assert run_dir.path.is_dir()
