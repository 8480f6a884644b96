"""What a refresh works with: the ledger, the settings, the sites and their schedulers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcflow.clock import Clock
from hpcflow.ledger.store import Ledger
from hpcflow.settings import Settings

if TYPE_CHECKING:
    from hpcflow.schedulers.base import Scheduler
    from hpcflow.sites.schema import Site


@dataclass(frozen=True)
class RefreshContext:
    """The context of a refresh. Only the runs of the user of ``settings`` are queried.

    Attributes:
        connect: site name -> scheduler.
        find_site: site name -> site, for its prices.
    """

    ledger: Ledger
    settings: Settings
    clock: Clock
    connect: Callable[[str], Scheduler]
    find_site: Callable[[str], Site]
