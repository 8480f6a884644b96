"""Sum bills by the requested keys, and compute each user's share of a team's usage. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from typing import Final

from hpcflow.costs.running import RUNNING
from hpcflow.ledger.rows import BilledRow, PartRow

#: Key of a report -> its value in a row.
BY: Final[dict[str, Callable[[BilledRow], str]]] = {
    "project": lambda row: row.project,
    "user": lambda row: row.user,
    "run": lambda row: row.run_id,
    "sweep": lambda row: row.sweep or "",
    "partition": lambda row: row.partition or "",
    "account": lambda row: row.account or "",
    "gpu_type": lambda row: row.gpu_type or "",
    "month": lambda row: f"{row.ended_at:%Y-%m}" if row.ended_at is not None else "",
    "cause": lambda row: row.cause or "",
}


_NOTHING: Final = Decimal(0)
_ALL: Final = Decimal(1)


@dataclass
class Line:
    """One line of a report.

    Attributes:
        by: the values of the requested keys.
        attempts: one in several partitions counts in each of their lines, and once in the sum.
        hours: run time of attempts, independent of their nodes and partitions.
        cost_usd, cost_su: of attempts with a price.
        wasted_usd, wasted_su, wasted_gpu_hours, wasted_hours: before programs trained, and work
            that had to be repeated.
        saved_usd: by preemptible partitions, compared with the price without preemption.
        unpriced, estimated, unbilled: number of attempts without a price in money or service units;
            with an estimated bill; ended without a bill yet.
        unpriced_usd, unpriced_su: number of attempts without a price in money, in service units:
            they may have the other.
        running: number of running attempts, counted by their time so far.
    """

    by: tuple[str, ...]
    attempts: int = 0
    hours: float = 0.0
    gpu_hours: float = 0.0
    cost_usd: Decimal | None = None
    cost_su: Decimal | None = None
    wasted_usd: Decimal = _NOTHING
    wasted_su: Decimal = _NOTHING
    wasted_gpu_hours: float = 0.0
    wasted_hours: float = 0.0
    saved_usd: Decimal = _NOTHING
    unpriced: int = 0
    unpriced_usd: int = 0
    unpriced_su: int = 0
    estimated: int = 0
    unbilled: int = 0
    running: int = 0
    run_ids: set[str] = field(default_factory=set)

    @property
    def runs(self) -> int:
        return len(self.run_ids)

    @property
    def unsure(self) -> int:
        """Return the number of attempts with an estimated bill, or none yet."""
        return self.estimated + self.unbilled + self.running


@dataclass(frozen=True)
class Report:
    """Lines, the most expensive first, and their sum."""

    keys: tuple[str, ...]
    lines: list[Line]
    total: Line


def report(rows: Iterable[BilledRow], keys: Sequence[str]) -> Report:
    """Sum bills by ``keys``, of :data:`BY`."""
    values = [BY[key] for key in keys]
    lines: dict[tuple[str, ...], Line] = {}
    in_parts: list[BilledRow] = []
    for row in rows:
        if row.parts:
            in_parts.append(row)
            continue
        by = tuple([value(row) for value in values])
        line = lines.get(by)
        if line is None:
            line = lines[by] = Line(by)
        add(line, row)
    total = Line(("",) * len(keys))
    for line in lines.values():
        _merge(total, line)
    for row in in_parts:  # in several lines, but one attempt in the sum
        add(total, row)
        for by, some in booked(row, keys):
            add(lines.setdefault(by, Line(by)), some)
    return Report(tuple(keys), sorted(lines.values(), key=_dearest_first), total)


def booked(row: BilledRow, keys: Sequence[str]) -> list[tuple[tuple[str, ...], BilledRow]]:
    """Return the values of ``keys`` for an attempt, with the attempt.

    If its parts have several values, each comes with the attempt reduced to those parts.
    """
    if not row.parts:
        return [(tuple(BY[key](row) for key in keys), row)]
    found: dict[tuple[str, ...], list[PartRow]] = {}
    for part in row.parts:
        place = {name: getattr(part, name) for name in ("partition", "account", "gpu_type")}
        alone = replace(row, **place)
        found.setdefault(tuple(BY[key](alone) for key in keys), []).append(part)
    return [(by, replace(row, parts=parts)) for by, parts in found.items()]


def _dearest_first(line: Line) -> tuple[Decimal, Decimal, float, tuple[str, ...]]:
    return (-(line.cost_usd or Decimal(0)), -(line.cost_su or Decimal(0)), -line.gpu_hours, line.by)


def add(line: Line, row: BilledRow) -> None:
    line.attempts += 1
    line.run_ids.add(row.run_id)
    if row.billed_by is None:
        line.unbilled += 1
        return
    line.estimated += row.billed_by == "events"
    line.running += row.billed_by == RUNNING
    elapsed_s = row.elapsed_s or 0.0
    line.hours += elapsed_s / 3600
    wasted_s = min(row.wasted_s or 0.0, elapsed_s)
    share = _NOTHING
    if wasted_s > 0:
        line.wasted_hours += wasted_s / 3600
        share = Decimal(wasted_s) / Decimal(elapsed_s) if wasted_s < elapsed_s else _ALL
    lacks_usd = lacks_su = lacks_both = False
    for part in row.parts or (row,):
        gpu_hours = part.gpu_hours or 0.0
        line.gpu_hours += gpu_hours
        if share:
            line.wasted_gpu_hours += gpu_hours * (wasted_s / elapsed_s)
        if part.cost_usd is None:
            lacks_usd = True
            lacks_both = lacks_both or part.cost_su is None
        else:
            usd = Decimal(part.cost_usd)
            line.cost_usd = (line.cost_usd or _NOTHING) + usd
            line.wasted_usd += usd * share
            if part.on_demand_usd is not None:
                line.saved_usd += Decimal(part.on_demand_usd) - usd
        if part.cost_su is None:
            lacks_su = True
        else:
            su = Decimal(part.cost_su)
            line.cost_su = (line.cost_su or _NOTHING) + su
            line.wasted_su += su * share
    # An attempt that never ran costs nothing, whatever the price.
    if elapsed_s > 0:
        line.unpriced += lacks_both
        line.unpriced_usd += lacks_usd
        line.unpriced_su += lacks_su


def _merge(total: Line, line: Line) -> None:
    for name in _COUNTED:
        setattr(total, name, getattr(total, name) + getattr(line, name))
    for name in ("cost_usd", "cost_su"):
        amount = getattr(line, name)
        if amount is not None:
            setattr(total, name, (getattr(total, name) or _NOTHING) + amount)
    total.run_ids |= line.run_ids


#: Fields of a line that start at 0 and grow.
_COUNTED: Final = tuple(
    each.name for each in fields(Line) if each.name not in ("by", "cost_usd", "cost_su", "run_ids")
)


@dataclass(frozen=True)
class Unit:
    """A unit of comparison.

    Attributes:
        name: for people.
        spent, wasted: attributes of a line.
    """

    name: str
    spent: str
    wasted: str

    def amount(self, line: Line) -> float | None:
        """Return the amount of a line; None if unknown."""
        found: Decimal | float | None = getattr(line, self.spent)
        return None if found is None else float(found)

    def wasted_amount(self, line: Line) -> float:
        return float(getattr(line, self.wasted))


USD: Final = Unit("USD", "cost_usd", "wasted_usd")
SU: Final = Unit("SU", "cost_su", "wasted_su")
GPU_HOURS: Final = Unit("GPU hours", "gpu_hours", "wasted_gpu_hours")
HOURS: Final = Unit("hours", "hours", "wasted_hours")


def unit_of(total: Line) -> Unit:
    """Return the unit that covers the most of the sum ``total``."""
    if total.cost_usd is not None:
        return USD
    if total.cost_su is not None:
        return SU
    return GPU_HOURS if total.gpu_hours else HOURS


@dataclass(frozen=True)
class Member:
    """A member with their share of the team's usage, from 0 to 1; None if the team used nothing."""

    user: str
    line: Line
    share: float | None


