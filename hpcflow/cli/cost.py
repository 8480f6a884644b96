"""``hpcflow cost``: what was spent, by whatever one asks for; and whether accounting agrees."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import click

from hpcflow.cli.arguments import json_option
from hpcflow.cli.output import print_json, safe
from hpcflow.cli.session import Session, warn
from hpcflow.model.units import parse_duration_s

if TYPE_CHECKING:
    from hpcflow.costs.report import Line, Report
    from hpcflow.ledger.rows import BilledRow

_BY: Final = ("project", "user", "run", "sweep", "partition", "gpu_type", "month")
_LONG_AGO: Final = datetime(2000, 1, 1, tzinfo=timezone.utc)


def _moment(_ctx: click.Context, param: click.Parameter, value: str | None) -> object:
    """``30d`` for so long ago, or a day in UTC: ``2026-07-01``."""
    if value is None:
        return None
    try:
        day = datetime.fromisoformat(value)
    except ValueError:
        pass
    else:
        return day if day.tzinfo is not None else day.replace(tzinfo=timezone.utc)
    try:
        return timedelta(seconds=parse_duration_s(value))
    except ValueError:
        said = f"expected so long ago, like 30d, or a day, like 2026-07-01; got {value!r}"
        raise click.BadParameter(said, param=param) from None


since_option = click.option(
    "--since", callback=_moment, metavar="AGO|DAY", help="What ended since: 30d, or 2026-07-01."
)
until_option = click.option(
    "--until", callback=_moment, metavar="AGO|DAY", help="What ended before."
)


@click.group("cost", short_help="What was spent, and on what.")
def command() -> None:
    """What was spent, by what Slurm's accounting says of every attempt."""


@command.command("report")
@click.option(
    "--by",
    "keys",
    type=click.Choice(_BY),
    multiple=True,
    default=("project",),
    show_default=True,
    help="What the lines are; several times for each combination.",
)
@since_option
@until_option
@click.option("--project", help="Of this project alone.")
@click.option("--user", help="Of this user alone.")
@click.option("--csv", "as_csv", is_flag=True, help="Comma-separated values, with all digits.")
@json_option
def report_command(
    keys: tuple[str, ...],
    since: datetime | timedelta | None,
    until: datetime | timedelta | None,
    project: str | None,
    user: str | None,
    as_csv: bool,
    as_json: bool,
) -> int:
    """Sum up what attempts cost; those that run, by their time so far.

    \b
    hpcflow cost report --by user --since 30d
    hpcflow cost report --by month --by project --csv
    """
    from hpcflow.costs.report import report

    session = Session()
    session.refresh()
    rows = _rows(session, since, until, project=project, user_name=user)
    if until is None:
        rows += _running(session, project=project, user=user)
    found = report(rows, tuple(dict.fromkeys(keys)))
    if as_json:
        lines = [_values(found, line) for line in found.lines]
        print_json({"by": found.keys, "lines": lines, "total": _values(found, found.total)})
    elif as_csv:
        click.echo(_csv(found), nl=False)
    elif not found.lines:
        click.echo("nothing has ended in this time, and nothing runs")
    else:
        _print(found)
    return 0


@command.command("audit")
@since_option
@until_option
@json_option
def audit_command(
    since: datetime | timedelta | None, until: datetime | timedelta | None, as_json: bool
) -> int:
    """Compute all of your bills anew, from accounting and the prices of now, and list what differs.

    The exit code is 1 where anything does.
    """
    from hpcflow.costs.audit import audit

    session = Session()
    session.refresh()
    rows = _rows(session, since, until, user_name=session.settings.user)
    found = audit(
        session.ledger,
        rows,
        connect=session.scheduler,
        find_site=session.site,
        now=session.clock.now(),
    )
    for problem in found.problems:
        warn(problem)
    if as_json:
        print_json(found)
    else:
        for each in found.differences:
            click.echo(
                f"{each.run_id}, attempt {each.attempt}, job {each.job_id}: {each.what}: billed "
                f"{each.billed}, now {each.now}"
            )
        agree = found.checked - len({(each.run_id, each.attempt) for each in found.differences})
        click.echo(f"{agree} of {found.checked} bills agree with accounting")
    return 1 if found.differences or found.problems else 0


