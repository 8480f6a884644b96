"""``hpcflow ls``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Final, TypedDict

import click

from hpcflow.cli.arguments import json_option, plain_text
from hpcflow.cli.columns import Cell, Column, print_table
from hpcflow.cli.costs.rows import ago_or_day
from hpcflow.cli.output import (
    STATE_COLOURS,
    cause_word,
    metric_text,
    next_words,
    print_json_lines,
    site_text,
    state_word,
    values_of,
)
from hpcflow.cli.session import Session
from hpcflow.model.state import RunState
from hpcflow.model.units import counted, format_duration
from hpcflow.model.views import RunView
from hpcflow.terminal import Styled, echo


@dataclass(frozen=True, kw_only=True)
class ListedRun(RunView):
    """A run; `is_unsupervised` says that it needs a daemon and has none."""

    is_unsupervised: bool


class Runs(TypedDict):
    """Runs, in the requested order."""

    runs: list[ListedRun]


#: Fits on a screen.
_SHOWN = 30


#: `--sort` -> key of the order; runs without the value come last.
_SORTS: Final[dict[str, Callable[[RunView], Any]]] = {
    "created": lambda run: -run.created_at.timestamp(),
    "name": lambda run: run.name,
    "user": lambda run: run.user,
    "state": lambda run: list(RunState).index(run.state),
    "gpu-hours": lambda run: -(run.gpu_hours or 0.0),
    "cost": lambda run: -Decimal(run.cost_usd or 0),
}


@click.command("ls", short_help="List runs.")
@click.option("--all", "show_all", is_flag=True, help="All runs, including trials of sweeps.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([state.value for state in RunState]),
    help="Only runs in this state. May be given several times.",
)
@click.option("--user", callback=plain_text, help="Only runs of this user.")
@click.option("--project", callback=plain_text, help="Only runs of this project.")
@click.option("--sweep", callback=plain_text, help="Only trials of this sweep: its id or name.")
@click.option("--name", callback=plain_text, help="Only runs with this name.")
@click.option("--tag", callback=plain_text, help="Only runs with this tag.")
@click.option(
    "--since",
    callback=ago_or_day,
    metavar="AGO|DAY",
    help="Only runs created since then: 30d, or 2026-07-01.",
)
@click.option(
    "--sort",
    type=click.Choice(list(_SORTS)),
    default="created",
    show_default=True,
    help="Sort key; descending for created, gpu-hours and cost.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="At most N runs. Default: 30; with --all or --json, no limit.",
)
@json_option(Runs, help_text="Print JSON, including trials of sweeps.")
def command(
    show_all: bool,
    states: tuple[str, ...],
    sort: str,
    limit: int | None,
    as_json: bool,
    since: datetime | timedelta | None,
    **filters: Any,
) -> int:
    """List runs, the newest first. Trials of sweeps need --all, --sweep or --json.

    \b
    hpcflow ls --user ada --since 7d --sort gpu-hours --limit 10
    hpcflow ls --sweep lr-search --state failed
    """
    session = Session()
    session.refresh()
    now = session.clock.now()
    find = partial(
        session.ledger.runs,
        states=[RunState(state) for state in states] or None,
        since=now - since if isinstance(since, timedelta) else since,
        **filters,
    )
    has_all = show_all or as_json
    if not has_all and filters["sweep"] is None:
        has_trials = bool(find(everyone=True, has_sweep=True, limit=1))
        find = partial(find, has_sweep=False)
    else:
        has_trials = False
    most = limit or (None if has_all else _SHOWN)
    runs, has_more = _some(find, sort, most)
    runs = runs[:limit]
    unsupervised = session.unsupervised(runs)
    if as_json:
        listed = (
            ListedRun(**values_of(run), is_unsupervised=run.run_id in unsupervised) for run in runs
        )
        print_json_lines({}, runs=listed)
        return 0
    if runs:
        _print(runs, now)
    else:
        is_filtered = states or since or any(filters.values())
        echo("no runs" + (" that match" if is_filtered else " yet"))
    if has_more and limit is None:
        first = "newest" if sort == "created" else "first"
        echo(f"shown: the {first} {_SHOWN}; show more: --limit N, or --all")
    if has_trials:
        echo(
            "trials of sweeps are not shown; list them: hpcflow ls --sweep SWEEP; list sweeps: "
            "hpcflow sweep ls --all"
        )
    session.warn_of_missing_daemon(unsupervised)
    return 0


def _some(
    find: Callable[..., list[RunView]], sort: str, most: int | None
) -> tuple[list[RunView], bool]:
    """Return the first runs, and whether there are more."""
    if sort == "created" and most is not None:
        return _newest(find, most)
    runs = sorted(find(everyone=True), key=_SORTS[sort])
    return runs[:most], most is not None and len(runs) > most


def _newest(find: Callable[..., list[RunView]], most: int) -> tuple[list[RunView], bool]:
    """Return the newest runs, the user's own always among them, and whether there are more.

    Rows of other roles, damaged or with a time in the future, may be all of the newest.
    """
    found, own = find(limit=most + 1, everyone=True), find(limit=most + 1)
    by_id = {run.run_id: run for run in (*found[:most], *own[:most])}
    runs = sorted(by_id.values(), key=lambda run: run.created_at, reverse=True)
    return runs, max(len(found), len(own)) > most


#: The columns in order; a narrow terminal omits those of the highest rank first.
_COLUMNS: Final = Column.plain(
    "RUN, STATE, CAUSE 2, NEXT 3, USER 4, SITE 8, JOB 5, SIZE 9, PROGRESS 1, METRICS 7, AGE 6"
)


def _print(runs: list[RunView], now: datetime) -> None:
    has_next = any(run.next_action for run in runs)
    columns = [column for column in _COLUMNS if has_next or column.title != "NEXT"]
    values = [_values(run, now) for run in runs]
    print_table(columns, [[row[column.title] for column in columns] for row in values])


def _values(run: RunView, now: datetime) -> dict[str, Cell]:
    gpus = f", {counted(run.gpus, 'GPU')}" if run.gpus else ""
    return {
        "RUN": run.run_id,
        "STATE": Styled(state_word(run), fg=STATE_COLOURS[state_word(run)]),
        "CAUSE": cause_word(run),
        "NEXT": next_text(run, now),
        "USER": run.user,
        "SITE": f"{site_text(run.site)}/{run.partition}",
        "JOB": run.job_id or "",
        "SIZE": counted(run.nodes, "node") + gpus,
        "PROGRESS": progress_text(run),
        "METRICS": metric_text(run.metrics),
        "AGE": format_duration((now - run.created_at).total_seconds()),
    }


def next_text(run: RunView, now: datetime) -> str:
    """Return the next action and its delay, such as ``wait: backoff, 4m``."""
    if run.next_action is None:
        return ""
    left_s = (run.next_at - now).total_seconds() if run.next_at else 0
    return next_words(run) + (f", {format_duration(left_s)}" if left_s > 0 else "")


def progress_text(run: RunView) -> str:
    """Return ``120/1000``, or what is known of it."""
    if run.train_step is None:
        return ""
    total = f"/{run.total_train_steps}" if run.total_train_steps else ""
    return f"{run.train_step}{total}"
