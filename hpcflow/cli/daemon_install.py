"""``hpcflow daemon install`` and ``uninstall``: the daemon where nobody is logged in."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

import click

from hpcflow.errors import InputError
from hpcflow.settings import load_settings

_WAYS: Final = (
    ("cron", "A line in your crontab: one round every minute."),
    ("scrontab", "An entry in Slurm's own crontab: one round every five minutes, as a job."),
    ("systemd", "A unit of your own systemd: the loop."),
    ("slurm", "A small job that sends its own successor: the loop."),
)


def _choice(function: Callable[..., Any]) -> Callable[..., Any]:
    for name, text in reversed(_WAYS):
        function = click.option(f"--{name}", "ways", flag_value=name, multiple=True, help=text)(
            function
        )
    return function


@click.command("install", short_help="Keep the daemon at work when you are logged out.")
@_choice
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.argument("sbatch_options", nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTION...]")
def install_command(ways: tuple[str, ...], yes: bool, sbatch_options: tuple[str, ...]) -> int:
    """Show what keeps the daemon at work when you are logged out, ask, and write it.

    OPTIONs are sbatch's, for the jobs of --scrontab and --slurm, such as
    `-- --partition=serial --account=physics`. Which way suits which site: docs/operations.md.
    """
    if len(ways) != 1:
        raise InputError(
            "name one way", next_action="hpcflow daemon install --cron (or another: see --help)"
        )
    if sbatch_options and ways[0] not in ("scrontab", "slurm"):
        raise InputError(
            f"--{ways[0]} sends no job, and takes no options of sbatch",
            next_action=f"hpcflow daemon install --{ways[0]}",
        )
    from hpcflow.requeue.install.ways import way_to_install

    way = way_to_install(ways[0], load_settings(), sbatch_options)
    click.echo(f"This is written, {way.plan()}")
    if not yes:
        if not sys.stdin.isatty():
            raise InputError(
                "nothing was written: there is no terminal to ask at", next_action="add --yes"
            )
        if not click.confirm("Write it?"):
            click.echo("nothing was written")
            return 1
    click.echo(f"installed; {way.install()}")
    click.echo("see: hpcflow daemon status")
    return 0


@click.command("uninstall", short_help="Take away what `install` wrote.")
@_choice
def uninstall_command(ways: tuple[str, ...]) -> int:
    """Take away what `hpcflow daemon install` wrote, and nothing else.

    Without an option: whatever of it is there.
    """
    from hpcflow.cli.output import say_error
    from hpcflow.errors import HpcflowError
    from hpcflow.requeue.install.ways import NAMES, installed_way

    settings = load_settings()
    codes: set[int] = set()
    is_gone = False
    for name in ways or NAMES:
        try:
            removed = installed_way(name, settings).uninstall()
        except HpcflowError as error:
            say_error(error)
            codes.add(error.exit_code)
            continue
        if removed is not None:
            is_gone = True
            click.echo(f"removed: {removed}")
    if not is_gone and not codes:
        click.echo("nothing is installed")
    return max(codes, default=0)
