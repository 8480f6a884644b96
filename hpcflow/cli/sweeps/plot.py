"""``hpcflow sweep plot``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcflow.cli.arguments import json_option, sweep_argument
from hpcflow.cli.output import print_json
from hpcflow.cli.session import Session
from hpcflow.terminal import echo

if TYPE_CHECKING:
    from hpcflow.sweeps.plots.drawing import Plots


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
        _show(plots)
    return 0


def _show(plots: Plots) -> None:
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
