"""``hpcflow sweep ls | status | trials | best | export``: looking at sweeps."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from hpcflow.cli.arguments import json_option
from hpcflow.cli.output import jsonable, print_json, safe
from hpcflow.cli.session import Session, warn
from hpcflow.errors import InputError, StorageError
from hpcflow.model.units import format_duration

if TYPE_CHECKING:
    from hpcflow.storage.sweeps import SweepDir
    from hpcflow.sweeps.view import SweepView, TrialView

_COLOURS: Final = {
    "running": "cyan",
    "stopping": "yellow",
    "stopped": "yellow",
    "halted": "red",
    "over": "green",
    "complete": "green",
    "pruned": "magenta",
    "failed": "red",
}
_BAR_CHARS: Final = 30
#: Of the trials that run; a terminal has some fifty lines.
_SHOWN: Final = 20


def complete_sweep(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Sweep ids that begin with what was typed."""
    from hpcflow.errors import HpcflowError
    from hpcflow.settings import load_settings
    from hpcflow.storage.sweeps import sweep_ids

    try:
        return [name for name in sweep_ids(load_settings().home) if name.startswith(incomplete)]
    except HpcflowError:
        return []


def sweep_argument(*, required: bool = True) -> Callable[[Any], Any]:
    """SWEEP: an id, a name, or the beginning of an id."""
    return click.argument("sweep", required=required, shell_complete=complete_sweep)


def view_of(session: Session, sweep: str) -> SweepView:
    """The sweep that ``sweep`` means, as it is shown."""
    from hpcflow.storage.sweeps import find_sweep
    from hpcflow.sweeps.view import look, sweep_view

    found = look(find_sweep(session.settings.home, sweep))
    return sweep_view(*found, session.clock.now())


@click.command("ls")
@click.option("--all", "show_all", is_flag=True, help="Also those that are over.")
@json_option
def ls_command(show_all: bool, as_json: bool) -> int:
    """List sweeps: those under way, or all."""
    from hpcflow.storage.sweeps import list_sweeps
    from hpcflow.sweeps.rounds import under_way

    session = Session()
    home, now = session.settings.home, session.clock.now()
    found = list_sweeps(home) if show_all else under_way(home)
    views = [view for each in found if (view := _view_or_warn(each, now)) is not None]
    views.sort(key=lambda view: view.created_at, reverse=True)
    if as_json:
        print_json([_without_trials(view) for view in views])
    elif not views:
        click.echo("no sweep is under way; all: hpcflow sweep ls --all")
    else:
        rows = [
            [
                view.sweep_id,
                view.state,
                _count(view),
                str(view.running),
                _best_text(view),
                f"{view.gpu_hours:.4g}",
                view.cost_usd or "",
                format_duration((now - view.created_at).total_seconds()),
            ]
            for view in views
        ]
        _table(["SWEEP", "STATE", "TRIALS", "RUNNING", "BEST", "GPU_H", "USD", "AGE"], rows)
    return 0


def _view_or_warn(sweep_dir: SweepDir, now: datetime) -> SweepView | None:
    """A damaged one keeps no other from being shown."""
    from hpcflow.sweeps.view import look, sweep_view

    try:
        return sweep_view(*look(sweep_dir), now)
    except StorageError as error:
        warn(f"{sweep_dir.sweep_id}: {error}")
        return None


@click.command("status")
@sweep_argument()
@click.option("--follow", is_flag=True, help="Go on showing it, until it is at rest.")
@json_option
def status_command(sweep: str, follow: bool, as_json: bool) -> int:
    """Show one sweep: how far it is, its best trial, what it took, when it may be over."""
    session = Session()
    if follow:
        from hpcflow.cli.sweep_follow import follow as follow_sweep

        follow_sweep(session, sweep, live=not as_json)
    view = view_of(session, sweep)
    if follow and not as_json:
        return 0
    if as_json:
        print_json(_without_trials(view))
        return 0
    for line in status_lines(view, session.clock.now()):
        click.echo(line)
    return 0


def running_lines(view: SweepView) -> list[str]:
    """The trials that are under way: their values, how far they are, what they report."""
    running = [trial for trial in view.trials if trial.state == "running"]
    goal = next(iter(view.goals))
    rows = []
    for trial in running[:_SHOWN]:
        params = "  ".join(f"{name}={_value(value)}" for name, value in trial.params.items())
        at = "" if trial.at is None else f"at {trial.at}"
        rows.append(f"  {trial.trial:>5}  {at:<8} {_goal_text(trial, goal):<12} {safe(params)}")
    if len(running) > _SHOWN:
        rows.append(f"         and {len(running) - _SHOWN} more")
    return rows


