"""Compute how much of a team's use each user had. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hpcflow.costs.report import Line, booked, report
from hpcflow.costs.unit import GPU_HOURS, HOURS, SU, USD, Unit
from hpcflow.ledger.rows import BilledRow


@dataclass(frozen=True)
class Member:
    """One member, with their share of what the team used, from 0 to 1; None of nothing."""

    user: str
    line: Line
    share: float | None


@dataclass(frozen=True)
class Team:
    """A team, by whatever makes one: a project, mostly.

    Attributes:
        unit: what the shares are of. Money, only where all that the team used has a price: else who
            used what has none would seem to have used nothing.
    """

    name: str
    total: Line
    unit: Unit
    members: list[Member]


def showback(rows: Iterable[BilledRow], key: str = "project") -> list[Team]:
    """The teams, the dearest first, each with its members, the dearest first.

    Args:
        key: what makes a team, of :data:`hpcflow.costs.report.BY`.
    """
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
    """The first unit in which all that everybody used is counted."""
    for unit, unpriced in ((USD, total.unpriced_usd), (SU, total.unpriced_su)):
        if total.hours and not unpriced:
            return unit
    return GPU_HOURS if total.gpu_hours else HOURS
