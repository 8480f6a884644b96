"""Select the bar charts of a cost page, and compute the lengths of their bars. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from hpcflow.costs.report import Line, Report, Unit, report, unit_of
from hpcflow.ledger.rows import BilledRow

_MOST_BARS: Final = 12
_MOST_MONTHS: Final = 24


@dataclass(frozen=True)
class Part:
    """One colour of a bar.

    Attributes:
        name: ``used``, ``wasted``, ``paid`` or ``saved``; the page has a colour for each.
        percent: its length, as a share of the longest bar.
        text: its name and amount.
    """

    name: str
    percent: float
    text: str


@dataclass(frozen=True)
class Bar:
    """A bar with its name and the text behind it."""

    name: str
    text: str
    parts: Sequence[Part]


@dataclass(frozen=True)
class Picture:
    """A bar chart with its title and caption.

    Attributes:
        parts: the names of the parts of each bar, from the left.
    """

    title: str
    caption: str
    parts: Sequence[str]
    bars: Sequence[Bar]


@dataclass(frozen=True)
class _Row:
    """A bar before it is drawn: the amounts of its parts."""

    name: str
    text: str
    amounts: Sequence[float]


def pictures(rows: Sequence[BilledRow], found: Report, said: str) -> list[Picture]:
    """Return the charts of a report that have data.

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


def _by_key(found: Report, unit: Unit, said: str) -> Picture:
    rows = _merge_rest([_used_and_wasted(line, unit) for line in found.lines])
    caption = f"in {unit.name}, with the wasted part"
    return _picture(f"By {said}", caption, ("used", "wasted"), rows, unit.name)


def _by_month(rows: Sequence[BilledRow], unit: Unit) -> Picture:
    lines = sorted(report(rows, ["month"]).lines, key=lambda line: line.by)
    shown = [_used_and_wasted(line, unit) for line in lines[-_MOST_MONTHS:]]
    caption = f"in {unit.name}, by the end of the attempt, in UTC"
    return _picture("By month", caption, ("used", "wasted"), shown, unit.name)


def _used_and_wasted(line: Line, unit: Unit) -> _Row:
    amount, wasted = unit.amount(line), unit.wasted_amount(line)
    return _Row(_name(line), _text(amount), (max(0.0, (amount or 0.0) - wasted), wasted))


def _wasted_by_cause(rows: Sequence[BilledRow], unit: Unit) -> Picture | None:
    lines = [line for line in report(rows, ["cause"]).lines if line.wasted_hours]
    lines.sort(key=lambda line: (-unit.wasted_amount(line), line.by))
    if not lines:
        return None
    shown = []
    for line in lines:
        wasted = unit.wasted_amount(line)
        text = _text(None if unit.amount(line) is None else wasted)
        shown.append(_Row(_name(line), text, (wasted,)))
    title = "Wasted, by how attempts ended"
    return _picture(title, f"in {unit.name}", ("wasted",), _merge_rest(shown), unit.name)


def _saved(rows: Sequence[BilledRow]) -> Picture | None:
    some = [_preemptible(row) for row in rows if row.on_demand_usd is not None]
    shown = [
        # A preemptible partition that costs more has saved nothing.
        _Row(
            _name(line),
            f"{line.saved_usd:,.2f} saved",
            (float(line.cost_usd or 0), max(0.0, float(line.saved_usd))),
        )
        for line in report(some, ["partition"]).lines
    ]
    if not shown:
        return None
    return _picture(
        "Saved by preemptible partitions",
        "in USD, compared with the first partition with the same GPUs and without preemption",
        ("paid", "saved"),
        _merge_rest(shown),
        "USD",
    )


def _preemptible(row: BilledRow) -> BilledRow:
    if not row.parts:
        return row
    return replace(row, parts=[part for part in row.parts if part.on_demand_usd is not None])


def _name(line: Line) -> str:
    return " · ".join(name or "-" for name in line.by)


def _text(amount: float | None) -> str:
    return "?" if amount is None else f"{amount:,.2f}"


def _merge_rest(rows: Sequence[_Row]) -> Sequence[_Row]:
    """Return the first rows, and the others as one row."""
    if len(rows) <= _MOST_BARS:
        return rows
    kept, rest = rows[: _MOST_BARS - 1], rows[_MOST_BARS - 1 :]
    amounts = [sum(each) for each in zip(*(row.amounts for row in rest), strict=True)]
    return [*kept, _Row(f"({len(rest)} others)", _text(sum(amounts)), amounts)]


def _picture(
    title: str, caption: str, parts: Sequence[str], rows: Sequence[_Row], unit: str
) -> Picture:
    longest = max(sum(row.amounts) for row in rows) or 1.0
    bars = [
        Bar(
            row.name,
            row.text,
            [
                Part(part, 100 * amount / longest, f"{part}: {amount:,.2f} {unit}")
                for part, amount in zip(parts, row.amounts, strict=True)
                if amount > 0
            ],
        )
        for row in rows
    ]
    return Picture(title, caption, parts, bars)
