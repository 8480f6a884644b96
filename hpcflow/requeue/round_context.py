"""What a round of the daemon works with."""

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
    """This process may not act any more; the rest of the round is left to another one."""


@dataclass(frozen=True)
class RoundContext:
    """Everything that a tick works with.

    Attributes:
        connect: site name -> scheduler.
        find_site: site name -> site.
        may_act: asked before every act, under the lock of its run: whether this process still holds
            the lease, and is not told to end.
        start_restore: settings and run id -> nothing: fetches what is in the mirror alone, beside
            this process.
        host: whose clock it is.
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
        """The queues of the sites, through all rounds of this process."""
        return Queues(self.connect, self.clock)

    def require_lease(self) -> None:
        """Go on only if this process may act.

        Raises:
            LeaseLostError: it may not.
        """
        if not self.may_act():
            raise LeaseLostError
