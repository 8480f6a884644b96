"""``hpcflow sweep export`` and ``plot``."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcflow.cli.arguments import json_option, sweep_argument
from hpcflow.cli.output import jsonable, print_json, value_text
from hpcflow.cli.session import Session
from hpcflow.cli.sweeps.status import Trials, view_of
from hpcflow.errors import shell_word
from hpcflow.model.units import counted
from hpcflow.settings import load_settings
from hpcflow.terminal import echo, echo_lines, escaped

if TYPE_CHECKING:
    from hpcflow.sweeps.plots.drawing import Plots
    from hpcflow.sweeps.view import SweepView, TrialView


@click.command("export")
@sweep_argument()
@click.option("--start-from", is_flag=True, help="Print YAML for `start_from` of another sweep.")
@click.option(
    "--best", type=click.IntRange(min=1), metavar="N", help="Only the N best complete trials."
)
@click.option(
    "--study", type=click.Path(path_type=Path), metavar="FILE",
    help="Write an Optuna study to FILE, for optuna-dashboard.",
)  # fmt: skip
@json_option(Trials)
def export_command(
    sweep: str, start_from: bool, best: int | None, study: Path | None, as_json: bool
) -> int:
    """Print all trials of SWEEP as CSV or JSON, or their values for another sweep.

    With --study, write them to a new file instead, as an Optuna study that is named after SWEEP.
    """
    if study is not None:
        if start_from or best is not None or as_json:
            raise click.UsageError("--study excludes other options; it writes all trials")
        _export_study(sweep, study)
        return 0
    view = view_of(Session(), sweep)
    trials = view.trials
    if best is not None:
        trials = _best_first(view)[:best]
    if as_json:
        print_json(Trials(sweep_id=view.sweep_id, trials=trials))
    elif start_from:
        constants = _constants(view)
        for trial in trials:
            params = {name: v for name, v in trial.params.items() if name not in constants}
            echo(f"- {escaped(json.dumps(params, ensure_ascii=False))}")
    else:
        echo_lines(_csv(view, trials), nl=False)
    return 0


def _export_study(sweep: str, target: Path) -> None:
    from hpcflow.storage.sweeps import find_sweep
    from hpcflow.sweeps.study import export_study
    from hpcflow.sweeps.view import look

    sweep_dir = find_sweep(Session().settings.home, sweep)
    _, progress = look(sweep_dir)
    export_study(sweep_dir.sweep_id, progress, target.absolute())
    trials = counted(len(progress.trials), "trial")
    echo(f"{trials} of {sweep_dir.sweep_id}, written to {target!s}")
    echo(f"  → optuna-dashboard --host 127.0.0.1 {shell_word(target)}")


def _constants(view: SweepView) -> set[str]:
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
        fields = jsonable(trial)
        writer.writerow(
            [
                trial.trial,
                trial.state,
                *(value_text(trial.params.get(name, "")) for name in names),
                *(trial.values.get(goal, "") for goal in goals),
                *(fields[key] if fields[key] is not None else "" for key in rest[:3]),
                " ".join(trial.runs),
                trial.why or "",
            ]
        )
    return out.getvalue()


@click.command("plot")
@sweep_argument()
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write to this folder; overwrite files of the same names. Default: SWEEP-plots in the "
    "current folder.",
)
@json_option("hpcflow.sweeps.plots.drawing:Plots")
def plot_command(sweep: str, output: Path | None, as_json: bool) -> int:
    """Draw SWEEP: its history, parallel coordinates, slices, importances, intermediate values.

    With several objectives, also their Pareto front. Each figure is written as PNG and as an HTML
    page. The pages need no network, only the script plotly.min.js beside them.
    """
    from hpcflow.storage.sweeps import find_sweep
    from hpcflow.sweeps.plots.drawing import write_plots
    from hpcflow.sweeps.view import look

    sweep_dir = find_sweep(Session().settings.home, sweep)
    _, progress = look(sweep_dir)
    folder = (output or Path(f"{sweep_dir.sweep_id}-plots")).absolute()
    plots = write_plots(sweep_dir.sweep_id, progress, folder)
    if as_json:
        print_json(plots)
    else:
        _print_plots(plots)
    return 0


def _print_plots(plots: Plots) -> None:
    names = [*(each.figure for each in plots.figures), *(each.figure for each in plots.left_out)]
    width = max(map(len, names))
    echo(str(plots.folder), bold=True)
    for each in plots.figures:
        files = [path.name for path in (each.png, each.html) if path is not None]
        note = f"  ({each.note})" if each.note else ""
        echo(f"  {each.figure:<{width}}  {'  '.join(files)}{note}")
    if plots.left_out:
        echo("left out", bold=True)
    for left in plots.left_out:
        echo(f"  {left.figure:<{width}}  {left.why}")
