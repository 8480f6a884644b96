"""Start a cluster: a new one, an incomplete one, or one with another size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hpcflow.errors import HpcflowError, InputError
from hpcflow.testing.cluster import machine, mariadb, munge, nodes, shutdown, slurm
from hpcflow.testing.cluster.accounting import USERS, ensure_accounts
from hpcflow.testing.cluster.daemon import Daemon
from hpcflow.testing.cluster.layouts import LAYOUTS, Size
from hpcflow.testing.cluster.parts import Parts
from hpcflow.testing.cluster.progress import Progress
from hpcflow.testing.cluster.releases import tree_of
from hpcflow.testing.cluster.settings import Ports, Settings
from hpcflow.testing.cluster.users import User

_HUNG_AFTER_S = 10
_PROGRAM = "python -m hpcflow.testing.cluster"


def bring_up(
    folder: Path,
    size: Size | None,
    progress: Progress,
    deadline_s: float,
    *,
    version: str | None = None,
    layout: str | None = None,
) -> None:
    """Start what does not run; each step does only what is missing."""
    settings = _settle(folder, size, version, layout, progress)
    parts = Parts(folder, settings)
    with progress.step("users, host names, configuration"):
        _prepare(parts)
    if settings.layout.has_accounting:
        with progress.step("MariaDB's data folder"):
            mariadb.prepare(folder, settings)
    for daemon in (parts.munge, *parts.accounting):
        _ensure(daemon, progress, deadline_s)
    if settings.layout.has_accounting:
        with progress.step("accounts"):
            ensure_accounts(folder, settings)
    _ensure(parts.slurmctld, progress, deadline_s)
    with progress.step(f"slurmd on {len(settings.node_names)} nodes"):
        for daemon in parts.slurmd.values():
            daemon.start()
        for daemon in parts.slurmd.values():
            daemon.wait_ready(deadline_s)
    with progress.step("nodes ready"):
        nodes.wait_usable(folder, settings.node_names, deadline_s, revive=True)


def _settle(
    folder: Path,
    size: Size | None,
    version: str | None,
    layout: str | None,
    progress: Progress,
) -> Settings:
    """Return the settings: the last ones, unless the size differs or a port is taken."""
    old = Settings.load(folder)
    if old is None:
        wanted = size or Size()
        if version is not None:
            tree_of(version)  # raises before anything is written
        if layout is not None and layout not in LAYOUTS:
            raise InputError(
                f"there is no layout {layout!r}", next_action=f"one of: {', '.join(LAYOUTS)}"
            )
        nodes = len(LAYOUTS[layout].nodes) if layout else wanted.nodes
        new = Settings(size=wanted, ports=Ports.choose(nodes), slurm=version, layout_name=layout)
    elif version not in (None, old.slurm):
        raise InputError(
            f"the cluster in {folder} runs Slurm {old.slurm or 'as installed here'}; version"
            f" {version} cannot use its database",
            next_action=f"choose another folder, or first: {_PROGRAM} destroy --dir {folder}",
        )
    elif layout not in (None, old.layout_name):
        raise InputError(
            f"the cluster in {folder} has another layout",
            next_action=f"choose another folder, or first: {_PROGRAM} destroy --dir {folder}",
        )
    else:
        new = _adapt(folder, old, size or old.size, progress)
    if new != old:
        new.save(folder)
    return new


def _adapt(folder: Path, old: Settings, size: Size, progress: Progress) -> Settings:
    if size == old.size and not Parts(folder, old).taken_ports():
        return old
    shutdown.stop_slurm(folder, progress)
    new = replace(old, size=size)
    if Parts(folder, new).taken_ports():
        new = replace(new, ports=Ports.choose(len(new.node_names)))
    return new


def _prepare(parts: Parts) -> None:
    folder = parts.folder
    for name, account in USERS.items():
        User(folder, name, account).ensure()
    machine.add_host_names(folder, parts.settings.node_names)
    munge.prepare(folder)
    if slurm.write_files(folder, parts.settings):
        for daemon in (parts.slurmctld, *parts.slurmd.values()):
            daemon.stop()


def _ensure(daemon: Daemon, progress: Progress, deadline_s: float) -> None:
    """Start a daemon and wait for it; restart it once if it does not answer.

    It may have hung for days; and slurmdbd can exit if its database has only just started.
    """
    with progress.step(daemon.name):
        ran = daemon.is_running()
        try:
            daemon.start().wait_ready(_HUNG_AFTER_S if ran else deadline_s)
        except HpcflowError:
            daemon.kill()
            daemon.start().wait_ready(deadline_s)
