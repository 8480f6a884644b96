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
    from hpcflow.projection import forget_unsent, rebuild
    from hpcflow.storage.runs import list_runs, run_ids

    session = Session()
    home, user = session.settings.home, session.settings.user
    summary = rebuild(session.ledger, list_runs(home))
    strangers = session.ledger.run_ids(user=user) - set(run_ids(home))
    forget_unsent(session.ledger, strangers, user=user)
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
    from hpcflow.projection import catch_up_home, check, unlinked
    from hpcflow.storage.runs import is_gone, list_runs

    session = Session()
    home, user = session.settings.home, session.settings.user
    catch_up_home(session.ledger, home, user=user)
    run_dirs = list_runs(home)
    purged = [run_dir for run_dir in run_dirs if is_gone(run_dir)]
    found = {
        "make it again from the files: hpcflow ledger rebuild": check(
            session.ledger, [run_dir for run_dir in run_dirs if run_dir not in purged]
        ),
        "nothing can make these again, unless their scratch is another cluster's or away for now; "
        f"see what is known: hpcflow show RUN. To be rid of one: rm {home.runs}/RUN": check(
            session.ledger, purged
        ),
        "where its run directory exists, link it again: "
        f"ln -s RUN_DIRECTORY {home.runs}/": unlinked(session.ledger, home, user=user),
    }
    differences = [text for texts in found.values() for text in texts]
    if as_json:
        print_json({"runs": len(run_dirs), "differences": differences})
        return 1 if differences else 0
    for next_action, texts in found.items():
        for text in texts:
            click.echo(text)
        if texts:
            click.echo(f"  → {next_action}", err=True)
    if not differences:
        click.echo(f"{len(run_dirs)} runs: the ledger says what the files say")
    return 1 if differences else 0


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
        # A newer hpcflow may take more from the files than an older one did.
        click.echo("  → read your runs anew: hpcflow ledger rebuild")
    return 0