def _rows(
    session: Session,
    since: datetime | timedelta | None,
    until: datetime | timedelta | None,
    **filters: str | None,
) -> list[BilledRow]:
    now = session.clock.now()
    begin = now - since if isinstance(since, timedelta) else since or _LONG_AGO
    end = now - until if isinstance(until, timedelta) else until or now + timedelta(days=1)
    wanted = {name: value for name, value in filters.items() if value is not None}
    return session.ledger.bills(since=begin, until=end, filters=wanted)


def _running(session: Session, *, project: str | None, user: str | None) -> list[BilledRow]:
    """The caller's own attempts that run now."""
    from hpcflow.costs.running import running_rows

    rows = session.ledger.spending_unsettled(user=session.settings.user)
    wanted = [row for row in rows if project in (None, row.project) and user in (None, row.user)]
    return running_rows(wanted, session.site, session.clock.now())


def _values(found: Report, line: Line) -> dict[str, Any]:
    """A line as scripts get it: money as text, with all of its digits."""

    def money(amount: Decimal | None) -> str | None:
        return None if amount is None else f"{amount.quantize(Decimal('1e-8')):f}"

    return {
        **dict(zip(found.keys, line.by, strict=True)),
        "runs": line.runs,
        "attempts": line.attempts,
        "hours": round(line.hours, 6),
        "gpu_hours": round(line.gpu_hours, 6),
        "cost_usd": money(line.cost_usd),
        "cost_su": money(line.cost_su),
        "wasted_usd": money(line.wasted_usd),
        "wasted_gpu_hours": round(line.wasted_gpu_hours, 6),
        "saved_usd": money(line.saved_usd),
        "unpriced": line.unpriced,
        "estimated": line.estimated,
        "unbilled": line.unbilled,
        "running": line.running,
    }


def _csv(found: Report) -> str:
    text = io.StringIO()
    rows = [_values(found, line) for line in found.lines]
    names = list(_values(found, found.total))
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows([{name: _plain(value) for name, value in row.items()} for row in rows])
    return text.getvalue()


def _plain(value: object) -> object:
    """What a spreadsheet would take for a formula is a text for it, too."""
    is_formula = isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r")
    return f"'{value}" if is_formula and not _is_number(str(value)) else value


def _is_number(text: str) -> bool:
    return text.lstrip("-").replace(".", "", 1).isdecimal()


def _print(found: Report) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for key in found.keys:
        table.add_column(key.upper(), overflow="fold")
    has_su = found.total.cost_su is not None
    numbers = ["RUNS", "ATTEMPTS", "GPU_H", "USD", *(["SU"] if has_su else []), "WASTED", "SAVED"]
    for title in numbers:
        table.add_column(title, justify="right", no_wrap=True)

    def add(line: Line, names: Sequence[str], style: str) -> None:
        about = "~" if line.estimated or line.unbilled or line.running else ""
        su = [f"{line.cost_su:.2f}" if line.cost_su is not None else ""] if has_su else []
        table.add_row(
            *(Text(safe(name)) for name in names),
            str(line.runs),
            str(line.attempts),
            f"{line.gpu_hours:.2f}",
            f"{about}{line.cost_usd:.2f}" if line.cost_usd is not None else "?",
            *su,
            f"{line.wasted_usd:.2f}" if line.cost_usd is not None else "",
            f"{line.saved_usd:.2f}" if line.saved_usd else "",
            style=style,
        )

    for line in found.lines:
        add(line, [name or "-" for name in line.by], "")
    add(found.total, ["total", *[""] * (len(found.keys) - 1)], "bold")
    Console(highlight=False, soft_wrap=True).print(table)
    total = found.total
    for count, said in (
        (total.unpriced, "without a price in their site's file: counted in hours, not in money"),
        (total.estimated, "not in accounting yet: by what their jobs said (~)"),
        (total.unbilled, "have ended just now, and have no bill yet (~)"),
        (total.running, "run, and are counted by their time so far (~)"),
    ):
        if count:
            click.echo(f"{count} of {total.attempts} attempts {said}")
