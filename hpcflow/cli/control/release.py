"""``hpcflow release``."""

from __future__ import annotations

import click

from hpcflow.cli.arguments import json_option, runs_argument
from hpcflow.cli.control.hold_release import Requested, append_requests


@click.command("release", short_help="Continue held or stopped runs.")
@runs_argument
@json_option(Requested)
def command(runs: tuple[str, ...], as_json: bool) -> int:
    """Continue each RUN that was held, or that a rule stopped. This resets its retry counts.

    An error with one run does not affect the others.
    """
    from hpcflow.model.journal import Released

    return append_requests(runs, Released, "released", as_json=as_json)
