"""Compute each user's share of a team's usage. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hpcflow.costs.report import GPU_HOURS, HOURS, SU, USD, Line, Unit, booked, report
from hpcflow.ledger.rows import BilledRow


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
