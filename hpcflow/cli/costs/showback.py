"""``hpcflow cost showback``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, TypedDict, cast

import click

from hpcflow.cli.arguments import json_option
from hpcflow.cli.columns import Column, painted, print_table
from hpcflow.cli.costs.rows import rows, since_option, until_option, window
from hpcflow.cli.costs.table import CostAmounts, CostBy, amounts, csv_text
from hpcflow.cli.output import print_json
from hpcflow.cli.session import Session
from hpcflow.terminal import echo, echo_lines

if TYPE_CHECKING:
    from hpcflow.costs.report import Member, Team


class MemberCosts(CostAmounts):
    """What a member of a team used; `share` is of the team's total."""

    user: str
    share: float | None


class TeamCosts(CostBy, CostAmounts):
    """What a team used; the shares of its members are of the amount that `share_of` names."""

    share_of: str
    members: list[MemberCosts]


class Showback(TypedDict):
    """What each team used."""

    by: str
    teams: list[TeamCosts]


_TEAMS: Final = ("project", "sweep", "partition", "account", "gpu_type", "month")


@click.command("showback")
@click.option(
    "--by",
    "key",
    type=click.Choice(_TEAMS),
    default="project",
    show_default=True,
    help="Field that defines a team, such as `account`.",
)
@since_option
@until_option
@click.option("--project", help="Only this project.")
@click.option("--csv", "in_csv", is_flag=True, help="Comma-separated values, with all digits.")
@json_option(Showback)
def showback_command(
    key: str,
    since: datetime | timedelta | None,
    until: datetime | timedelta | None,
    project: str | None,
    in_csv: bool,
    as_json: bool,
) -> int:
    """Show what each member of a team used, and the share of the team's total.

    Shares are of the cost, or of GPU hours if anything has no price. The report covers the runs in
    the ledger: with a shared ledger, the runs of all members.

    \b
    hpcflow cost showback --since 2026-07-01
    hpcflow cost showback --project vision --since 30d --csv
    """
    from hpcflow.costs.report import showback

    session = Session()
    session.refresh()
    found = showback(rows(session, window(session, since, until), project=project), key)
    if as_json:
        print_json(Showback(by=key, teams=[_team(key, team) for team in found]))
    elif in_csv:
        echo_lines(_csv(key, found), nl=False)
    elif not found:
        echo("no attempts ended in this time")
    else:
        _print(key, found)
    return 0


def _team(key: str, team: Team) -> TeamCosts:
    values = {
        key: team.name,
        "share_of": team.unit.name,
        **amounts(team.total),
        "members": [_member(member) for member in team.members],
    }
    return cast("TeamCosts", values)


def _member(member: Member) -> MemberCosts:
    share = None if member.share is None else round(member.share, 6)
    return {"user": member.user, "share": share, **amounts(member.line)}


def _csv(key: str, found: Sequence[Team]) -> str:
    lines = [
        {key: team.name, **_member(member), "share_of": team.unit.name}
        for team in found
        for member in team.members
    ]
    return csv_text(lines[0] if lines else [key], lines)


def _print(key: str, found: Sequence[Team]) -> None:
    from hpcflow.costs.words import percent, usd

    rows = []
    for team in found:
        lines = [(each.user, each.line, each.share) for each in team.members]
        for user, line, share in [*lines, ("all", team.total, None)]:
            numbers = [
                str(line.runs),
                f"{line.gpu_hours:.2f}",
                f"{line.hours:.2f}",
                usd(line, digits=".2f"),
                "" if share is None else percent(share, 1),
                f"{line.wasted_usd:.2f}" if line.cost_usd is not None else "",
            ]
            cells = [team.name or "-", user, *numbers]
            rows.append(painted(cells, bold=line is team.total or None))
    numbers_of = Column.numbers("RUNS 4, GPU_H, HOURS 3, USD, SHARE 1, WASTED 2")
    print_table([Column(key.upper()), Column("USER"), *numbers_of], rows)
    in_hours = sorted({team.unit.name for team in found} - {"USD"})
    if in_hours:
        echo(f"if something has no price in USD, shares are of the {' or '.join(in_hours)}")
