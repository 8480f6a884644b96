"""Select the plots of a cost page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hpcflow.costs.plots import SAVED, USED, WASTED, Part, horizontal_bars, joined, vertical_bars
from hpcflow.costs.report import Line, Report, Unit, report, unit_of
from hpcflow.ledger.rows import BilledRow


@dataclass(frozen=True)
class Picture:
    """One plot with its title and caption."""

    title: str
    caption: str
    svg: str


def pictures(rows: Sequence[BilledRow], found: Report, said: str) -> list[Picture]:
    """Return the plots of a report that have data.

    Args:
        rows: the rows of the report.
        said: the subject of its lines, in words.
    """
    if not found.lines:
        return []
    unit = unit_of(found.total)
    return [
        each
        for each in (
            _by_key(found, unit, said) if found.keys != ("month",) else None,
            _by_month(rows, unit),
            _wasted_by_cause(rows, unit),
            _saved(rows),
        )
        if each is not None
    ]


def _text(amount: float | None) -> str:
    return "?" if amount is None else f"{amount:,.2f}"


def _by_key(found: Report, unit: Unit, said: str) -> Picture:
    amounts = [unit.amount(line) for line in found.lines]
    return Picture(
        f"By {said}",
        f"in {unit.name}, with the wasted part",
        horizontal_bars(
            "by-key",
            [joined(line.by) for line in found.lines],
            _used_and_wasted(found.lines, unit),
            unit.name,
            [_text(amount) for amount in amounts],
        ),
    )


def _by_month(rows: Sequence[BilledRow], unit: Unit) -> Picture:
    lines = sorted(report(rows, ["month"]).lines, key=lambda line: line.by)
    return Picture(
        "By month",
        f"in {unit.name}, by the end of the attempt, in UTC",
        vertical_bars(
            "by-month",
            [joined(line.by) for line in lines],
            _used_and_wasted(lines, unit),
            unit.name,
        ),
    )


def _used_and_wasted(lines: Sequence[Line], unit: Unit) -> list[Part]:
    wasted = [unit.wasted_amount(line) for line in lines]
    used = [
        max(0.0, (unit.amount(line) or 0.0) - lost)
        for line, lost in zip(lines, wasted, strict=True)
    ]
    return [Part("used", USED, used), Part("wasted", WASTED, wasted)]


def _wasted_by_cause(rows: Sequence[BilledRow], unit: Unit) -> Picture | None:
    lines = [line for line in report(rows, ["cause"]).lines if line.wasted_hours]
    lines.sort(key=lambda line: (-unit.wasted_amount(line), line.by))
    if not lines:
        return None
    amounts = [unit.wasted_amount(line) for line in lines]
    texts = [
        "?" if unit.amount(line) is None else _text(amount)
        for line, amount in zip(lines, amounts, strict=True)
    ]
    return Picture(
        "Wasted, by how attempts ended",
        f"in {unit.name}",
        horizontal_bars(
            "wasted",
            [joined(line.by) for line in lines],
            [Part("wasted", WASTED, amounts)],
            unit.name,
            texts,
        ),
    )


def _saved(rows: Sequence[BilledRow]) -> Picture | None:
    some = [_preemptible(row) for row in rows if row.on_demand_usd is not None]
    lines = report(some, ["partition"]).lines
    if not lines:
        return None
    paid = [float(line.cost_usd or 0) for line in lines]
    saved = [float(line.saved_usd) for line in lines]
    # A preemptible partition that costs more has saved nothing.
    parts = [Part("paid", USED, paid), Part("saved", SAVED, [max(0.0, each) for each in saved])]
    return Picture(
        "Saved by preemptible partitions",
        "in USD, compared with the first partition with the same GPUs and without preemption",
        horizontal_bars(
            "saved",
            [joined(line.by) for line in lines],
            parts,
            "USD",
            [f"{each:,.2f} saved" for each in saved],
        ),
    )


def _preemptible(row: BilledRow) -> BilledRow:
    if not row.parts:
        return row
    return replace(row, parts=[part for part in row.parts if part.on_demand_usd is not None])