def status_lines(view: SweepView, now: datetime) -> list[str]:
    """The sweep in words, with a bar."""
    ended = view.complete + view.pruned + view.failed
    goals = ", ".join(f"{direction} {name}" for name, direction in view.goals.items())
    lines = [
        click.style(view.sweep_id, bold=True)
        + "  "
        + click.style(view.state, fg=_COLOURS.get(view.state)),
        f"  {_bar(ended, view.running, view.max_trials)}",
        f"  trials    {ended} ended ({view.complete} complete, {view.pruned} pruned, "
        f"{view.failed} failed), {view.running} under way, {view.parallel} at once",
        f"  objective {safe(goals)}; sampler {view.sampler}, pruner {view.pruner}",
    ]
    lines += [f"  best      {_trial_text(best)}" for best in view.best[:5]]
    if len(view.best) > 5:
        lines.append(f"            and {len(view.best) - 5} more: hpcflow sweep best")
    money = f", {view.cost_usd} USD" if view.cost_usd is not None else ""
    lines.append(
        f"  took      {format_duration(view.seconds)} of attempts, "
        f"{view.gpu_hours:.4g} GPU hours{money}"
    )
    if view.pruned and view.pruner != "none":  # of a population nobody knows
        lines.append(
            f"  pruning   saved about {format_duration(view.saved_s)} of attempts, "
            f"{view.saved_gpu_hours:.4g} GPU hours"
        )
    if view.over_at is not None:
        left = format_duration(max(0.0, (view.over_at - now).total_seconds()))
        lines.append(f"  ETA       {left}")
    if view.why is not None:
        lines.append(f"  why       {safe(view.why)}")
    if view.next_action is not None:
        lines.append(f"  → {safe(view.next_action)}")
    return lines


@click.command("trials")
@sweep_argument()
@click.option(
    "--state",
    type=click.Choice(["running", "complete", "pruned", "failed"]),
    help="Only those.",
)
@json_option
def trials_command(sweep: str, state: str | None, as_json: bool) -> int:
    """List the trials of SWEEP, with their values and what they came to."""
    view = view_of(Session(), sweep)
    trials = [trial for trial in view.trials if state in (None, trial.state)]
    if as_json:
        print_json(trials)
        return 0
    names = list(dict.fromkeys(name for trial in trials for name in trial.params))
    goals = list(view.goals)
    rows = [
        [
            str(trial.trial),
            trial.state,
            *(_value(trial.params.get(name, "")) for name in names),
            *(_goal_text(trial, goal) for goal in goals),
            "" if trial.at is None else str(trial.at),
            "" if trial.seconds is None else format_duration(trial.seconds),
            trial.why or "",
        ]
        for trial in trials
    ]
    _table(["TRIAL", "STATE", *names, *goals, "AT", "TOOK", "WHY"], rows)
    return 0


@click.command("best")
@sweep_argument()
@click.option("--render", is_flag=True, help="Print the config that trains it again.")
@click.option("--run", "does_run", is_flag=True, help="Train it again, as a run of its own.")
@json_option
def best_command(sweep: str, render: bool, does_run: bool, as_json: bool) -> int:
    """Show the best trial of SWEEP; with several objectives, all that no other one beats."""
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
                f"{len(view.best)} trials are the best, each in another way",
                next_action=f"see which: hpcflow sweep best {view.sweep_id}; take its run: "
                "hpcflow show RUN",
            )
        sweep_dir = find_sweep(session.settings.home, sweep)
        if render:
            click.echo(best_config(sweep_dir, view.best[0].trial), nl=False)
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
            click.secho(launched.run_id, bold=True)
            click.echo(f"  look           hpcflow show {launched.run_id}")
        return 0
    if as_json:
        print_json(view.best)
        return 0
    for best in view.best:
        click.secho(f"trial {best.trial}", bold=True, nl=False)
        click.echo(f"  {_values_text(best.values)}")
        for name, value in best.params.items():
            click.echo(f"  {name:<20} {_value(value)}")
        click.echo(f"  run                  {best.runs[-1]}")
    return 0


