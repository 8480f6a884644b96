"""``hpcflow wait``."""

from __future__ import annotations

import click

from hpcflow.cli.arguments import json_option, run_argument
from hpcflow.cli.look.follow import wait_for_run
from hpcflow.cli.look.shown_run import ShownRun
from hpcflow.cli.session import Session


@click.command("wait", short_help="Wait until no attempt of a run is pending or running.")
@run_argument
@click.option("--follow", is_flag=True, help="Show the progress meanwhile.")
@json_option(ShownRun, help_text="Print the run as JSON at the end.")
def command(run: str, follow: bool, as_json: bool) -> int:
    """Wait until no attempt of RUN is pending or running; exit 0 if it is completed, else 1.

    While an active daemon or a standby may continue RUN, the wait goes on.
    """
    session = Session()
    run_id = session.run_dir(run, newest=True).path.name
    return wait_for_run(session, run_id, live=follow, as_json=as_json)
