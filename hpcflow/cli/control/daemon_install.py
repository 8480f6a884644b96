"""``hpcflow daemon install`` and ``uninstall``.

``sweeps/install.py`` also uses its functions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict

import click

from hpcflow.cli.arguments import json_option, more_in
from hpcflow.cli.output import ErrorJson, error_json, print_error, print_json
from hpcflow.cli.session import warn
from hpcflow.errors import HpcflowError, InputError
from hpcflow.settings import Settings, load_settings
from hpcflow.terminal import ask, echo, echo_lines, safe

if TYPE_CHECKING:
    from hpcflow.requeue.install.ways import Way


class Installed(TypedDict):
    """What was written, and a note for the user."""

    way: str
    written: str
    note: str


class Uninstalled(TypedDict):
    """What was removed; the keys are ways to install."""

    removed: dict[str, str]
    errors: dict[str, ErrorJson]


#: Way -> what `install` writes.
_INSTALLS: Final = {
    "cron": "A line in your crontab: one round every minute.",
    "scrontab": "An entry in Slurm's own crontab: one round every five minutes, as a job.",
    "systemd": "A unit of your own systemd, which runs all the time.",
    "slurm": "A small job that runs all the time and submits its own successor.",
}
#: Way -> what `uninstall` removes.
_REMOVES: Final = {
    "cron": "Remove the line from your crontab.",
    "scrontab": "Remove the entry from Slurm's own crontab.",
    "systemd": "Remove your systemd unit.",
    "slurm": "Cancel the daemon's jobs.",
}


def _choice(texts: dict[str, str]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add an option for each way, with its help text."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for name, text in reversed(texts.items()):
            function = click.option(f"--{name}", is_flag=True, help=text)(function)
        return function

    return add


@click.command(
    "install",
    short_help="Keep the daemon running while you are logged out.",
    epilog=more_in("operations"),
)
@_choice(_INSTALLS)
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option(Installed)
@click.argument("sbatch_options", nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTION...]")
def install_command(
    yes: bool, as_json: bool, sbatch_options: tuple[str, ...], **chosen: bool
) -> int:
    """Keep the daemon running while you are logged out: show what will be written, ask, write it.

    Without an option, it tries --systemd (if lingering is enabled for you), --cron, --scrontab and
    --slurm in this order. It passes each OPTION to sbatch, for the jobs of --scrontab and --slurm,
    such as `-- --partition=serial --account=physics`.
    """
    ways = [name for name, is_chosen in chosen.items() if is_chosen]
    if len(ways) > 1:
        raise InputError(
            "more than one way is given",
            next_action="give one, such as: hpcflow daemon install --cron",
        )
    way = way_named(ways[0] if ways else None, load_settings(), sbatch_options)
    return show_and_write(way, yes=yes, as_json=as_json, look="hpcflow daemon status")


def way_named(name: str | None, settings: Settings, sbatch_options: Sequence[str]) -> Way:
    """Return the way of that name; without a name, the first that this machine allows.

    Raises:
        InputError: none is allowed, the daemon would not start, or the way submits no job and so
            takes no options of sbatch.
    """
    from hpcflow.requeue.install.ways import allowed_ways, way_to_install

    name = name or next(allowed_ways(settings))
    if sbatch_options and name not in ("scrontab", "slurm"):
        raise InputError(
            f"--{name} submits no job, so it takes no options of sbatch",
            next_action=f"hpcflow daemon install --{name}",
        )
    return way_to_install(name, settings, sbatch_options)


def show_and_write(way: Way, *, yes: bool, as_json: bool, look: str) -> int:
    """Show what would be written, ask, and write it; return the exit code.

    Args:
        look: the command to type afterwards.

    Raises:
        InputError: it would not work here, or stdin is not a terminal to ask on.
        HpcflowError: it was not written.
    """
    plan = way.plan()
    if not as_json:
        echo_lines(f"This will be written: {plan}")
    if not yes:
        if as_json or not sys.stdin.isatty():
            raise InputError(
                "nothing was written: stdin is not a terminal, so the command cannot ask",
                next_action="add --yes",
            )
        if not ask("Write it?"):
            echo("nothing was written")
            return 1
    note = way.install()
    if as_json:
        print_json(Installed(way=way.name, written=plan, note=note))
    else:
        echo_lines(f"installed; {note}\nsee: {look}")
    return 0


@click.command("uninstall", short_help="Remove what `install` wrote.")
@_choice(_REMOVES)
@json_option(Uninstalled)
def uninstall_command(as_json: bool, **chosen: bool) -> int:
    """Remove what `hpcflow daemon install` wrote, and nothing else.

    Without an option, remove all of it.
    """
    from hpcflow.requeue.install.ways import NAMES, installed_way, others_installed

    settings = load_settings()
    named = [name for name, is_chosen in chosen.items() if is_chosen]
    return take_away(
        named or NAMES,
        lambda name: installed_way(name, settings),
        is_named=bool(named),
        as_json=as_json,
        on_nothing=lambda: warn_about_others(others_installed(settings), settings.home.path),
    )


def take_away(
    names: Iterable[str],
    way_of: Callable[[str], Way],
    *,
    is_named: bool,
    as_json: bool,
    on_nothing: Callable[[], None],
) -> int:
    """Remove what is installed of these ways, and print it; return the exit code.

    Args:
        is_named: whether the user named these ways.
        on_nothing: called if nothing was installed.
    """
    from hpcflow.requeue.install.slurm_job import DaemonJobsUnknownError
    from hpcflow.requeue.install.table import NotAllowedError

    removed: dict[str, str] = {}
    errors: dict[str, HpcflowError] = {}
    for name in names:
        try:
            what = way_of(name).uninstall()
        except NotAllowedError as error:  # noqa: PERF203 - the others go
            if is_named:
                errors[name] = error
            else:  # normal on a site that does not offer it
                warn(error.message)
        except HpcflowError as error:
            errors[name] = error
        else:
            if what is not None:
                removed[name] = what
    # If nothing was removed, the installed way may be one that cannot be checked now.
    failed = [
        error
        for error in errors.values()
        if is_named or not removed or not isinstance(error, DaemonJobsUnknownError)
    ]
    if as_json:
        failures = {name: error_json(error) for name, error in errors.items()}
        print_json(Uninstalled(removed=removed, errors=failures))
    else:
        for what in removed.values():
            echo(f"removed: {what}")
        for each in errors.values():
            if each in failed:
                print_error(each)
            else:
                warn(each.message)
        if not removed and not errors:
            on_nothing()
    return max((error.exit_code for error in failed), default=0)


def warn_about_others(others: list[str], home: Path) -> None:
    """Say that nothing is installed for this cluster and home; list what is for others."""
    if not others:
        echo("nothing is installed")
        return
    echo_lines(
        f"nothing is installed for this cluster with HPCFLOW_HOME={home}, but elsewhere:\n  "
        + "\n  ".join(map(safe, others))
        + "\nto remove one, set its SLURM_CONF and HPCFLOW_HOME, then repeat the command"
    )
