"""``hpcflow ledger``."""

from __future__ import annotations

import click

from hpcflow.cli.arguments import json_option
from hpcflow.cli.output import print_json
from hpcflow.cli.session import Session, warn


@click.group("ledger", short_help="The ledger: rebuild, check, upgrade.")
def command() -> None:
    """The database of runs: an index of the run directories, made again at any time."""


@command.command("rebuild")
@json_option
def rebuild_command(as_json: bool) -> int:
    """Read all your run directories anew and write what follows from them."""
    from hpcflow.projection import rebuild
    from hpcflow.storage.runs import list_runs

    session = Session()
    summary = rebuild(session.ledger, list_runs(session.settings.home))
    for problem in summary.problems:
        warn(problem)
    for run_id in summary.gone:
        warn(f"{run_id}: its run directory is gone; what the ledger had of it was kept")
    if as_json:
        print_json(summary)
    else:
        click.echo(f"{summary.runs} runs, {summary.lines} lines")
    return 1 if summary.problems else 0


@command.command("check")
@json_option
def check_command(as_json: bool) -> int:
    """Compare the ledger with the run directories; exit 1 if they differ."""
    from hpcflow.projection import catch_up_home, check
    from hpcflow.storage.runs import list_runs

    session = Session()
    catch_up_home(session.ledger, session.settings.home)
    run_dirs = list_runs(session.settings.home)
    differences = check(session.ledger, run_dirs)
    if as_json:
        print_json({"runs": len(run_dirs), "differences": differences})
        return 1 if differences else 0
    for difference in differences:
        click.echo(difference)
    if differences:
        click.echo("make it again from the files: hpcflow ledger rebuild", err=True)
        return 1
    click.echo(f"{len(run_dirs)} runs: the ledger says what the files say")
    return 0


@command.command("upgrade")
@json_option
def upgrade_command(as_json: bool) -> int:
    """Bring the tables of an older hpcflow up to date."""
    from hpcflow.ledger.upgrade import HEAD, upgrade
    from hpcflow.ledger.url import parse_url

    url = parse_url(Session().settings.ledger_url)
    upgrade(url)
    if as_json:
        print_json({"ledger": str(url), "version": HEAD})
    else:
        click.echo(f"the ledger {url} has the tables of version {HEAD}")
    return 0
