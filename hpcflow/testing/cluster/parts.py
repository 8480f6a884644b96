"""The daemons of one cluster, from its settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hpcflow.testing.cluster import mariadb, munge, slurm
from hpcflow.testing.cluster.daemon import Daemon
from hpcflow.testing.cluster.ports import is_free
from hpcflow.testing.cluster.settings import Settings


@dataclass(frozen=True)
class Parts:
    """All daemons of Slurm, without Postgres and S3, which are independent."""

    folder: Path
    settings: Settings

    @property
    def munge(self) -> Daemon:
        return munge.munge(self.folder)

    @property
    def mariadb(self) -> Daemon:
        return mariadb.mariadb(self.folder, self.settings)

    @property
    def slurmdbd(self) -> Daemon:
        return slurm.slurmdbd(self.folder, self.settings)

    @property
    def slurmctld(self) -> Daemon:
        return slurm.slurmctld(self.folder)

    @property
    def slurmd(self) -> dict[str, Daemon]:
        names = self.settings.node_names
        return {name: slurm.slurmd(self.folder, self.settings, name) for name in names}

    def all(self) -> list[Daemon]:
        """Return all daemons in the order in which they start."""
        return [self.munge, *self.accounting, self.slurmctld, *self.slurmd.values()]

    @property
    def accounting(self) -> list[Daemon]:
        """The database server and slurmdbd; none without accounting."""
        return [self.mariadb, self.slurmdbd] if self.settings.layout.has_accounting else []

    def stopping(self) -> list[Daemon]:
        """Return all daemons in the order in which they stop: the controller first, so that it does
        not see its nodes go and end their jobs."""
        nodes = self.slurmd.values()
        return [self.slurmctld, *nodes, *reversed(self.accounting), self.munge]

    def taken_ports(self) -> list[int]:
        """Return the ports that another process took while the daemon did not run."""
        ports = self.settings.ports
        wanted = {
            ports.slurmctld: self.slurmctld,
            ports.slurmdbd: self.slurmdbd,
            ports.mariadb: self.mariadb,
            **{ports.slurmd + i: daemon for i, daemon in enumerate(self.slurmd.values())},
        }
        return [p for p, daemon in wanted.items() if not is_free(p) and not daemon.is_running()]
