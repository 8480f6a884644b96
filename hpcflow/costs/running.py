"""Estimate the cost of attempts that run or have no bill yet, by their time and today's prices."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from hpcflow.budgets.amounts import Amounts, total
from hpcflow.errors import HpcflowError
from hpcflow.ledger.rows import BilledRow, SpendingRow
from hpcflow.model.run import Run
from hpcflow.model.views import AttemptView
from hpcflow.placement.price import estimate
from hpcflow.sites.placement import place
from hpcflow.sites.schema import Site
from hpcflow.storage.layout import Home
from hpcflow.storage.rundir import read_run

#: The value of ``billed_by``.
RUNNING = "running"


def so_far(run: Run, site: Site, begin: datetime, end: datetime) -> Amounts:
    """Return the usage of ``run`` from ``begin`` to ``end``; None for a unit without a price.

    Raises:
        SpecError: the site file has changed, and does not fit the run any more.
    """
    placement = place(run.spec, site, prefer=run.partition, is_granted=True)
    bill = estimate(placement, begin, max(timedelta(0), end - begin))
    return Amounts(bill.cost_usd, bill.cost_su, bill.gpu_hours)


def unbilled(
    run: Run, attempts: Iterable[AttemptView], site: Site, now: datetime
) -> Amounts | None:
    """Return the usage of all started attempts without a bill; None if there are none.

    A unit is unknown if one attempt has no price in it. Raises SpecError as :func:`so_far`.
    """
    found = [
        so_far(run, site, each.started_at, each.ended_at or now)
        for each in attempts
        if each.started_at is not None and each.billed_by is None
    ]
    if not found:
        return None
    known = total(found)
    return Amounts(
        None if any(each.cost_usd is None for each in found) else known.cost_usd,
        None if any(each.cost_su is None for each in found) else known.cost_su,
        known.gpu_hours,
    )


def running_rows(
    rows: Iterable[SpendingRow], home: Home, find_site: Callable[[str], Site], now: datetime
) -> list[BilledRow]:
    """Return running attempts as rows of a report, without those whose run cannot be read."""
    found = []
    for row in rows:
        if not row.is_over and row.started_at is not None:
            try:
                run = read_run(home.run_dir(row.run_dir))
                amounts = so_far(run, find_site(row.site), row.started_at, now)
            except HpcflowError:
                continue
            found.append(_row(row, run, amounts, now))
    return found


def _row(row: SpendingRow, run: Run, amounts: Amounts, now: datetime) -> BilledRow:
    began_at = row.started_at or now
    said = amounts.to_json()
    return BilledRow(
        run_id=row.run_id,
        attempt=row.attempt,
        project=row.project,
        user=row.user,
        site=row.site,
        sweep=row.sweep,
        partition=run.partition,
        account=row.account,
        gpu_type=run.gpu_type,
        cause=None,
        ended_at=now,
        billed_by=RUNNING,
        elapsed_s=max(0.0, (now - began_at).total_seconds()),
        gpu_hours=float(amounts.gpu_hours or 0),
        cost_usd=said.get("cost_usd"),
        cost_su=said.get("cost_su"),
        on_demand_usd=None,
        wasted_s=0.0,
    )
