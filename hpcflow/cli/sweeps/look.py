"""``hpcflow sweep ls``, ``status``, ``trials`` and ``best``."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypedDict

import click

from hpcflow.cli.arguments import json_option, sweep_argument
from hpcflow.cli.columns import Cell, Column, print_table
from hpcflow.cli.output import ChangingLine, print_json
from hpcflow.cli.session import Session, warn
from hpcflow.cli.sweeps.status import (
    COLOURS,
    Trials,
    goal_text,
    param_text,
    running_lines,
    status_lines,
    values_text,
    view_of,
)
from hpcflow.errors import InputError, in_one_line
from hpcflow.model.units import format_duration
from hpcflow.terminal import Styled, echo, echo_as_is, live_lines

if TYPE_CHECKING:
    from hpcflow.storage.sweeps import SweepDir
    from hpcflow.sweeps.view import SweepSummary, SweepView, TrialView


#: Only files are read; Slurm is not asked.
_POLL_S: Final = 1.0
_AT_REST: Final = ("over", "stopped")


def _follow(session: Session, sweep: str, *, live: bool) -> None:
    """Wait until a sweep is over, stopped, or halted without active trials; show it if ``live``."""
    with _screen(live=live) as show:
        while True:
            view = view_of(session, sweep)
            show(session, view)
            if view.state in _AT_REST or (view.state == "halted" and not view.running):
                return
            session.clock.sleep(_POLL_S)


@contextmanager
def _screen(*, live: bool) -> Iterator[Callable[[Session, SweepView], None]]:
    if not live:
        yield lambda _session, _view: None
    elif not sys.stdout.isatty():
        line = ChangingLine()
        yield lambda _session, view: line.show(_progress(view))
    else:
        with live_lines() as screen:

            def show(session: Session, view: SweepView) -> None:
                running = ((line,) for line in running_lines(view))
                screen.show([*status_lines(view, session.clock.now()), *running])

            yield show


def _progress(view: SweepView) -> str:
    values = view.best[0].values if len(view.best) == 1 else {}
    best = "".join(f"  best {name} {value:.5g}" for name, value in values.items())
    return f"{view.state}  {_count(view)} ended, {view.running} under way{best}"


class Sweeps(TypedDict):
    """Sweeps, the newest first."""

    sweeps: list[SweepSummary]


_log = logging.getLogger(__name__)

_SWEEPS: Final = (
    *Column.plain("SWEEP, STATE"),
    *Column.numbers("TRIALS 1, RUNNING 4"),
    *Column.plain("BEST 2"),
    *Column.numbers("GPU_H 5, USD 3, AGE 6"),
)


@click.command("ls")
@click.option("--all", "show_all", is_flag=True, help="Include sweeps that are over.")
@json_option(Sweeps)
def ls_command(show_all: bool, as_json: bool) -> int:
    """List the active sweeps, or all."""
    from hpcflow.storage.sweeps import list_sweeps
    from hpcflow.sweeps.rounds import under_way

    session = Session()
    home, now = session.settings.home, session.clock.now()
    found = list_sweeps(home) if show_all else under_way(home)
    views = [view for each in found if (view := _view_or_warn(each, now)) is not None]
    views.sort(key=lambda view: view.created_at, reverse=True)
    if as_json:
        print_json(Sweeps(sweeps=[view.summary for view in views]))
    elif not views:
        echo("no sweep is active; list all: hpcflow sweep ls --all")
    else:
        _print_sweeps(views, now)
    return 0


def _view_or_warn(sweep_dir: SweepDir, now: datetime) -> SweepView | None:
    from hpcflow.sweeps.view import look, sweep_view

    try:
        return sweep_view(*look(sweep_dir), now)
    except Exception as error:  # files may contain anything
        _log.debug("view of %s", sweep_dir.sweep_id, exc_info=True)
        warn(f"{sweep_dir.sweep_id}: {in_one_line(error)}")
    return None


@click.command("status")
@sweep_argument()
@click.option("--follow", is_flag=True, help="Show the progress until no trial is active.")
@json_option("hpcflow.sweeps.view:SweepSummary")
def status_command(sweep: str, follow: bool, as_json: bool) -> int:
    """Show SWEEP: its progress, best trial, cost and expected end."""
    session = Session()
    if follow:
        _follow(session, sweep, live=not as_json)
    view = view_of(session, sweep)
    if follow and not as_json:
        return 0
    if as_json:
        print_json(view.summary)
        return 0
    for line in status_lines(view, session.clock.now()):
        echo(*line)
    return 0


@click.command("trials")
@sweep_argument()
@click.option(
    "--state",
    type=click.Choice(["running", "complete", "pruned", "failed"]),
    help="Only trials in this state.",
)
@json_option(Trials)
def trials_command(sweep: str, state: str | None, as_json: bool) -> int:
    """List the trials of SWEEP, with their values and results."""
    view = view_of(Session(), sweep)
    trials = [trial for trial in view.trials if state in (None, trial.state)]
    if as_json:
        print_json(Trials(sweep_id=view.sweep_id, trials=trials))
        return 0
    _print_trials(trials, list(view.goals))
    return 0


@click.command("best")
@sweep_argument()
@click.option("--render", is_flag=True, help="Print the config that trains it again.")
@click.option("--run", "does_run", is_flag=True, help="Train it again, as a run of its own.")
@json_option(Trials, "hpcflow.launch.run:Launched")
def best_command(sweep: str, render: bool, does_run: bool, as_json: bool) -> int:
    """Show the best trial of SWEEP; with several objectives, the Pareto front."""
    from hpcflow.storage.sweeps import find_sweep
    from hpcflow.sweeps.again import best_config, run_best

    session = Session()
    view = view_of(session, sweep)
    if not view.best:
        raise InputError(
            f"no trial of {view.sweep_id} is complete yet",
            next_action=f"look: hpcflow sweep status {view.sweep_id}",
        )
    if render or does_run:
        if len(view.best) > 1:
            raise InputError(
                f"{len(view.best)} trials are on the Pareto front, so there is no single best one",
                next_action=f"choose one: hpcflow sweep best {view.sweep_id}; see its run: "
                "hpcflow show RUN",
            )
        sweep_dir = find_sweep(session.settings.home, sweep)
        if render:
            echo_as_is(best_config(sweep_dir, view.best[0].trial))
            return 0
        launched = run_best(
            sweep_dir,
            view.best[0].trial,
            settings=session.settings,
            clock=session.clock,
            find_site=session.site,
            connect=session.scheduler,
        )
        if as_json:
            print_json(launched)
        else:
            echo(launched.run_id, bold=True)
            echo(f"  look           hpcflow show {launched.run_id}")
        return 0
    if as_json:
        print_json(Trials(sweep_id=view.sweep_id, trials=view.best))
        return 0
    for best in view.best:
        echo(f"trial {best.trial}", bold=True, nl=False)
        echo(f"  {values_text(best.values)}")
        for name, value in best.params.items():
            echo(f"  {name:<20} {param_text(value)}")
        echo(f"  run                  {best.runs[-1]}")
    return 0


def _count(view: SweepView) -> str:
    ended = view.complete + view.pruned + view.failed
    return f"{ended}/{view.max_trials}" if view.max_trials is not None else str(ended)


def _best_text(view: SweepView) -> str:
    if not view.best:
        return ""
    return values_text(view.best[0].values) if len(view.best) == 1 else f"{len(view.best)} trials"


def _print_sweeps(views: Sequence[SweepView], now: datetime) -> None:
    rows: list[list[Cell]] = [
        [
            view.sweep_id,
            Styled(view.state, fg=COLOURS.get(view.state)),
            _count(view),
            str(view.running),
            _best_text(view),
            f"{view.gpu_hours:.4g}",
            view.cost_usd or "",
            format_duration((now - view.created_at).total_seconds()),
        ]
        for view in views
    ]
    print_table(_SWEEPS, rows)


def _print_trials(trials: Sequence[TrialView], goals: Sequence[str]) -> None:
    names = list(dict.fromkeys(name for trial in trials for name in trial.params))
    columns = [
        *(Column.numbers("TRIAL") + Column.plain("STATE")),
        *(Column(name, 4) for name in names),
        *map(Column, goals),
        *(Column.numbers("AT 2, TOOK 3") + Column.texts("WHY 1")),
    ]
    rows: list[list[Cell]] = [
        [
            str(trial.trial),
            Styled(trial.state, fg=COLOURS.get(trial.state)),
            *(param_text(trial.params.get(name, "")) for name in names),
            *(goal_text(trial, goal) for goal in goals),
            "" if trial.at is None else str(trial.at),
            "" if trial.seconds is None else format_duration(trial.seconds),
            trial.why or "",
        ]
        for trial in trials
    ]
    print_table(columns, rows)
