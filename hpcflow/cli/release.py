"""``hpcflow release``."""

from __future__ import annotations

import click

from hpcflow.cli.arguments import json_option, runs_argument
from hpcflow.cli.hold_release import append_requests


@click.command("release", short_help="Let held or stopped runs go on.")
@runs_argument
@json_option
def command(runs: tuple[str, ...], as_json: bool) -> int:
    """Let each RUN that was held, or stopped by a rule, go on. Its retry budgets start again.

    Each is handled by itself, whatever happens to the others.
    """
    from hpcflow.model.journal import Released

    return append_requests(runs, Released, "released", as_json=as_json)