@dataclass(frozen=True)
class Team:
    """A team: usually a project.

    Attributes:
        unit: of the shares. Money only if all usage of the team has a price: otherwise unpriced
            usage would count as nothing.
    """

    name: str
    total: Line
    unit: Unit
    members: list[Member]


def showback(rows: Iterable[BilledRow], key: str = "project") -> list[Team]:
    """Return the teams by ``key`` of a report, the most expensive first, with their members."""
    by_team: dict[str, list[BilledRow]] = defaultdict(list)
    for row in rows:
        for (name,), some in booked(row, [key]):
            by_team[name].append(some)
    totals = report((row for some in by_team.values() for row in some), [key]).lines
    return [_team(line.by[0], by_team[line.by[0]]) for line in totals]


def _team(name: str, rows: Sequence[BilledRow]) -> Team:
    found = report(rows, ["user"])
    unit = _fair_unit(found.total)
    whole = unit.amount(found.total)
    members = [
        Member(line.by[0], line, (unit.amount(line) or 0.0) / whole if whole else None)
        for line in found.lines
    ]
    members.sort(key=lambda member: (-(member.share or 0.0), member.user))
    return Team(name, found.total, unit, members)


def _fair_unit(total: Line) -> Unit:
    """Return the first unit in which all usage is counted."""
    for unit, unpriced in ((USD, total.unpriced_usd), (SU, total.unpriced_su)):
        if total.hours and not unpriced:
            return unit
    return GPU_HOURS if total.gpu_hours else HOURS
