"""``hpcflow hold``."""

from __future__ import annotations

import click

from hpcflow.cli.arguments import json_option, runs_argument
from hpcflow.cli.control.hold_release import Requested, append_requests


@click.command("hold", short_help="Do not resubmit runs until they are released.")
@runs_argument
@json_option(Requested)
def command(runs: tuple[str, ...], as_json: bool) -> int:
    """Stop resubmitting each RUN until `hpcflow release`. Running jobs continue.

    An error with one run does not affect the others.
    """
    from hpcflow.model.journal import Held

    return append_requests(runs, Held, "held", as_json=as_json)
