"""Attempts with their bills, for reports about them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any, Final

from hpcflow.costs.checkpoint_costs import CheckpointCosts, StorageReport
from hpcflow.costs.page import Content
from hpcflow.costs.report import report
from hpcflow.costs.wasted import most_wasted
from hpcflow.ledger.rows import BilledRow, Known

NOW: Final = datetime(2026, 9, 14, 10, 0, tzinfo=timezone.utc)

ROW: Final = BilledRow(
    run_id="a-1",
    attempt=1,
    project="vision",
    user="ada",
    site="devcluster",
    sweep=None,
    partition="gpu",
    account="physics",
    gpu_type="a100",
    cause="completed",
    ended_at=datetime(2026, 7, 31, 23, 59, tzinfo=timezone.utc),
    billed_by="accounting",
    elapsed_s=3600.0,
    gpu_hours=2.0,
    cost_usd="6",
    cost_su=None,
    on_demand_usd=None,
    wasted_s=0.0,
)


def row(run_id: str, **said: Any) -> BilledRow:
    """An attempt that is as :data:`ROW` but for what is said."""
    return replace(ROW, run_id=run_id, **said)


def content(rows: list[BilledRow], *keys: str, known: dict[str, Known] | None = None) -> Content:
    """A page about these rows."""
    found = report(rows, keys or ("project",))
    worst = most_wasted(rows, 10, lambda _: known or {})
    kept = CheckpointCosts(StorageReport(found.keys))
    return Content(rows, found, None, NOW + timedelta(days=1), NOW, {}, worst, kept)
