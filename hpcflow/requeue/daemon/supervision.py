"""Check whether a daemon supervises the runs of this home, and which runs need one.

Commands that show runs use this, and `hpcflow daemon status`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import cache
from typing import TYPE_CHECKING, Final

from hpcflow.errors import HpcflowError, shell_word
from hpcflow.model.next_action import AWAIT_STANDBY, HELD, STOP
from hpcflow.model.state import RunState
from hpcflow.runtime.reading import read_object
from hpcflow.settings import Settings
from hpcflow.sites.schema import Site
from hpcflow.sites.slurm_conf import configured_name
from hpcflow.storage.layout import RunDir

if TYPE_CHECKING:
    from hpcflow.ledger.lease import Lease
    from hpcflow.model.views import RunView

#: Cron runs a round every minute, scrontab every five minutes plus the time pending.
ROUNDS_WITHIN: Final = timedelta(minutes=15)
_NO_RESUBMISSION: Final = "so no run is resubmitted after a preemption or a failure"
_TO_BE_SENT: Final = (RunState.CREATED, RunState.WAITING)
#: Next actions of a run that needs no daemon for now.
_NEEDS_NONE: Final = (STOP, HELD, AWAIT_STANDBY)


@dataclass(frozen=True)
class Supervision:
    """What supervises the runs of this home on this cluster.

    Attributes:
        lease: of the last daemon; None if there never was one.
        has_died: whether its process certainly no longer exists.
        is_alive: whether a daemon holds the lease now.
        has_rounds: whether a daemon is alive, or single rounds run, as by cron.
    """

    lease: Lease | None
    has_died: bool
    is_alive: bool
    has_rounds: bool


def supervision(settings: Settings, now: datetime) -> Supervision:
    """Return what supervises the runs of this home."""
    from hpcflow.requeue.daemon.home_lease import (
        look,  # submissions that need no daemon import none of it
    )

    lease = look(settings)
    has_died = lease is not None and _has_died(lease)
    is_alive = lease is not None and lease.is_alive(now) and not has_died
    return Supervision(
        lease,
        has_died,
        is_alive,
        is_alive or _makes_rounds(lease, settings, now),
    )


def unsupervised(
    runs: Iterable[RunView],
    settings: Settings,
    now: datetime,
    find_site: Callable[[str], Site],
) -> frozenset[str]:
    """Return the ids of this home's runs on this cluster that need a daemon and have none."""
    from hpcflow.storage.own_runs import OwnRuns
    from hpcflow.storage.runs import is_gone

    open_runs = [run for run in runs if not run.state.is_final and run.user == settings.user]
    if not open_runs or supervision(settings, now).has_rounds:
        return frozenset()
    own, site_named = OwnRuns(settings.home), cache(find_site)
    found = set()
    for run in open_runs:
        # A missing or damaged site file or run directory is reported elsewhere.
        with suppress(HpcflowError, OSError, ValueError, LookupError, TypeError, AttributeError):
            run_dir = settings.home.run_dir(run.run_dir)
            if own.has(run.run_id, run.run_dir) and not is_gone(run_dir):
                site, times = site_named(run.site), _resubmissions(run_dir)
                if needs_daemon(site, run.partition, times, settings, run.state, run.next_action):
                    found.add(run.run_id)
    return frozenset(found)


def _resubmissions(run_dir: RunDir) -> int | None:
    """Return ``retry.preemptions`` of a run, without the config model: it is slow to import."""
    found: int | None = read_object(run_dir.run_json)["spec"].get("retry", {}).get("preemptions")
    return found


def needs_daemon(
    site: Site,
    partition: str,
    resubmissions: int | None,
    settings: Settings,
    state: RunState = RunState.QUEUED,
    next_action: str | None = None,
) -> bool:
    """Return whether a run needs a daemon: to be submitted now, or after a preemption.

    Args:
        resubmissions: ``retry.preemptions``; None for no limit.
    """
    here = configured_name(settings.environ)
    if here and site.cluster_name and here.lower() != site.cluster_name.lower():
        return False
    if next_action in _NEEDS_NONE:
        return False
    options = site.partitions.get(partition)
    return state in _TO_BE_SENT or (
        options is not None and options.preemptible and resubmissions != 0
    )


def warning(settings: Settings) -> str:
    """Return the warning for runs that need a daemon and have none, with the command to type."""
    from hpcflow.requeue.daemon.home_lease import look
    from hpcflow.requeue.install.place import place_of

    installed = _installed(settings)
    if not installed:
        return (
            f"no daemon supervises your runs, {_NO_RESUBMISSION}"
            " → install one: hpcflow daemon install"
        )
    lease = look(settings)
    since = f"since {lease.renewed_at:%Y-%m-%d %H:%M} UTC" if lease is not None else "yet"
    log = place_of(settings).log
    see_log = f"tail {shell_word(log)}; " if log.exists() else ""
    return (
        f"the daemon is installed ({', '.join(installed)}) and has run no round {since}, "
        f"{_NO_RESUBMISSION} → see why: {see_log}hpcflow daemon status"
    )


def _has_died(lease: Lease) -> bool:
    """Return whether the process certainly no longer exists; unknown on another host."""
    if lease.host != socket.gethostname():
        return False
    try:
        os.kill(lease.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _makes_rounds(lease: Lease | None, settings: Settings, now: datetime) -> bool:
    """Return whether single rounds run: by something installed here, or on another host, such as a
    login node with its own crontab. Rounds by hand on this host do not count."""
    # A loop renews its lease in its second round.
    round_at = lease.renewed_at if lease and lease.renewed_at == lease.acquired_at else None
    if lease is not None and lease.host != socket.gethostname() and _is_recent(round_at, now):
        return True
    is_recent = _is_recent(round_at, now) or _is_recent(_installed_at(settings), now)
    return is_recent and bool(_installed(settings))


def _is_recent(moment: datetime | None, now: datetime) -> bool:
    return moment is not None and abs(now - moment) < ROUNDS_WITHIN


def _installed_at(settings: Settings) -> datetime | None:
    """Return the log's time: of the installation, or of the last message of a round."""
    from hpcflow.requeue.install.place import place_of

    with suppress(HpcflowError, OSError, ValueError):
        written_at = place_of(settings).log.stat().st_mtime
        return datetime.fromtimestamp(written_at, tz=timezone.utc)
    return None


def _installed(settings: Settings) -> list[str]:
    from hpcflow.requeue.install.ways import look_around

    return [what for what in look_around(settings).values() if isinstance(what, str)]
