"""The context of a round of the daemon, with the queues of the sites."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from hpcflow.clock import Clock
from hpcflow.errors import SchedulerUnavailable
from hpcflow.launch.context import LaunchContext
from hpcflow.reconcile.context import RefreshContext
from hpcflow.restore.process import start_restore
from hpcflow.schedulers.base import JobInfo, Scheduler
from hpcflow.settings import Settings
from hpcflow.sites.schema import Site

_FIRST_S: Final = 10.0
_MOST_S: Final = 60.0


@dataclass(frozen=True)
class _Silence:
    message: str
    next_action: str | None
    pause_s: float
    ends_at: float


class Queues:
    """Query the queues of all sites, with a backoff of 10 s to a minute if one does not answer.

    The backoff lasts as long as the process: a process for a single round always queries.

    Args:
        connect: site name -> scheduler.
    """

    def __init__(self, connect: Callable[[str], Scheduler], clock: Clock) -> None:
        self._connect, self._clock = connect, clock
        self._silences: dict[str, _Silence] = {}

    def ask(self, site: str) -> list[JobInfo]:
        """Return the jobs in a site's queue.

        Raises:
            SchedulerUnavailable: the site does not answer, or its backoff has not ended.
        """
        silence = self._silences.get(site)
        if silence is not None and self.is_silent(site):
            raise SchedulerUnavailable(silence.message, next_action=silence.next_action)
        try:
            jobs = self._connect(site).queue()
        except SchedulerUnavailable as error:
            pause_s = min(2 * silence.pause_s, _MOST_S) if silence is not None else _FIRST_S
            ends_at = self._clock.monotonic() + pause_s
            self._silences[site] = _Silence(error.message, error.next_action, pause_s, ends_at)
            raise
        self._silences.pop(site, None)
        return list(jobs)

    def is_silent(self, site: str) -> bool:
        silence = self._silences.get(site)
        return silence is not None and self._clock.monotonic() < silence.ends_at


class LeaseLostError(Exception):
    """This process must not act any more; another one does the rest of the round."""


@dataclass(frozen=True)
class RoundContext(RefreshContext):
    """The context of a round.

    Attributes:
        may_act: called before every action, under the run's lock: whether this process still holds
            the lease, and is not told to exit.
        start_restore: starts a process that restores a run from its mirror.
        host: the host of ``clock``.
    """

    may_act: Callable[[], bool] = lambda: True
    start_restore: Callable[[Settings, str], None] = start_restore
    host: str = field(default_factory=socket.gethostname)

    @cached_property
    def queues(self) -> Queues:
        """The queues of the sites, shared by all rounds of this process."""
        return Queues(self.connect, self.clock)

    def launch_context(self, site: Site, scheduler: Scheduler) -> LaunchContext:
        return LaunchContext(self.settings, site, scheduler, self.clock)

    def require_lease(self) -> None:
        """Raise LeaseLostError unless this process may act."""
        if not self.may_act():
            raise LeaseLostError
