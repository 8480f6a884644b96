"""``hpcflow hold``."""

from __future__ import annotations

import click

from hpcflow.cli.arguments import json_option, runs_argument
from hpcflow.cli.hold_release import append_requests


@click.command("hold", short_help="Keep runs from being sent again.")
@runs_argument
@json_option
def command(runs: tuple[str, ...], as_json: bool) -> int:
    """Keep each RUN from being sent again until `hpcflow release`. Running jobs are not affected.

    Each is handled by itself, whatever happens to the others.
    """
    from hpcflow.model.journal import Held

    return append_requests(runs, Held, "held", as_json=as_json)
