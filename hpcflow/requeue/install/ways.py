"""The four ways to keep the daemon running, by name, and which are installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import ClassVar, Protocol

from hpcflow.errors import HpcflowError, InputError
from hpcflow.requeue.install.cron import CRONTAB, Cron
from hpcflow.requeue.install.environment import daemon_environment
from hpcflow.requeue.install.place import DAEMON, Place, Rounds, place_of
from hpcflow.requeue.install.scrontab import SCRONTAB, Scrontab
from hpcflow.requeue.install.slurm_job import SlurmJob
from hpcflow.requeue.install.systemd import Systemd
from hpcflow.requeue.install.table import block_names
from hpcflow.settings import Settings

#: In the order of preference; see docs/operations.md.
NAMES = ("systemd", "cron", "scrontab", "slurm")


class Way(Protocol):
    """One way. Creating it reads and writes nothing; methods raise HpcflowError on failure."""

    #: The option that selects it, without its dashes.
    name: ClassVar[str]

    def plan(self) -> str:
        """Return exactly what :meth:`install` would write, and where.

        Raises:
            InputError: it would not work here.
        """
        ...

    def require_allowed(self) -> None:
        """Check within seconds that the user may install it on this machine."""
        ...

    def install(self) -> str:
        """Install it, replacing an earlier installation; return notes for the user."""
        ...

    def uninstall(self) -> str | None:
        """Remove exactly what :meth:`install` wrote; return what that was, None if nothing."""
        ...

    def look(self) -> str | None:
        """Return within seconds what is installed, in a few words; None if nothing is."""
        ...


def way_to_install(name: str, settings: Settings, options: Sequence[str]) -> Way:
    """Return the way called ``name``, with the environment that the daemon needs.

    Raises:
        InputError: the daemon would not start there.
    """
    place = place_of(settings)
    return _way(name, place, settings, daemon_environment(settings, place.command), options)


def allowed_ways(settings: Settings) -> Iterator[str]:
    """Yield those of :data:`NAMES` that this machine allows.

    Raises:
        InputError: it allows none; gives the reason for each.
    """
    refused = []
    for name in NAMES:
        try:
            installed_way(name, settings).require_allowed()
        except HpcflowError as error:  # noqa: PERF203 - the next one may be allowed
            refused.append(f"--{name}: {error.message}")
        else:
            yield name
    if len(refused) == len(NAMES):
        raise InputError(
            "this machine allows no way to keep the daemon running: " + "; ".join(refused),
            next_action="try another login node, or start it in tmux: hpcflow daemon",
        )


def installed_way(name: str, settings: Settings) -> Way:
    """Return the way called ``name``, for ``look`` and ``uninstall`` only."""
    return _way(name, place_of(settings), settings, {}, ())


def look_around(settings: Settings) -> dict[str, str | HpcflowError]:
    """Return way -> what is installed, in a few words, or why this is unknown. Never fails."""
    found: dict[str, str | HpcflowError] = {}
    for name in NAMES:
        try:
            what = installed_way(name, settings).look()
        except HpcflowError as error:  # noqa: PERF203 - the others answer
            found[name] = error
        else:
            if what is not None:
                found[name] = what
    return found


def others_installed(settings: Settings) -> list[str]:
    """Return what is installed here for any cluster and home, in a few words each. Never fails."""
    place = place_of(settings)
    folder = Systemd(place, {}, settings.environ, settings.user).path.parent
    units = folder.glob("hpcflow-daemon-*.service")
    scripts = place.folder.glob("*.sbatch")
    return [*lines_installed(DAEMON), *sorted(map(str, units)), *sorted(map(str, scripts))]


def lines_installed(rounds: Rounds) -> list[str]:
    """Return the table entries for ``rounds`` of all clusters and homes. Never fails."""
    found: list[str] = []
    for program in (CRONTAB, SCRONTAB):
        if program.is_here:
            with suppress(HpcflowError):
                names = block_names(program.read(), rounds.what)
                found += [f"{name!r} in the {program.name}" for name in names]
    return found


def _way(
    name: str,
    place: Place,
    settings: Settings,
    variables: Mapping[str, str],
    options: Sequence[str],
) -> Way:
    if name == "cron":
        return Cron(place, variables, settings.user)
    if name == "scrontab":
        return Scrontab(place, variables, settings, options)
    if name == "systemd":
        return Systemd(place, variables, settings.environ, settings.user)
    return SlurmJob(place, variables, settings, sys.executable, options)
