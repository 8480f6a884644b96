"""``hpcflow cost``: report, audit, wasted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict

import click

from hpcflow.cli.arguments import json_option
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
from hpcflow.cli.output import print_json
from hpcflow.cli.session import Session, warn
from hpcflow.model.units import counted
from hpcflow.terminal import echo, echo_lines

if TYPE_CHECKING:
    from hpcflow.costs.audit import Audit, Unknown
    from hpcflow.costs.wasted import WastedRun


@click.command("audit")
@since_option
@until_option
@json_option("hpcflow.costs.audit:Audit")
def audit_command(
    since: datetime | timedelta | None, until: datetime | timedelta | None, as_json: bool
) -> int:
    """Recompute all of your bills from accounting and current prices; list the differences.

    It also lists jobs of hpcflow in accounting that belong to no run. The exit code is 1 if it
    lists anything.
    """
    from hpcflow.costs.audit import audit

    session = Session()
    session.refresh()
    when, user = window(session, since, until), session.settings.user
    found = audit(
        session.ledger,
        rows(session, when, user_name=user),
        user=user,
        since=when.since,
        until=when.until,
        connect=session.scheduler,
        find_site=session.site,
        now=session.clock.now(),
    )
    for problem in found.problems:
        warn(problem)
    if as_json:
        print_json(found)
    else:
        _print_differences(found)
    return 1 if found.differences or found.unknown or found.problems else 0


def _print_differences(found: Audit) -> None:
    for each in found.differences:
        values = {"billed": each.billed, "now": each.now}
        known = ", ".join(f"{name} {value}" for name, value in values.items() if value is not None)
        echo(
            f"{each.run_id}, attempt {each.attempt}, job {each.job_id}: {each.what}"
            f"{known and f': {known}'}"
        )
    for job in found.unknown:
        echo(
            f"job {job.job_id}, {job.job_name}, {job.raw_state}: {job.why}: "
            f"{job.hours:.2f} hours, {job.gpu_hours:.2f} GPU hours, {_usd(job)}; see it: "
            f"sacct -X -D -j {job.job_id}"
        )
    if found.helpers:
        hours = sum(job.hours for job in found.helpers)
        echo(
            f"{counted(len(found.helpers), 'job')} of hpcflow itself, without a run: "
            f"{hours:.2f} hours, in no bill"
        )
    if found.uncheckable:
        echo(f"{counted(found.uncheckable, 'bill')} not checked: no accounting record to compare")
    agree = found.checked - len({(each.run_id, each.attempt) for each in found.differences})
    if found.checked or not found.uncheckable:
        echo(f"{agree} of {counted(found.checked, 'bill')} agree with accounting")


def _usd(job: Unknown) -> str:
    return "without a price" if job.cost_usd is None else f"{float(job.cost_usd):.2f} USD"


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
        print_json({"runs": [_run_values(each) for each in found]})
    elif not found:
        echo("the attempts that ended in this time wasted nothing")
    else:
        _print_runs(found)
    return 0


def _run_values(found: WastedRun) -> dict[str, object]:
    return {
        name: f"{value:.8f}" if isinstance(value, Decimal) else value
        for name, value in vars(found).items()
    }


def _print_runs(found: Sequence[WastedRun]) -> None:
    for each in found:
        usd = "?" if each.wasted_usd is None else f"{each.wasted_usd:.2f}"
        hours = f"{each.wasted_gpu_hours:.2f} GPU hours, {each.wasted_hours:.2f} hours"
        echo(each.run_id, bold=True, nl=False)
        echo(f"  {usd} USD, {hours}, {each.share:.0%} of its time: {each.why}")
        echo(f"  \N{RIGHTWARDS ARROW} {each.next_action}")


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
