"""``hpcflow ls``."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from hpcflow.cli.output import STATE_COLOURS, metric_text, print_json, safe, site_text
from hpcflow.cli.session import Session
from hpcflow.model.state import RunState
from hpcflow.model.units import format_duration

if TYPE_CHECKING:
    from hpcflow.model.views import RunView

#: What fits a screen; `--all` shows the rest.
_SHOWN = 30


@click.command("ls", short_help="List runs.")
@click.option("--all", "show_all", is_flag=True, help="All runs, not only the newest.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([state.value for state in RunState]),
    help="Only runs in this state. May be given several times.",
)
@click.option("--project", help="Only runs of this project.")
@click.option("--tag", help="Only runs with this tag.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, all runs.")
def command(
    show_all: bool, states: tuple[str, ...], project: str | None, tag: str | None, as_json: bool
) -> int:
    """List runs, the newest first."""
    session = Session()
    session.refresh()
    limit = None if show_all or as_json else _SHOWN + 1
    runs = session.ledger.runs(
        limit=limit, states=[RunState(state) for state in states] or None, project=project, tag=tag
    )
    if as_json:
        print_json(runs)
        return 0
    if not runs:
        click.echo("no runs" + (" like that" if states or project or tag else " yet"))
        return 0
    _print(runs if show_all else runs[:_SHOWN], session.clock.now())
    if limit is not None and len(runs) == limit:
        click.echo(f"the newest {_SHOWN}; all of them: hpcflow ls --all")
    return 0


def _print(runs: list[RunView], now: datetime) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("RUN", "STATE", "CAUSE", "SITE", "JOB", "SIZE", "PROGRESS", "METRICS", "AGE"):
        table.add_column(title, no_wrap=title != "METRICS", overflow="fold")
    for run in runs:
        size = f"{run.nodes}n" + (f" {run.gpus}g" if run.gpus else "")
        table.add_row(
            run.run_id,
            Text(run.state.value, style=STATE_COLOURS[run.state.value]),
            run.cause.value if run.cause else "",
            f"{site_text(run.site)}/{run.partition}",
            run.job_id or "",
            size,
            progress_text(run),
            safe(metric_text(run.metrics)),
            format_duration((now - run.created_at).total_seconds()),
        )
    Console(highlight=False).print(table)


def progress_text(run: RunView) -> str:
    """``120/1000``, or as much of it as is known."""
    if run.train_step is None:
        return ""
    return (
        f"{run.train_step}/{run.total_train_steps}"
        if run.total_train_steps
        else f"{run.train_step}"
    )
