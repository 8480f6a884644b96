"""``hpcflow cost``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, TypedDict

import click

from hpcflow.cli.arguments import json_option
from hpcflow.cli.costs.audit import audit_command
from hpcflow.cli.costs.rows import kept, rows, running, since_option, until_option, window
from hpcflow.cli.costs.showback import showback_command
from hpcflow.cli.costs.table import (
    CostLine,
    StorageValues,
    as_csv,
    print_report,
    print_storage,
    storage_values,
    values,
)
from hpcflow.cli.costs.wasted import wasted_command
from hpcflow.cli.output import print_json
from hpcflow.cli.session import Session
from hpcflow.terminal import echo, echo_lines

_BY: Final = (
    "project", "user", "run", "sweep", "partition", "account", "gpu_type", "month", "cause",
)  # fmt: skip
#: The number of runs on a page whose waste is explained.
_WORST: Final = 10


class CostReport(TypedDict):
    """Costs, by the keys in `by`; `html` is the page that was written."""

    by: Sequence[str]
    lines: list[CostLine]
    total: CostLine
    storage: list[StorageValues]
    storage_total: StorageValues
    html: Path | None


@click.group("cost", short_help="Show what runs cost, and what was wasted.")
def command() -> None:
    """Show what runs cost, from Slurm's accounting of every attempt."""


@command.command("report")
@click.option(
    "--by",
    "keys",
    type=click.Choice(_BY),
    multiple=True,
    default=("project",),
    show_default=True,
    help="Field to group by; repeat it for combinations.",
)
@since_option
@until_option
@click.option("--project", help="Only this project.")
@click.option("--user", help="Only this user.")
@click.option("--csv", "in_csv", is_flag=True, help="Comma-separated values, with all digits.")
@click.option(
    "--html",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write plots to FILE, readable only by you; overwrite FILE.",
)
@json_option(CostReport)
def report_command(
    keys: tuple[str, ...],
    since: datetime | timedelta | None,
    until: datetime | timedelta | None,
    project: str | None,
    user: str | None,
    in_csv: bool,
    html: Path | None,
    as_json: bool,
) -> int:
    """Sum up the costs of attempts. Running attempts count with their time so far.

    \b
    hpcflow cost report --by user --since 30d
    hpcflow cost report --by month --by project --csv
    hpcflow cost report --by project --since 2026-07-01 --html costs.html
    """
    from hpcflow.costs.report import report

    session = Session()
    session.refresh()
    when = window(session, since, until)
    some = rows(session, when, project=project, user_name=user)
    if until is None:
        some += running(session, project=project, user=user)
    found = report(some, tuple(dict.fromkeys(keys)))
    checkpoints = kept(session, when, found.keys, project=project, user_name=user)
    storage = checkpoints.report
    if html is not None:
        from hpcflow.costs.page import Content, page, write_page
        from hpcflow.costs.wasted import most_wasted

        named = {"project": project, "user": user}
        only = {name: value for name, value in named.items() if value is not None}
        worst = most_wasted(some, _WORST, session.ledger.known)
        times = (when.since, when.until, when.now)
        html = write_page(page(Content(some, found, *times, only, worst, checkpoints)), html)
    if as_json:
        output: CostReport = {
            "by": found.keys,
            "lines": [values(found, line) for line in found.lines],
            "total": values(found, found.total),
            "storage": [storage_values(storage, line) for line in storage.lines],
            "storage_total": storage_values(storage, storage.total),
            "html": html,
        }
        print_json(output)
    elif in_csv:
        echo_lines(as_csv(found, storage), nl=False)
    elif html is not None:
        echo(str(html))
    elif not found.lines and not storage.lines:
        echo("no attempts ended in this time, and none are running")
    else:
        from hpcflow.costs.words import notes_of_keeping

        print_report(found)
        print_storage(storage)
        for note in notes_of_keeping(checkpoints):
            echo(note)
    return 0


command.add_command(showback_command)
command.add_command(wasted_command)
command.add_command(audit_command)
