"""``hpcflow ls``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import click

from hpcflow.cli.arguments import plain_text
from hpcflow.cli.columns import shortened
from hpcflow.cli.output import STATE_COLOURS, metric_text, print_json, site_text
from hpcflow.cli.session import Session
from hpcflow.model.state import RunState
from hpcflow.model.units import format_duration
from hpcflow.terminal import cell, echo, make_console

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
@click.option("--project", callback=plain_text, help="Only runs of this project.")
@click.option("--tag", callback=plain_text, help="Only runs with this tag.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, all runs.")
def command(
    show_all: bool, states: tuple[str, ...], project: str | None, tag: str | None, as_json: bool
) -> int:
    """List runs, the newest first."""
    session = Session()
    session.refresh()
    find = partial(
        session.ledger.runs,
        states=[RunState(state) for state in states] or None,
        project=project,
        tag=tag,
    )
    runs, has_more = (find(everyone=True), False) if show_all or as_json else _newest(find)
    if as_json:
        print_json(runs)
        return 0
    if not runs:
        echo("no runs" + (" like that" if states or project or tag else " yet"))
        return 0
    _print(runs, session.clock.now())
    if has_more:
        echo(f"the newest {_SHOWN}; all of them: hpcflow ls --all")
    return 0


def _newest(find: Callable[..., list[RunView]]) -> tuple[list[RunView], bool]:
    """Return the newest runs, the user's own always among them, and whether there are more.

    Rows of other roles, damaged or with a time in the future, may be all of the newest.
    """
    found, own = find(limit=_SHOWN + 1, everyone=True), find(limit=_SHOWN + 1)
    by_id = {run.run_id: run for run in (*found[:_SHOWN], *own[:_SHOWN])}
    runs = sorted(by_id.values(), key=lambda run: run.created_at, reverse=True)
    return runs, max(len(found), len(own)) > _SHOWN


def _print(runs: list[RunView], now: datetime) -> None:
    from rich.table import Table

    console = make_console()
    columns = _columns(runs, now)
    # What a pipe reads is searched, not looked at: it gets everything on one line.
    shown = _that_fit(columns, console.width) if console.is_terminal else list(columns)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in shown:
        table.add_column(title, no_wrap=True, overflow="ignore")
    for number, run in enumerate(runs):
        cells = [cell(columns[title][number]) for title in shown]
        cells[shown.index("STATE")].stylize(STATE_COLOURS[run.state.value])
        table.add_row(*cells)
    console.width = max(console.width, sum(_width(columns, title) for title in shown))
    console.print(table)


#: What is left out first when the terminal is narrow: the last of these.
_BY_WORTH = ("RUN", "STATE", "PROGRESS", "CAUSE", "NEXT", "JOB", "AGE", "METRICS", "SITE", "SIZE")
_GAP = 2


def _columns(runs: list[RunView], now: datetime) -> dict[str, list[str]]:
    """Title -> a cell for each run, in the order in which they stand."""
    columns = {
        "RUN": [run.run_id for run in runs],
        "STATE": [run.state.value for run in runs],
        "CAUSE": [run.cause.value if run.cause else "" for run in runs],
        "NEXT": [next_text(run, now) for run in runs],
        "SITE": [f"{site_text(run.site)}/{run.partition}" for run in runs],
        "JOB": [run.job_id or "" for run in runs],
        "SIZE": [f"{run.nodes}n" + (f" {run.gpus}g" if run.gpus else "") for run in runs],
        "PROGRESS": [progress_text(run) for run in runs],
        "METRICS": [metric_text(run.metrics) for run in runs],
        "AGE": [format_duration((now - run.created_at).total_seconds()) for run in runs],
    }
    if not any(columns["NEXT"]):
        del columns["NEXT"]
    return {title: [*map(shortened, cells)] for title, cells in columns.items()}


def _width(columns: dict[str, list[str]], title: str) -> int:
    return max(len(title), *(len(cell) for cell in columns[title])) + _GAP


def _that_fit(columns: dict[str, list[str]], width: int) -> list[str]:
    """The titles of the columns that fit side by side; RUN and STATE stay in any case."""
    shown = {"RUN", "STATE"}
    left = width - sum(_width(columns, title) for title in shown)
    for title in _BY_WORTH[len(shown) :]:
        if title not in columns:
            continue
        left -= _width(columns, title)
        if left < 0:
            break
        shown.add(title)
    return [title for title in columns if title in shown]


def next_text(run: RunView, now: datetime) -> str:
    """``wait: backoff, 4m``: what is to come of a run that is not under way, and how soon."""
    if run.next_action is None:
        return ""
    left_s = (run.next_at - now).total_seconds() if run.next_at else 0
    return run.next_action + (f", {format_duration(left_s)}" if left_s > 0 else "")


def progress_text(run: RunView) -> str:
    """``120/1000``, or as much of it as is known."""
    if run.train_step is None:
        return ""
    total = f"/{run.total_train_steps}" if run.total_train_steps else ""
    return f"{run.train_step}{total}"
