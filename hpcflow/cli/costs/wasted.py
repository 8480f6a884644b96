"""``hpcflow cost wasted``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, TypedDict

import click

from hpcflow.cli.arguments import json_option
from hpcflow.cli.costs.rows import rows, since_option, until_option, window
from hpcflow.cli.output import print_json
from hpcflow.cli.session import Session
from hpcflow.terminal import echo

if TYPE_CHECKING:
    from hpcflow.costs.wasted import WastedRun


class Wasted(TypedDict):
    """The runs that wasted the most, in descending order; money is text."""

    runs: list[WastedRun]


@click.command("wasted")
@click.option(
    "--top",
    type=click.IntRange(1, 1000),
    default=10,
    show_default=True,
    metavar="N",
    help="At most N runs.",
)
@since_option
@until_option
@click.option("--project", help="Only this project.")
@click.option("--user", help="Only this user.")
@json_option(Wasted)
def wasted_command(
    top: int,
    since: datetime | timedelta | None,
    until: datetime | timedelta | None,
    project: str | None,
    user: str | None,
    as_json: bool,
) -> int:
    """List the runs that wasted the most, why, and what to do about it.

    An attempt wastes its cost before training starts. If it does not complete, it also wastes the
    cost after its last checkpoint; without a checkpoint, all of it.

    \b
    hpcflow cost wasted --since 30d
    hpcflow cost wasted --project vision --top 3
    """
    from hpcflow.costs.wasted import most_wasted

    session = Session()
    session.refresh()
    some = rows(session, window(session, since, until), project=project, user_name=user)
    found = most_wasted(some, top, session.ledger.known)
    if as_json:
        print_json({"runs": [_values(each) for each in found]})
    elif not found:
        echo("the attempts that ended in this time wasted nothing")
    else:
        _print(found)
    return 0


def _values(found: WastedRun) -> dict[str, object]:
    return {
        name: f"{value:.8f}" if isinstance(value, Decimal) else value
        for name, value in vars(found).items()
    }


def _print(found: Sequence[WastedRun]) -> None:
    for each in found:
        usd = "?" if each.wasted_usd is None else f"{each.wasted_usd:.2f}"
        hours = f"{each.wasted_gpu_hours:.2f} GPU hours, {each.wasted_hours:.2f} hours"
        echo(each.run_id, bold=True, nl=False)
        echo(f"  {usd} USD, {hours}, {each.share:.0%} of its time: {each.why}")
        echo(f"  \N{RIGHTWARDS ARROW} {each.next_action}")
