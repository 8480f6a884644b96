"""``hpcflow ls``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from hpcflow.cli.arguments import plain_text
from hpcflow.cli.columns import Cell, Column, print_table
from hpcflow.cli.output import (
    STATE_COLOURS,
    cause_word,
    metric_text,
    print_json,
    site_text,
    state_word,
)
from hpcflow.cli.session import Session
from hpcflow.model.state import RunState
from hpcflow.model.units import counted, format_duration
from hpcflow.terminal import Styled, echo

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


#: The columns in their order; the rank says which a narrow terminal goes without first.
_COLUMNS: Final = (
    Column("RUN"),
    Column("STATE"),
    Column("CAUSE", 2),
    Column("NEXT", 3),
    Column("SITE", 7),
    Column("JOB", 4),
    Column("SIZE", 8),
    Column("PROGRESS", 1),
    Column("METRICS", 6),
    Column("AGE", 5),
)


def _print(runs: list[RunView], now: datetime) -> None:
    has_next = any(run.next_action for run in runs)
    columns = [column for column in _COLUMNS if has_next or column.title != "NEXT"]
    values = [_values(run, now) for run in runs]
    print_table(columns, [[row[column.title] for column in columns] for row in values])


def _values(run: RunView, now: datetime) -> dict[str, Cell]:
    """Title -> cell."""
    gpus = f", {counted(run.gpus, 'GPU')}" if run.gpus else ""
    return {
        "RUN": run.run_id,
        "STATE": Styled(state_word(run), fg=STATE_COLOURS[state_word(run)]),
        "CAUSE": cause_word(run),
        "NEXT": next_text(run, now),
        "SITE": f"{site_text(run.site)}/{run.partition}",
        "JOB": run.job_id or "",
        "SIZE": counted(run.nodes, "node") + gpus,
        "PROGRESS": progress_text(run),
        "METRICS": metric_text(run.metrics),
        "AGE": format_duration((now - run.created_at).total_seconds()),
    }


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
