"""The whole cluster, in one folder: start, stop, query and break it.

startup.py starts it, shutdown.py stops it.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from hpcflow.errors import HpcflowError, InputError
from hpcflow.testing.cluster import leftovers, machine, nodes, packages, shutdown, slurm, startup
from hpcflow.testing.cluster.accounting import USERS
from hpcflow.testing.cluster.daemon import Daemon
from hpcflow.testing.cluster.files import locked, make_directory, write_atomic
from hpcflow.testing.cluster.layouts import Size
from hpcflow.testing.cluster.parts import Parts
from hpcflow.testing.cluster.polling import poll
from hpcflow.testing.cluster.postgres import Postgres
from hpcflow.testing.cluster.progress import Progress
from hpcflow.testing.cluster.s3 import S3
from hpcflow.testing.cluster.settings import (
    Settings,
    cluster_directory,
    purge_mark,
    require_own_folder,
)
from hpcflow.testing.cluster.software import Software, refresh
from hpcflow.testing.cluster.users import User


class Cluster:
    """A Slurm cluster on this machine; :meth:`up` starts it."""

    def __init__(
        self, directory: str | Path | None = None, *, progress: Progress | None = None
    ) -> None:
        self.directory = cluster_directory(directory)
        self.progress = progress or Progress()

    def __repr__(self) -> str:
        return f"<cluster in {self.directory}>"

    # --- the whole -------------------------------------------------------------------------

    def up(
        self,
        size: Size | None = None,
        *,
        version: str | None = None,
        layout: str | None = None,
        deadline_s: float = 60,
    ) -> Cluster:
        """Start what does not run, and wait until every node takes jobs.

        This works in every state: without a cluster, with a running one, or after a kill. ``size``
        defaults to the last one; another one restarts Slurm. ``version`` is Slurm's, such as
        ``26.05``, for a new cluster; the default is the installed one. ``layout`` is a key of
        LAYOUTS, for a new cluster.
        """
        packages.require()
        require_own_folder(self.directory)
        began = time.monotonic()
        if purge_mark(self.directory).exists():
            with self._lock():
                self._delete()
        make_directory(self.directory)
        with self._lock():
            startup.bring_up(
                self.directory, size, self.progress, deadline_s, version=version, layout=layout
            )
        self.progress.say(f"cluster ready after {time.monotonic() - began:.1f} s")
        return self

    def down(self, *, purge: bool = False) -> None:
        """Stop everything that runs in this folder, jobs too.

        After the next :meth:`up`, pending jobs and accounting are still there; jobs that ran are
        lost with their nodes. ``purge`` also deletes the folder and its Unix users.
        """
        if self.directory.exists():
            require_own_folder(self.directory)
            with self._lock():
                shutdown.stop_everything(self.directory, self.progress, keep=not purge)
                machine.remove_host_names(self.directory)
                machine.remove_cgroups()
                if purge:
                    self._delete()
        if purge:
            machine.remove_users(USERS, self.directory)

    def wait_ready(self, deadline_s: float = 30) -> Cluster:
        """Wait until the controller answers and every node takes jobs."""
        nodes.wait_usable(self.directory, self.settings.node_names, deadline_s)
        return self

    def healthy(self) -> bool:
        """Return whether every daemon answers and every node takes jobs now."""
        settings = Settings.load(self.directory)
        if settings is None or not all(d.is_ready() for d in self.daemons().values()):
            return False
        return nodes.usable(self.directory) >= set(settings.node_names)

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
        return self._parts.munge

    @property
    def mariadb(self) -> Daemon:
        return self._parts.mariadb

    @property
    def slurmdbd(self) -> Daemon:
        return self._parts.slurmdbd

    @property
    def slurmctld(self) -> Daemon:
        return self._parts.slurmctld

    @property
    def slurmd(self) -> dict[str, Daemon]:
        return self._parts.slurmd

    def daemons(self) -> dict[str, Daemon]:
        """Return all of Slurm's daemons by name, in the order in which they start."""
        return {daemon.name: daemon for daemon in self._parts.all()}

    def postgres(self) -> Postgres:
        """Return the Postgres server of this folder, started if need be."""
        return Postgres(self.directory, progress=self.progress).start()

    def s3(self) -> S3:
        """Return the S3 server of this folder, started if need be."""
        return S3(self.directory, progress=self.progress).start()

    def user(self, name: str) -> User:
        """Return one of the ordinary users: ``hpcf-ada`` (physics) or ``hpcf-grace`` (biology)."""
        if name not in USERS:
            raise InputError(
                f"no user {name!r} in the cluster", next_action=f"one of: {list(USERS)}"
            )
        return User(self.directory, name, USERS[name])

    def software(self, tree: Path, python: Path | None = None) -> Software:
        """Install hpcflow from ``tree`` where every user can run it; fast if unchanged."""
        with self._lock(), self.progress.step("software for the users"):
            return refresh(tree, python or Path(sys.executable), self.directory / "software")

    # --- asking it -------------------------------------------------------------------------

    def env(self) -> dict[str, str]:
        found, path = slurm.environment(self.directory), os.environ.get("PATH", os.defpath)
        with_own = slurm.path_of(self.directory, path)
        return found if with_own == path else {**found, "PATH": with_own}

    def run(self, *argv: str, timeout_s: float = 30, check: bool = True) -> str:
        """Run a command as the operator (root); return its output."""
        return slurm.run(self.directory, *argv, timeout_s=timeout_s, check=check).stdout

    def node_states(self) -> dict[str, str]:
        """Return node name -> sinfo's state; empty if slurmctld does not answer."""
        return nodes.states(self.directory)

    def processes(self) -> list[str]:
        """Return the running daemons and jobs of this cluster, as ``pid program``."""
        return leftovers.find(self.directory)

    def wait_saved(self, deadline_s: float = 20) -> None:
        """Wait until slurmctld has written its jobs to disk after a change.

        It writes every five seconds. A killed slurmctld forgets jobs that were submitted since, and
        reuses their ids.
        """
        written, now = self.directory / "state/job_state", time.time()
        poll(
            lambda: written.exists() and written.stat().st_mtime > now, deadline_s, "no state saved"
        )

    # --- breaking it -----------------------------------------------------------------------

    @contextmanager
    def without(self, *names: str, kill: bool = False) -> Iterator[None]:
        """Stop (or kill) these daemons during the block, then start them again."""
        before = sorted(nodes.usable(self.directory))
        chosen = [self.daemons()[name] for name in names]
        for daemon in reversed(chosen):
            if kill:
                daemon.kill()
            else:
                daemon.stop()
        try:
            yield
        finally:
            for daemon in chosen:
                daemon.start().wait_ready()
            nodes.wait_usable(self.directory, before, 60)

    @contextmanager
    def configured(self, line: str) -> Iterator[None]:
        """Add a line to slurm.conf during the block.

        The file is replaced in one step: a newer slurmctld reads it after `scontrol reconfigure`
        has returned, and exits if it is empty.
        """
        conf = self.directory / "etc/slurm.conf"
        before = conf.read_text()
        write_atomic(conf, f"{before}{line}\n")
        try:
            self.run("scontrol", "reconfigure")
            yield
        finally:
            write_atomic(conf, before)
            self.run("scontrol", "reconfigure")

    def crash_node(self, name: str) -> None:
        """Kill a node with all its jobs, as in a power cut, and set it down in Slurm at once.

        By itself Slurm notices after SlurmdTimeout. :meth:`revive_node` starts it again.
        """
        self.slurmd[name].kill()
        leftovers.kill_node_jobs(self.directory, name)
        self.run("scontrol", "update", f"nodename={name}", "state=down", "reason=crashed")

    def revive_node(self, name: str) -> None:
        """Start a node's slurmd if need be, and wait until it takes jobs again."""
        self.slurmd[name].start().wait_ready()
        nodes.wait_usable(self.directory, [name], 60, revive=True)

    # ---------------------------------------------------------------------------------------

    def _delete(self) -> None:
        """Delete the folder, and its mark last, so that an interrupted deletion is continued."""
        mark = purge_mark(self.directory)
        mark.touch()
        for path in self.directory.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path != mark:
                path.unlink()
        shutil.rmtree(self.directory)

    @property
    def _parts(self) -> Parts:
        return Parts(self.directory, self.settings)

    def _lock(self) -> AbstractContextManager[None]:
        """Lock the folder for one ``up``, ``down`` or refresh at a time."""
        return locked(self.directory / "lock")
