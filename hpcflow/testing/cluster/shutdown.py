"""Stop a cluster, and nothing else."""

from __future__ import annotations

from pathlib import Path

from hpcflow.testing.cluster import leftovers
from hpcflow.testing.cluster.daemon import Daemon
from hpcflow.testing.cluster.parts import Parts
from hpcflow.testing.cluster.postgres import Postgres
from hpcflow.testing.cluster.progress import Progress
from hpcflow.testing.cluster.s3 import S3
from hpcflow.testing.cluster.settings import Settings


def stop_slurm(folder: Path, progress: Progress) -> None:
    """Stop Slurm's daemons, its database and every job."""
    settings = Settings.load(folder)
    if settings is not None:
        for daemon in Parts(folder, settings).stopping():
            _stop(daemon, progress)
    leftovers.kill_slurm(folder)


def stop_everything(folder: Path, progress: Progress, *, keep: bool = True) -> None:
    """Stop everything that runs in this folder, Postgres and S3 too.

    Args:
        keep: whether Slurm's state is used again; else its daemons are killed, which is faster.
    """
    if keep:
        stop_slurm(folder, progress)
    for server in (Postgres(folder), S3(folder)):
        if server.home.exists():
            _stop(server.daemon, progress)
    leftovers.kill_everything(folder)
    leftovers.kill_everything(folder)  # what one of them had just started


def _stop(daemon: Daemon, progress: Progress) -> None:
    if daemon.is_running():
        with progress.step(f"stop {daemon.name}"):
            daemon.stop()
