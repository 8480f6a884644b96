"""The whole cluster: bring it up, take it down, ask it, break it. One folder holds all of it."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hpcflow.errors import HpcflowError
from hpcflow.testing.cluster import leftovers, machine, mariadb, munge, packages, slurm
from hpcflow.testing.cluster.accounting import USERS, ensure_accounts
from hpcflow.testing.cluster.daemon import Daemon
from hpcflow.testing.cluster.files import make_directory
from hpcflow.testing.cluster.polling import DeadlinePassed, poll
from hpcflow.testing.cluster.ports import is_free
from hpcflow.testing.cluster.postgres import Postgres
from hpcflow.testing.cluster.progress import Progress
from hpcflow.testing.cluster.s3 import S3
from hpcflow.testing.cluster.settings import Ports, Settings, Size, cluster_directory
from hpcflow.testing.cluster.software import Software, refresh
from hpcflow.testing.cluster.users import User


class Cluster:
    """A Slurm cluster on this machine. Creating the object starts nothing; :meth:`up` does."""

    def __init__(
        self, directory: str | Path | None = None, *, progress: Progress | None = None
    ) -> None:
        self.directory = cluster_directory(directory)
        self.progress = progress or Progress()
        self._postgres: Postgres | None = None
        self._s3: S3 | None = None

    def __repr__(self) -> str:
        return f"<cluster in {self.directory}>"

    # --- the whole -------------------------------------------------------------------------

    def up(self, size: Size | None = None, *, deadline_s: float = 60) -> Cluster:
        """Start what does not run, and wait until every node takes jobs.

        May be called at any time: on nothing, on a running cluster, on one that was killed half-way.
        ``size`` defaults to what it was the last time.
        """
        packages.require()
        began = time.monotonic()
        make_directory(self.directory)
        with self._lock():
            settings = self._settle(size)
            self._prepare(settings)
            self._start(settings, deadline_s)
        self.progress.say(f"cluster ready after {time.monotonic() - began:.1f} s")
        return self

    def down(self, *, purge: bool = False) -> None:
        """Stop everything that runs in this folder, jobs too.

        Pending jobs and accounting are still there after the next :meth:`up`; jobs that ran are
        seen as lost with their node. ``purge`` also deletes the folder and the users made for it.
        """
        if self.directory.exists():
            with self._lock():
                self._stop_all()
                machine.remove_host_names(self.directory)
                if purge:
                    self._delete()
        if purge:
            machine.remove_users(USERS)

    def wait_ready(self, deadline_s: float = 30) -> Cluster:
        """Wait until the controller answers and every node can take jobs."""
        names = set(self.settings.size.node_names)
        last: dict[str, str] = {}

        def usable() -> bool:
            last.clear()
            last.update(slurm.node_states(self.directory))
            ready = {name for name, state in last.items() if state in slurm.USABLE_STATES}
            self._revive(last)
            return ready >= names

        poll(usable, deadline_s, lambda: f"nodes are {last or 'unknown: no slurmctld'}")
        return self

    def healthy(self) -> bool:
        """Whether every daemon answers and every node can take jobs, now."""
        if Settings.load(self.directory) is None:
            return False
        try:
            self.wait_ready(0)
        except DeadlinePassed:
            return False
        return all(daemon.is_ready() for daemon in self.daemons().values())

    # --- its parts -------------------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        """Size, ports and passwords."""
        settings = Settings.load(self.directory)
        if settings is None:
            raise HpcflowError(
                f"there is no cluster in {self.directory}",
                next_action=f"python -m hpcflow.testing.cluster up --dir {self.directory}",
            )
        return settings

    @property
    def munge(self) -> Daemon:
        """munged."""
        return munge.munge(self.directory)

    @property
    def mariadb(self) -> Daemon:
        """slurmdbd's database server."""
        return mariadb.mariadb(self.directory, self.settings)

    @property
    def slurmdbd(self) -> Daemon:
        """The accounting daemon."""
        return slurm.slurmdbd(self.directory, self.settings)

    @property
    def slurmctld(self) -> Daemon:
        """The controller."""
        return slurm.slurmctld(self.directory)

    @property
    def slurmd(self) -> dict[str, Daemon]:
        """Node name → its daemon."""
        settings = self.settings
        names = settings.size.node_names
        return {name: slurm.slurmd(self.directory, settings, name) for name in names}

    def daemons(self) -> dict[str, Daemon]:
        """All of Slurm's daemons by name, in the order in which they start."""
        first = [self.munge, self.mariadb, self.slurmdbd, self.slurmctld]
        return {daemon.name: daemon for daemon in [*first, *self.slurmd.values()]}

    def postgres(self) -> Postgres:
        """A Postgres server, started when first asked for."""
        if self._postgres is None:
            self._postgres = Postgres(self.directory, progress=self.progress)
        return self._postgres.start()

    def s3(self) -> S3:
        """An S3 server, started when first asked for."""
        if self._s3 is None:
            self._s3 = S3(self.directory, progress=self.progress)
        return self._s3.start()

    def user(self, name: str) -> User:
        """One of the two ordinary users: ``hpcf-ada`` (physics) or ``hpcf-grace`` (biology)."""
        if name not in USERS:
            raise HpcflowError(f"no user {name!r}; there are {', '.join(USERS)}")
        return User(self.directory, name, USERS[name])

    def software(self, tree: Path, python: Path) -> Software:
        """hpcflow as built from ``tree``, where every user can run it; quick when unchanged."""
        with self._lock(), self.progress.step("software for users"):
            return refresh(tree, python, self.directory / "software")

    def node_states(self) -> dict[str, str]:
        """Node name → its state as sinfo says it; empty when slurmctld does not answer."""
        return slurm.node_states(self.directory)

    def env(self) -> dict[str, str]:
        """What to export to use the cluster from a shell."""
        return slurm.environment(self.directory)

    def run(self, *argv: str, timeout_s: float = 30, check: bool = True) -> str:
        """What a command of the operator (root) prints: ``cluster.run("scontrol", "show", …)``."""
        return slurm.run(self.directory, *argv, timeout_s=timeout_s, check=check).stdout

    # --- breaking it -----------------------------------------------------------------------

    @contextmanager
    def without(self, *names: str, kill: bool = False) -> Iterator[None]:
        """Stop (or kill) these daemons for the length of the block, then bring them back."""
        chosen = [self.daemons()[name] for name in names]
        for daemon in reversed(chosen):
            daemon.kill() if kill else daemon.stop()
        try:
            yield
        finally:
            for daemon in chosen:
                daemon.start().wait_ready()
            self.wait_ready()

    def crash_node(self, name: str) -> None:
        """Let a node die with all its jobs, as in a power cut, and let Slurm know at once.

        By itself Slurm finds out after SlurmdTimeout. ``slurmd[name].start()`` brings it back.
        """
        self.slurmd[name].kill()
        leftovers.kill_node_jobs(self.directory, name)
        self.run("scontrol", "update", f"nodename={name}", "state=down", "reason=crashed")

    # --- steps -----------------------------------------------------------------------------

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """One ``up``, ``down`` or refresh at a time in this folder."""
        with (self.directory / "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _settle(self, size: Size | None) -> Settings:
        """The settings to start with; other than the last time when size or ports make it so."""
        old = Settings.load(self.directory)
        if old is None:
            wanted = size or Size()
            new = Settings(size=wanted, ports=Ports.choose(wanted.nodes))
        else:
            new = self._resettle(old, size or old.size)
        new.save(self.directory)
        return new

    def _resettle(self, old: Settings, size: Size) -> Settings:
        same_size = size == old.size
        if same_size and not self._taken_ports(old):
            return old
        self._stop_all()
        ports = old.ports
        renewed = Settings(size, ports, old.name, old.database_password)
        if size.nodes > old.size.nodes or self._taken_ports(renewed):
            ports = Ports.choose(size.nodes)
        return Settings(size, ports, old.name, old.database_password)

    def _taken_ports(self, settings: Settings) -> list[int]:
        """Ports that something else has taken while our daemon did not run."""
        ports = settings.ports
        wanted = {"slurmctld": ports.slurmctld, "slurmdbd": ports.slurmdbd, "mariadb": ports.mariadb}
        for index, node in enumerate(settings.size.node_names):
            wanted[f"slurmd.{node}"] = ports.slurmd + index
        daemons = {
            daemon.name: daemon
            for daemon in (
                slurm.slurmctld(self.directory),
                slurm.slurmdbd(self.directory, settings),
                mariadb.mariadb(self.directory, settings),
                *(slurm.slurmd(self.directory, settings, n) for n in settings.size.node_names),
            )
        }
        return [
            port
            for name, port in wanted.items()
            if not is_free(port) and not daemons[name].is_running()
        ]

    def _prepare(self, settings: Settings) -> None:
        with self.progress.step("users, host names, configuration"):
            for name, account in USERS.items():
                User(self.directory, name, account).ensure()
            machine.add_host_names(self.directory, settings.size.node_names)
            munge.prepare(self.directory)
            if slurm.write_files(self.directory, settings):
                for daemon in [self.slurmctld, *self.slurmd.values()]:
                    daemon.stop()
        with self.progress.step("MariaDB's data folder"):
            mariadb.prepare(self.directory, settings)

    def _start(self, settings: Settings, deadline_s: float) -> None:
        for daemon in (self.munge, self.mariadb, self.slurmdbd):
            self._ensure(daemon, deadline_s)
        with self.progress.step("accounts"):
            ensure_accounts(self.directory, settings)
        self._ensure(self.slurmctld, deadline_s)
        with self.progress.step(f"slurmd on {settings.size.nodes} nodes"):
            for daemon in self.slurmd.values():
                daemon.start()
            for daemon in self.slurmd.values():
                daemon.wait_ready(deadline_s)
        with self.progress.step("nodes ready"):
            self.wait_ready(deadline_s)

    def _ensure(self, daemon: Daemon, deadline_s: float) -> None:
        """Start a daemon and wait; one that ran already but does not answer is replaced."""
        with self.progress.step(daemon.name):
            ran = daemon.is_running()
            try:
                daemon.start().wait_ready(10 if ran else deadline_s)
            except HpcflowError:
                if not ran:
                    raise
                daemon.kill()
                daemon.start().wait_ready(deadline_s)

    def _revive(self, states: dict[str, str]) -> None:
        """Resume nodes that are down or drained although their slurmd runs."""
        bad = [name for name, state in states.items() if state.rstrip("*") in _STUCK]
        slurm.resume_nodes(self.directory, bad)

    def _stop_all(self) -> None:
        """The controller first: it must not see the nodes go and judge their jobs."""
        if Settings.load(self.directory) is not None:
            for daemon in self._stopping_order():
                with self.progress.step(f"stop {daemon.name}"):
                    daemon.stop()
        leftovers.kill_everything(self.directory)

    def _stopping_order(self) -> list[Daemon]:
        extra = [S3(self.directory).daemon, Postgres(self.directory).daemon]
        slurmds = list(self.slurmd.values())
        first = [self.slurmctld, *slurmds, self.slurmdbd, self.mariadb, self.munge]
        return [daemon for daemon in [*first, *extra] if daemon.is_running()]

    def _delete(self) -> None:
        shutil.rmtree(self.directory)
        if self.directory.exists():
            os.rmdir(self.directory)


_STUCK = {"down", "drained", "draining", "drain", "inval", "unknown", "error", "fail"}
