"""What the submission of an attempt works with."""

from __future__ import annotations

from dataclasses import dataclass

from hpcflow.clock import Clock
from hpcflow.schedulers.base import Scheduler
from hpcflow.settings import Settings
from hpcflow.sites.schema import Site


@dataclass(frozen=True)
class LaunchContext:
    """The context of submissions to one site.

    Attributes:
        scheduler: of the site's cluster. The caller of a function without a check of its own has
            checked this.
    """

    settings: Settings
    site: Site
    scheduler: Scheduler
    clock: Clock
