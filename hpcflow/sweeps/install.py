"""The crontab entry that runs the rounds of sweeps until none is active.

:mod:`hpcflow.requeue.install` writes and finds such entries; ``rounds.py`` runs the rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Final

from hpcflow.errors import HpcflowError
from hpcflow.requeue.daemon.supervision import supervision
from hpcflow.requeue.install.cron import CRONTAB, Cron
from hpcflow.requeue.install.environment import daemon_environment
from hpcflow.requeue.install.place import DAEMON, Place, Rounds, place_of
from hpcflow.requeue.install.scrontab import DISABLED, SCRONTAB, Scrontab
from hpcflow.requeue.install.table import TableProgram, find_block, with_block
from hpcflow.requeue.install.ways import Way
from hpcflow.settings import Settings
from hpcflow.storage.sweeps import SweepDir
from hpcflow.sweeps.rounds import STARTED_BY, under_way
from hpcflow.sweeps.view import look

#: Names of the tables; see :mod:`hpcflow.requeue.install.ways`.
NAMES: Final = ("cron", "scrontab")
SWEEPS: Final = Rounds(
    "sweeps",
    ("sweep", "tick"),
    "hpcflow-sweeps",
    "-sweeps",
    "removed automatically when no sweep is active; remove now: hpcflow sweep uninstall",
)
_TABLES: Final = {
    "cron": replace(
        CRONTAB,
        otherwise="use another login node, or let the daemon run the rounds: "
        "hpcflow daemon install --help",
    ),
    "scrontab": replace(
        SCRONTAB,
        otherwise="scrontab is not available here; use cron: hpcflow sweep install",
    ),
}
_LOOK_TIMEOUT_S: Final = 5.0


def way_to_install(name: str, settings: Settings, options: Sequence[str]) -> Way:
    """Return the entry for the table ``name``, with the environment that a round needs.

    Raises:
        InputError: hpcflow would not start from there.
    """
    place = place_of(settings, SWEEPS)
    variables = {**daemon_environment(settings, place.command), STARTED_BY: name}
    if name == "scrontab":
        return Scrontab(place, variables, settings, options, _TABLES[name])
    return Cron(place, variables, settings.user, _TABLES[name])


def installed_way(name: str, settings: Settings) -> Way:
    """Return the entry of the table ``name``, to remove it."""
    place = place_of(settings, SWEEPS)
    if name == "scrontab":
        return Scrontab(place, {}, settings, (), _TABLES[name])
    return Cron(place, {}, settings.user, _TABLES[name])


def remove_own_line(settings: Settings, is_ours: Callable[[str], bool]) -> str | None:
    """Remove the entry that started this process, if no sweep needs it any more.

    A process that starts a sweep creates the sweep, then looks for the entry. This function removes
    the entry, then looks for sweeps again. So one of the two sees the other.

    Args:
        is_ours: whether the site of that name is this cluster.

    Returns:
        What was removed; None if no entry started this process, or the entry stays.
    """
    program = _TABLES.get(settings.environ.get(STARTED_BY, ""))
    if program is None or _is_needed(settings, is_ours):
        return None
    place = place_of(settings, SWEEPS)
    block = program.remove(place.block)
    if block is None:
        return None
    if _is_needed(settings, is_ours):
        lines = block.splitlines()[1:-1]
        program.change(lambda old: with_block(old, place.block, lines))
        return None
    return f"the line in the {program.name}"


def _is_needed(settings: Settings, is_ours: Callable[[str], bool]) -> bool:
    """Return whether a sweep may need another round; True if that cannot be read."""
    try:
        return any(_has_work(each, is_ours) for each in under_way(settings.home))
    except HpcflowError:
        return True


def _has_work(sweep_dir: SweepDir, is_ours: Callable[[str], bool]) -> bool:
    sweep, progress = look(sweep_dir)
    return not progress.is_at_rest and is_ours(sweep.site)


def has_rounds(settings: Settings, now: datetime) -> bool:
    """Return whether rounds run by themselves: a daemon runs, or an entry is installed.

    Never raises: what cannot be read counts as missing.
    """
    with suppress(HpcflowError):
        if supervision(settings, now).has_rounds:
            return True
    with suppress(HpcflowError):
        places = [place_of(settings, rounds) for rounds in (SWEEPS, DAEMON)]
        return any(_has_line(program, places) for program in _TABLES.values())
    return False


def _has_line(program: TableProgram, places: Sequence[Place]) -> bool:
    if not program.is_here:
        return False
    try:
        table = program.read(timeout_s=_LOOK_TIMEOUT_S)
        blocks = [find_block(table, place.block) for place in places]
    except HpcflowError:
        return False
    return any(block is not None and DISABLED not in block for block in blocks)
