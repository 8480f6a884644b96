"""Create the scheduler of a site. Only this module knows all of them; it imports one."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from hpcflow.clock import Clock
from hpcflow.schedulers.base import Scheduler
from hpcflow.sites.schema import SchedulerKind, Site


def connect(site: Site, *, clock: Clock, home: Path) -> Scheduler:
    """The scheduler of ``site``. Asks nobody anything yet.

    Where pyslurm is installed it is used, if it works, from the first question on; see
    :mod:`hpcflow.schedulers.slurm.pyslurm`.

    Args:
        home: HPCFLOW_HOME, where jobs of the local scheduler are remembered.
    """
    if site.scheduler is SchedulerKind.LOCAL:
        from hpcflow.schedulers.local import LocalScheduler

        return LocalScheduler(home)
    if importlib.util.find_spec("pyslurm") is not None:
        from hpcflow.schedulers.slurm.pyslurm import SlurmWithPyslurm

        return SlurmWithPyslurm(
            clock=clock, has_accounting=site.has_accounting, cluster_name=site.cluster_name
        )
    from hpcflow.schedulers.slurm.commands import SlurmCommands

    return SlurmCommands(
        clock=clock, has_accounting=site.has_accounting, cluster_name=site.cluster_name
    )
