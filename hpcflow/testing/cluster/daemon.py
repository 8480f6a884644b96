"""A background process of the cluster: start, recognize, await, stop and kill it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from hpcflow.errors import HpcflowError
from hpcflow.testing.cluster import processes
from hpcflow.testing.cluster.files import last_lines, make_directory, read_json, write_json
from hpcflow.testing.cluster.polling import DeadlinePassed, poll
from hpcflow.testing.cluster.processes import MARKER, Identity

_LAUNCH = ["/bin/bash", "-c", 'set -m; "$@" >&2 & echo $!', "launch"]
"""Start the arguments in the background, print the pid, and exit.

So the daemon is no child of this process, and leaves no zombie. Without ``set -m`` the shell lets
background processes ignore SIGINT, and slurmd would pass that on to every job.
"""

CLEAN_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": "/"}
"""Daemons get none of the caller's variables, because they pass them on to jobs."""


class Daemon:
    """A process that outlives its starter, recorded in ``<folder>/run/<name>.json``."""

    def __init__(
        self,
        folder: Path,
        name: str,
        argv: Sequence[str],
        *,
        ready: Callable[[], bool],
        env: Mapping[str, str] | None = None,
        user: tuple[int, int] | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
        stop_deadline_s: float = 20,
    ) -> None:
        self.name = name
        self.argv = list(argv)
        self.log = folder / "log" / f"{name}.log"
        self._folder = folder
        self._record = folder / "run" / f"{name}.json"
        self._mark = f"{folder}:{name}"
        self._ready = ready
        self._env = dict(env or {})
        self._user = user
        self._stop_signal = stop_signal
        self._stop_deadline_s = stop_deadline_s

    def __repr__(self) -> str:
        return f"<{self.name} {self.pid or 'stopped'}>"

    @property
    def pid(self) -> int | None:
        identity = self._identity()
        return identity.pid if identity else None

    def is_running(self) -> bool:
        """Return whether the process exists; it may not answer yet, see :meth:`is_ready`."""
        return self._identity() is not None

    def is_ready(self) -> bool:
        return self.is_running() and self._ready()

    def start(self) -> Daemon:
        """Start it unless it runs, without waiting; see :meth:`wait_ready`."""
        if self._identity() is None:
            self._spawn()
        return self

    def wait_ready(self, deadline_s: float = 30) -> Daemon:
        """Wait until it answers; report a daemon that died at once, with its log."""
        try:
            poll(self._ready_or_dead, deadline_s, "no answer")
        except DeadlinePassed as error:
            raise self._failure(f"does not answer after {deadline_s:g} s") from error
        return self

    def stop(self) -> None:
        """Stop it as its manual says, and wait for its end."""
        self._end(self._stop_signal, self._stop_deadline_s)

    def kill(self) -> None:
        """Send SIGKILL, to test what follows."""
        self._end(signal.SIGKILL, 10)

    def restart(self, deadline_s: float = 30) -> Daemon:
        self.stop()
        return self.start().wait_ready(deadline_s)

    def _identity(self) -> Identity | None:
        record = read_json(self._record)
        if record:
            identity = Identity(**record)
            if identity.alive():
                return identity
        return self._orphan()

    def _orphan(self) -> Identity | None:
        """Find a daemon that was never recorded, because its starter was killed.

        The arguments must match too: forked helpers (slurmscriptd, a Postgres backend) have the
        same marker and may outlive it for a moment.
        """
        for pid in processes.marked(self._mark):
            identity = Identity.of(pid)
            if identity is not None and processes.arguments(pid) == self.argv:
                self._remember(identity)
                return identity
        return None

    def _spawn(self) -> None:
        make_directory(self.log.parent)
        make_directory(self._record.parent)
        uid, gid = self._user or (None, None)
        with self.log.open("ab") as log:
            os.fchmod(log.fileno(), 0o644)
            launched = subprocess.run(
                [*_LAUNCH, *self.argv],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                check=True,
                cwd="/",
                env={**CLEAN_ENVIRONMENT, **self._env, MARKER: self._mark},
                user=uid,
                group=gid,
                extra_groups=[] if uid is not None else None,
                umask=0o022,
                start_new_session=True,
            )
        identity = Identity.of(int(launched.stdout))
        if identity is not None:
            self._remember(identity)

    def _remember(self, identity: Identity) -> None:
        make_directory(self._record.parent)
        write_json(self._record, asdict(identity))

    def _ready_or_dead(self) -> bool:
        if self._identity() is None:
            raise self._failure("ended by itself")
        return self._ready()

    def _failure(self, what: str) -> HpcflowError:
        return HpcflowError(
            f"{self.name} {what}; the end of its log, {self.log}:\n{last_lines(self.log)}",
            next_action="repair that, then: python -m hpcflow.testing.cluster up"
            f" --dir {self._folder}",
        )

    def _end(self, number: signal.Signals, deadline_s: float) -> None:
        for attempt, within_s in ((number, deadline_s), (signal.SIGKILL, 10)):
            identity = self._identity()
            if identity is None:
                break
            identity.send(attempt)
            self._wait_gone(identity, within_s)
        if self.is_running():
            raise self._failure("survived SIGKILL")
        self._record.unlink(missing_ok=True)

    def _wait_gone(self, identity: Identity, within_s: float) -> None:
        end = time.monotonic() + within_s
        while identity.alive() and time.monotonic() < end:
            time.sleep(0.02)
