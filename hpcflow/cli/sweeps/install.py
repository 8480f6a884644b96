"""``hpcflow sweep install`` and ``uninstall``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from hpcflow.cli.arguments import json_option
from hpcflow.cli.control.daemon_install import (
    Installed,
    Uninstalled,
    show_and_write,
    take_away,
    warn_about_others,
)
from hpcflow.cli.session import Session, warn
from hpcflow.errors import HpcflowError, InputError
from hpcflow.settings import load_settings
from hpcflow.terminal import echo

if TYPE_CHECKING:
    from hpcflow.sweeps.round import TickReport


@click.command("install", short_help="Let cron make the rounds of your sweeps.")
@click.option(
    "--scrontab",
    is_flag=True,
    help="Use Slurm's own crontab instead: one round every five minutes, as a job.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option(Installed)
@click.argument("sbatch_options", nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTION...]")
def install_command(
    scrontab: bool, yes: bool, as_json: bool, sbatch_options: tuple[str, ...]
) -> int:
    """Add a crontab line for one round of your sweeps a minute; show it and ask first.

    hpcflow removes the line when no sweep is active. If a daemon supervises your runs, you need no
    such line. hpcflow passes each OPTION to sbatch, for the jobs of --scrontab, such as
    `-- --partition=serial`.
    """
    if sbatch_options and not scrontab:
        raise InputError(
            "cron submits no job, so it takes no options of sbatch",
            next_action="hpcflow sweep install",
        )
    from hpcflow.sweeps.install import way_to_install
    from hpcflow.sweeps.rounds import under_way

    settings = load_settings()
    way = way_to_install("scrontab" if scrontab else "cron", settings, sbatch_options)
    code = show_and_write(way, yes=yes, as_json=as_json, look="hpcflow sweep ls")
    if code == 0 and not under_way(settings.home):
        warn("no sweep is active: start one now, or the first round removes the line")
    return code


@click.command("uninstall", short_help="Remove what `install` wrote.")
@json_option(Uninstalled)
def uninstall_command(as_json: bool) -> int:
    """Remove what `hpcflow sweep install` wrote, and nothing else.

    Active sweeps then need `hpcflow sweep tick` or a daemon.
    """
    from hpcflow.requeue.install.ways import lines_installed
    from hpcflow.sweeps.install import NAMES, SWEEPS, installed_way

    settings = load_settings()
    return take_away(
        NAMES,
        lambda name: installed_way(name, settings),
        is_named=False,
        as_json=as_json,
        on_nothing=lambda: warn_about_others(lines_installed(SWEEPS), settings.home.path),
    )


def remove_own_line(session: Session, reports: Sequence[TickReport] = ()) -> None:
    """Remove the crontab line that started this round, if it is not needed; warn on errors.

    Messages go to stderr, so that scripts can read stdout.

    Args:
        reports: of the round; if one is of an active sweep, the line stays.
    """
    from hpcflow.sweeps.rounds import STARTED_BY

    is_by_hand = not session.settings.environ.get(STARTED_BY)
    if is_by_hand or any(report.state in ("running", "stopping") for report in reports):
        return
    from hpcflow.schedulers.clusters import other_cluster
    from hpcflow.sweeps.install import remove_own_line as remove

    def is_ours(site_name: str) -> bool:
        return not other_cluster(session.site(site_name), session.scheduler(site_name))

    try:
        what = remove(session.settings, is_ours)
    except HpcflowError as error:
        warn(error.message)
        return
    if what is not None:
        now = f"{session.clock.now():%Y-%m-%d %H:%M:%S}"
        echo(f"{now}  no sweep is active: {what} is removed", err=True)


def hint(session: Session) -> str | None:
    """Return the command that starts the rounds; None if something drives them already."""
    from hpcflow.sweeps.install import has_rounds

    if has_rounds(session.settings, session.clock.now()):
        return None
    return "hpcflow sweep install, or hpcflow daemon"
