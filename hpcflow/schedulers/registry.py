"""Create the scheduler of a site. This module imports only the scheduler that it needs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from hpcflow.clock import Clock
from hpcflow.schedulers.base import Scheduler
from hpcflow.sites.schema import SchedulerKind, Site


def connect(site: Site, *, clock: Clock, home: Path) -> Scheduler:
    """Return the scheduler of ``site``, without a query.

    If pyslurm is installed and works, it answers the queries; see
    :mod:`hpcflow.schedulers.slurm.pyslurm`.

    Args:
        home: HPCFLOW_HOME, which holds the jobs of the local scheduler.
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
