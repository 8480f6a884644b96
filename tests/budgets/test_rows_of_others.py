"""In a shared ledger other users can write into the rows of one's attempts. What budgets get, and
what journals get as a bill, follows from the files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from hpcflow.budgets.records import OnExceeded
from hpcflow.launch.run import Launched
from hpcflow.ledger.store import open_ledger
from hpcflow.ledger.url import DatabaseUrl
from hpcflow.model.journal import Accounted
from hpcflow.requeue import overspent
from hpcflow.storage import journal
from hpcflow.storage.layout import RunDir
from hpcflow.storage.rundir import read_run
from tests.budgets.desk import BudgetDesk

LONG_AGO: Final = "2000-01-01T00:00:00.000Z"
#: What others say of an attempt that runs.
FALSIFIED: Final[dict[str, dict[str, Any]]] = {
    "it was free": {
        "state": "ended", "billed_by": "accounting", "cost_usd": "0", "gpu_hours": 0,
        "bill_due_at": None,
    },
    "it was dear": {
        "state": "ended", "billed_by": "events", "cost_usd": "1000000", "bill_due_at": None,
    },
    "it ran for decades": {
        "state": "ended", "started_at": LONG_AGO, "ended_at": "2026-01-01T00:00:00.000Z",
        "bill_due_at": "2030-01-01T00:00:00.000Z",
    },
    "it runs since decades": {"started_at": LONG_AGO},
}  # fmt: skip


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BudgetDesk:
    """A file stands for a server that others write in, too."""
    monkeypatch.setattr(DatabaseUrl, "is_own", property(lambda _: False))
    return BudgetDesk(tmp_path)


def write(desk: BudgetDesk, launched: Launched, **values: Any) -> None:
    """What another user does."""
    names = ", ".join(f"{name} = ?" for name in values)
    with open_ledger(desk.settings.ledger_url) as ledger:
        sql = f"UPDATE attempt SET {names} WHERE run_id = ?"
        ledger.connection().execute(sql, [*values.values(), launched.run_id])


def entries(desk: BudgetDesk, launched: Launched) -> list[dict[str, Any]]:
    return [line for line in desk.lines() if line.get("run_id") == launched.run_id]


@pytest.mark.parametrize("kind", FALSIFIED)
def test_a_budget_counts_what_the_files_say(desk: BudgetDesk, kind: str) -> None:
    desk.set(hard="100", on_exceeded=OnExceeded.SAVE_AND_STOP)
    launched, other = desk.launch(), desk.launch()
    for _ in range(3):
        write(desk, launched, **FALSIFIED[kind])
        assert desk.tick().overspent == {}
        desk.clock.advance(60)
    desk.tick()
    began = [line.get("began_at") for line in entries(desk, launched)]
    assert began == [line.get("began_at") for line in entries(desk, other)]
    assert desk.usd() == ("0.00", "6.00")


def _nothing(_: BudgetDesk, __: Launched) -> None:
    pass


def _began_long_ago(desk: BudgetDesk, launched: Launched) -> None:
    write(desk, launched, started_at=LONG_AGO)


@pytest.mark.parametrize("falsify", [_nothing, _began_long_ago])
def test_a_bill_is_over_the_time_in_the_files(
    desk: BudgetDesk,
    monkeypatch: pytest.MonkeyPatch,
    falsify: Callable[[BudgetDesk, Launched], None],
) -> None:
    desk.set(hard="100", on_exceeded=OnExceeded.SAVE_AND_STOP)
    launched, _ = desk.launch(), desk.launch()
    monkeypatch.setattr(desk.slurm, "accounting", lambda *_, **__: [])
    desk.tick()
    desk.clock.advance(600)
    desk.slurm.end(launched.job_id, "COMPLETED")
    for _ in range(4):
        desk.tick()
        falsify(desk, launched)
        assert desk.tick().overspent == {}
        desk.clock.advance(60)
    desk.tick()
    records = journal.read(RunDir(launched.run_dir))
    bills = {each.cost_usd for each in records if isinstance(each, Accounted)}
    assert [str(each) for each in bills] == ["1.00000000"]
    assert desk.usd() == ("1.00", "3.00")


def test_of_a_purged_run_what_was_committed_counts(desk: BudgetDesk) -> None:
    """Its bill is in the ledger alone."""
    desk.set(hard="100", on_exceeded=OnExceeded.SAVE_AND_STOP)
    launched, _ = desk.launch(), desk.launch()
    desk.tick()
    shutil.rmtree(launched.run_dir)
    write(desk, launched, **FALSIFIED["it was dear"])
    assert desk.tick().overspent == {}
    assert desk.usd() == ("3.00", "3.00")


def test_a_row_does_not_choose_at_which_site_a_budget_is_reached(
    desk: BudgetDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = desk.launch()
    desk.tick()
    desk.clock.advance(900)
    desk.set(hard="1", on_exceeded=OnExceeded.SAVE_AND_STOP)
    monkeypatch.setattr(
        overspent,
        "read_run",
        lambda run_dir: read_run(run_dir).model_copy(update={"site": "other"}),
    )
    assert desk.tick().overspent == {}
    assert not RunDir(launched.run_dir).attempt(1).notice.exists()
