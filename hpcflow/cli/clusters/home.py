"""``hpcflow home``."""

from __future__ import annotations

from typing import Final, TypedDict

import click

from hpcflow.cli.arguments import json_option
from hpcflow.cli.output import picked, print_json
from hpcflow.cli.session import Session, warn
from hpcflow.errors import InputError
from hpcflow.model.units import counted
from hpcflow.terminal import echo

_LISTED: Final = 5
_BATCH_RUNS: Final = 200


class UpgradedHome(TypedDict):
    """A home with the layout of this version.

    `runs` is the number of runs that were moved; `incomplete` names those whose `run.json` and
    journal were not found.
    """

    home: str
    runs: int
    incomplete: list[str]
    problems: list[str]


@click.group("home", short_help="Move the runs of an older hpcflow.")
def command() -> None:
    """Upgrade HPCFLOW_HOME, where hpcflow keeps the records of your runs."""


@command.command("upgrade")
@json_option(UpgradedHome)
def upgrade_command(as_json: bool) -> int:
    """Move the records of your runs from scratch into HPCFLOW_HOME, once after an update.

    Nothing on scratch changes, and pending jobs start as before. Repeat the command if it was
    killed, and on each cluster whose scratch has runs of yours.
    """
    from hpcflow.cli.clusters.ledger import count_runs
    from hpcflow.projection.rows_backup import back_up_rows
    from hpcflow.requeue.daemon.supervision import supervision
    from hpcflow.storage.older_home import upgrade_home
    from hpcflow.storage.runs import is_gone, list_runs

    session = Session()
    home = session.settings.home
    if supervision(session.settings, session.clock.now()).is_alive:
        raise InputError(
            "a daemon uses this home, perhaps of the older hpcflow",
            next_action="stop it first: hpcflow daemon uninstall; then repeat this command, and "
            "install it again",
        )
    with count_runs(shown=not as_json) as on_run:
        done = upgrade_home(home, user=session.settings.user, clock=session.clock, on_run=on_run)
    run_dirs = [each for each in list_runs(home, warn) if not is_gone(each)]
    for begin in range(0, len(run_dirs), _BATCH_RUNS):
        back_up_rows(session.ledger, run_dirs[begin : begin + _BATCH_RUNS])
    if as_json:
        print_json(picked(UpgradedHome, done, home=str(home.path)))
        return 0
    for problem in done.problems:
        warn(problem)
    echo(f"{home.path} has the layout of this version; {counted(done.runs, 'run')} moved")
    if done.incomplete:
        some = ", ".join(done.incomplete[:_LISTED])
        more = len(done.incomplete) - _LISTED
        echo(f"run.json or journal not found: {some}{f' and {more} more' if more > 0 else ''}")
        echo("  → if their scratch is another cluster's, repeat it there: hpcflow home upgrade")
    return 0