@click.command("export")
@sweep_argument()
@click.option("--start-from", is_flag=True, help="As YAML for `start_from` of another sweep.")
@click.option("--best", type=click.IntRange(min=1), help="Of complete trials, only so many.")
@json_option
def export_command(sweep: str, start_from: bool, best: int | None, as_json: bool) -> int:
    """Print all trials of SWEEP as CSV, or as JSON, or their values for another sweep."""
    view = view_of(Session(), sweep)
    trials = view.trials
    if best is not None:
        trials = _best_first(view)[:best]
    if as_json:
        print_json(trials)
    elif start_from:
        constants = _constants(view)
        for trial in trials:
            params = {name: v for name, v in trial.params.items() if name not in constants}
            click.echo(f"- {json.dumps(params, ensure_ascii=False)}")
    else:
        click.echo(_csv(view, trials), nl=False)
    return 0


def _constants(view: SweepView) -> set[str]:
    from hpcflow.settings import load_settings
    from hpcflow.storage.sweeps import find_sweep, read_sweep

    sweep = read_sweep(find_sweep(load_settings().home, view.sweep_id))
    return set(sweep.spec.space.constants)


def _best_first(view: SweepView) -> list[TrialView]:
    (name, direction), *_ = view.goals.items()
    done = [trial for trial in view.trials if trial.state == "complete"]
    return sorted(done, key=lambda t: t.values[name], reverse=direction == "maximize")


def _csv(view: SweepView, trials: Sequence[TrialView]) -> str:
    names = list(dict.fromkeys(name for trial in trials for name in trial.params))
    goals = list(view.goals)
    rest = ["seconds", "gpu_hours", "cost_usd", "runs", "why"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    params, values = [f"params.{name}" for name in names], [f"values.{goal}" for goal in goals]
    writer.writerow(["trial", "state", *params, *values, *rest])
    for trial in trials:
        said = jsonable(trial)
        writer.writerow(
            [
                trial.trial,
                trial.state,
                *(_plain(trial.params.get(name, "")) for name in names),
                *(trial.values.get(goal, "") for goal in goals),
                *(said[key] if said[key] is not None else "" for key in rest[:3]),
                " ".join(trial.runs),
                trial.why or "",
            ]
        )
    return out.getvalue()


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _without_trials(view: SweepView) -> dict[str, Any]:
    said: dict[str, Any] = jsonable(view)
    del said["trials"]
    return said


def _count(view: SweepView) -> str:
    ended = view.complete + view.pruned + view.failed
    return f"{ended}/{view.max_trials}" if view.max_trials is not None else str(ended)


def _bar(ended: int, running: int, most: int | None) -> str:
    if not most:
        return f"{ended} trials have ended"
    done = min(_BAR_CHARS, _BAR_CHARS * ended // most)
    begun = min(_BAR_CHARS - done, -(-_BAR_CHARS * running // most))
    bar = "█" * done + "▒" * begun + "·" * (_BAR_CHARS - done - begun)
    return f"{bar} {ended}/{most}"


def _best_text(view: SweepView) -> str:
    if not view.best:
        return ""
    return _values_text(view.best[0].values) if len(view.best) == 1 else f"{len(view.best)} trials"


def _trial_text(trial: TrialView) -> str:
    params = "  ".join(f"{name}={_value(value)}" for name, value in trial.params.items())
    return f"trial {trial.trial}: {_values_text(trial.values)}  ({safe(params)})"


def _values_text(values: Mapping[str, float]) -> str:
    return safe("  ".join(f"{name} {value:.5g}" for name, value in values.items()))


def _goal_text(trial: TrialView, goal: str) -> str:
    if goal in trial.values:
        return f"{trial.values[goal]:.5g}"
    newest = trial.newest.get(goal)
    return f"({newest:.5g})" if newest is not None else ""


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.5g}"
    return safe(value) if isinstance(value, str) else json.dumps(value)


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    cells = [[safe(cell) for cell in row] for row in rows]
    widths = [
        max(len(title), *(len(row[index]) for row in cells)) if cells else len(title)
        for index, title in enumerate(titles)
    ]
    click.secho(
        "  ".join(t.ljust(w) for t, w in zip(titles, widths, strict=True)).rstrip(), bold=True
    )
    for row in cells:
        padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        padded[1] = click.style(padded[1], fg=_COLOURS.get(row[1]))
        click.echo("  ".join(padded).rstrip())
