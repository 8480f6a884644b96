"""The context of a round of the daemon."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from hpcflow.clock import Clock
from hpcflow.ledger.store import Ledger
from hpcflow.requeue.queues import Queues
from hpcflow.restore.process import start_restore
from hpcflow.schedulers.base import Scheduler
from hpcflow.settings import Settings
from hpcflow.sites.schema import Site


class LeaseLostError(Exception):
    """This process must not act any more; another one does the rest of the round."""


@dataclass(frozen=True)
class RoundContext:
    """The context of a round.

    Attributes:
        connect: site name -> scheduler.
        find_site: site name -> site.
        may_act: called before every action, under the run's lock: whether this process still holds
            the lease, and is not told to exit.
        start_restore: starts a process that restores a run from its mirror.
        host: the host of ``clock``.
    """

    ledger: Ledger
    settings: Settings
    clock: Clock
    connect: Callable[[str], Scheduler]
    find_site: Callable[[str], Site]
    may_act: Callable[[], bool] = lambda: True
    start_restore: Callable[[Settings, str], None] = start_restore
    host: str = field(default_factory=socket.gethostname)

    @cached_property
    def queues(self) -> Queues:
        """The queues of the sites, shared by all rounds of this process."""
        return Queues(self.connect, self.clock)

    def require_lease(self) -> None:
        """Raise LeaseLostError unless this process may act."""
        if not self.may_act():
            raise LeaseLostError
