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
from hpcflow.reconcile.set_budget import set_budget
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


#: A run of eve's, in SQL.
EVES = "'eve-20260301-aaaaaaaa'"
PROVISIONAL = {**BILLED, "billed_by": "'events'", "bill_due_at": "now()"}
UNREADABLE = {
    "less than nothing": {"cost_usd": "-1"},
    "service units of a planet": {"cost_su": "2e15"},
    "hours of a planet": {"gpu_hours": "1e17"},
    "no number of an attempt": {"attempt": "-attempt"},
    "too many attempts": {"attempt": "attempt + 1000000"},
    "a time that is none": {"ended_at": "'0002-01-01'"},
    "an id that is none": {"run_id": "'eve'"},
}


@pytest.fixture
def asked() -> list[str]:
    """The sites that were opened."""
    return []


def _opening_usd(
    ledger: Ledger, folder: Path, scope: str, asked: list[str], warned: list[str] | None = None
) -> Decimal | None:
    """What a new budget begins with, which can be read again."""

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
        warn=(lambda _: None) if warned is None else warned.append,
    )
    assert budget.terms == terms
    assert budget.skipped == 0
    return budget.opening.amounts.of("cost_usd")


@pytest.mark.usefixtures("run_dir")
def test_what_eve_writes_in_adas_name_counts_against_the_project_alone(
    server: SharedServer, database: str, ada: Ledger, tmp_path: Path, asked: list[str]
) -> None:
    server.as_eve(database, copied("run"), copied("attempt", 1, **BILLED))
    assert _opening_usd(ada, tmp_path / "1", "project:vision", asked) == 0
    server.as_eve(database, "DELETE FROM attempt", f"UPDATE run SET run_id = {EVES}")
    server.as_eve(database, copied("attempt", 1, run_id=EVES, **BILLED))
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


@pytest.mark.parametrize("bill", [BILLED, PROVISIONAL], ids=["for good", "provisional"])
@pytest.mark.parametrize("what", UNREADABLE)
@pytest.mark.usefixtures("run_dir")
def test_rows_of_eve_with_which_no_file_could_be_read_are_not_counted(
    server: SharedServer, database: str, ada: Ledger, tmp_path: Path, asked: list[str],
    what: str, bill: dict[str, str],
) -> None:  # fmt: skip
    values = {"run_id": EVES, **bill, **UNREADABLE[what]}
    server.as_eve(database, copied("run", run_id=values["run_id"]), copied("attempt", 1, **values))
    warned: list[str] = []
    assert _opening_usd(ada, tmp_path, "project:vision", asked, warned) == 0
    assert "2 attempts are not counted in budget project:vision" in warned[0]


@pytest.mark.parametrize("bill", [BILLED, PROVISIONAL], ids=["for good", "provisional"])
@pytest.mark.usefixtures("run_dir")
def test_any_number_of_sound_rows_of_eve_makes_a_file_that_can_be_read(
    server: SharedServer, database: str, ada: Ledger, tmp_path: Path, asked: list[str],
    bill: dict[str, str],
) -> None:  # fmt: skip
    dear = {
        **bill,
        "cost_usd": "1e15",
        "ended_at": "timestamptz '1990-01-01' + number * interval '1 month'",
    }
    server.as_eve(
        database,
        copied("run", run_id=EVES),
        copied("attempt", 8000, run_id=EVES, attempt="attempt * 10000 + number", **dear),
    )
    assert _opening_usd(ada, tmp_path, "project:vision", asked) == Decimal(10) ** 15
    file = tmp_path / "budgets" / "project" / "vision.jsonl"
    assert len(file.read_bytes().splitlines()) < 1100
    assert len(file.read_bytes()) < 400_000
