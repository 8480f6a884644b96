"""Sums over bills, by whatever people ask for. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from hpcflow.costs.running import RUNNING
from hpcflow.ledger.rows import BilledRow

#: What a report can be made by -> the value of a row.
BY: Final[dict[str, Callable[[BilledRow], str]]] = {
    "project": lambda row: row.project,
    "user": lambda row: row.user,
    "run": lambda row: row.run_id,
    "sweep": lambda row: row.sweep or "",
    "partition": lambda row: row.partition or "",
    "gpu_type": lambda row: row.gpu_type or "",
    "month": lambda row: f"{row.ended_at:%Y-%m}" if row.ended_at is not None else "",
}


@dataclass
class Line:
    """One line of a report.

    Attributes:
        by: what it is about: a value for each of the keys that were asked for.
        hours: that attempts ran; of however many nodes.
        cost_usd, cost_su: of those that have a price.
        wasted_usd, wasted_gpu_hours: until programs trained, and what had to be done again.
        saved_usd: by being preemptible, against the price of the partition where nobody is.
        unpriced, estimated, unbilled: attempts of the line without a price in money or service
            units; whose bill is an estimate; that have ended and have no bill yet.
        running: those that run, and are counted by their time so far.
    """

    by: tuple[str, ...]
    attempts: int = 0
    hours: float = 0.0
    gpu_hours: float = 0.0
    cost_usd: Decimal | None = None
    cost_su: Decimal | None = None
    wasted_usd: Decimal = Decimal(0)
    wasted_gpu_hours: float = 0.0
    saved_usd: Decimal = Decimal(0)
    unpriced: int = 0
    estimated: int = 0
    unbilled: int = 0
    running: int = 0
    run_ids: set[str] = field(default_factory=set)

    @property
    def runs(self) -> int:
        """How many runs it is about."""
        return len(self.run_ids)


@dataclass(frozen=True)
class Report:
    """Lines, the dearest first, and their sum."""

    keys: tuple[str, ...]
    lines: list[Line]
    total: Line


def report(rows: Iterable[BilledRow], keys: Sequence[str]) -> Report:
    """Sum bills by ``keys``, of :data:`BY`."""
    values = [BY[key] for key in keys]
    lines: dict[tuple[str, ...], Line] = {}
    total = Line(("",) * len(keys))
    for row in rows:
        by = tuple(value(row) for value in values)
        if by not in lines:
            lines[by] = Line(by)
        _add(lines[by], row)
        _add(total, row)
    return Report(tuple(keys), sorted(lines.values(), key=_dearest_first), total)


def _dearest_first(line: Line) -> tuple[Decimal, Decimal, float, tuple[str, ...]]:
    return (-(line.cost_usd or Decimal(0)), -(line.cost_su or Decimal(0)), -line.gpu_hours, line.by)


def _add(line: Line, row: BilledRow) -> None:
    line.attempts += 1
    line.run_ids.add(row.run_id)
    if row.billed_by is None:
        line.unbilled += 1
        return
    line.estimated += row.billed_by == "events"
    line.running += row.billed_by == RUNNING
    elapsed_s, gpu_hours = row.elapsed_s or 0.0, row.gpu_hours or 0.0
    line.hours += elapsed_s / 3600
    line.gpu_hours += gpu_hours
    # An attempt that never ran costs nothing, whatever the price.
    line.unpriced += row.cost_usd is None and row.cost_su is None and elapsed_s > 0
    wasted = min(1.0, (row.wasted_s or 0.0) / elapsed_s) if elapsed_s else 0.0
    line.wasted_gpu_hours += gpu_hours * wasted
    if row.cost_su is not None:
        line.cost_su = (line.cost_su or Decimal(0)) + Decimal(row.cost_su)
    if row.cost_usd is not None:
        cost = Decimal(row.cost_usd)
        line.cost_usd = (line.cost_usd or Decimal(0)) + cost
        if elapsed_s:
            share = Decimal(str(row.wasted_s or 0.0)) / Decimal(str(elapsed_s))
            line.wasted_usd += cost * min(Decimal(1), share)
        if row.on_demand_usd is not None:
            line.saved_usd += Decimal(row.on_demand_usd) - cost
