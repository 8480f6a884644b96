"""Find the site, and connect to its scheduler; import only what that scheduler needs."""

from __future__ import annotations

import importlib.util
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hpcflow.clock import Clock
from hpcflow.errors import InputError, Where
from hpcflow.runtime.reading import read_object
from hpcflow.settings import Settings
from hpcflow.sites.loader import load_site, search_path
from hpcflow.sites.schema import SchedulerKind, Site
from hpcflow.storage.layout import Home

if TYPE_CHECKING:
    from hpcflow.schedulers.base import Scheduler


def resolve_site(settings: Settings, name: str | None, *, named_in: Where | None = None) -> Site:
    """Return the site that was named, is set in the settings, or is recognized from this machine.

    Args:
        named_in: where ``name`` is given, for errors.

    Raises:
        SiteError: there is no such site, or this machine's site is not recognized.
    """
    from hpcflow.sites.recognize import recognize

    search = search_path(settings.home.path)
    if name:
        return load_site(name, search=search, named_in=named_in)
    if settings.site:
        return load_site(settings.site, search=search, named_in=settings.site_named_in)
    return recognize(search)


def reference(site: Site, name: str | None) -> str:
    """Return the name or absolute path by which ``site``, given as ``name``, is found later."""
    return site.name if name in (None, site.name) else str(Path(str(name)).absolute())


def connect_scheduler(site: Site, settings: Settings, clock: Clock) -> Scheduler:
    """Return the scheduler of ``site``. Raise InputError if this machine has no sbatch."""
    from hpcflow.schedulers.arrays import show_tasks

    path = settings.environ.get("PATH")
    if site.scheduler is SchedulerKind.SLURM and shutil.which("sbatch", path=path) is None:
        raise InputError(
            f"site {site.name} is a Slurm cluster, and there is no sbatch on this machine's PATH",
            next_action="log in to the cluster, load its Slurm module, or use `--site local`",
        )
    found = connect(site, clock=clock, home=settings.home.path)
    if site.scheduler is not SchedulerKind.SLURM or not settings.home.sweeps.is_dir():
        return found
    return show_tasks(found, ArrayFiles(settings.home))


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
    from hpcflow.schedulers.slurm.commands import SlurmCommands

    slurm: type[SlurmCommands] = SlurmCommands
    if importlib.util.find_spec("pyslurm") is not None:
        from hpcflow.schedulers.slurm.pyslurm import SlurmWithPyslurm

        slurm = SlurmWithPyslurm
    return slurm(clock=clock, has_accounting=site.has_accounting, cluster_name=site.cluster_name)


class ArrayFiles:
    """Read the arrays of a home. Each file is read once; it never changes."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._read: dict[str, dict[str, list[str]]] = {}

    def __call__(self) -> dict[str, list[str]]:
        """Return array name -> job names of its attempts; skip files that cannot be read."""
        found: dict[str, list[str]] = {}
        for path in self._home.sweeps.glob("*/arrays/*.json"):
            name = str(path)
            if name not in self._read:
                with suppress(OSError, ValueError, KeyError, TypeError):
                    content = read_object(path)
                    self._read[name] = {str(content["name"]): [str(job) for job in content["jobs"]]}
            found |= self._read.get(name, {})
        return found
