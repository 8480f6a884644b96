"""Run the mirror beside the daemon, as a process of its own, so that a slow store delays no round.

There is at most one, at a low priority, and it exits with the daemon. Its errors go into the
daemon's log, once each. If the site names a partition for data transfer, a job there mirrors
instead.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Final

from hpcflow.clock import Clock
from hpcflow.errors import HpcflowError, SchedulerUnavailable
from hpcflow.mirror.survey import mirror_of_run
from hpcflow.resources import resource_dir
from hpcflow.schedulers.slurm.run_command import ask, run_submission
from hpcflow.settings import Settings
from hpcflow.sites.schema import Site
from hpcflow.storage.layout import RunDir
from hpcflow.storage.own_runs import is_others
from hpcflow.storage.rundir import read_run
from hpcflow.storage.runs import is_gone, linked, run_ids
from hpcflow.working_dir import own_python

#: The process id of the daemon, for the process that it starts.
OF_DAEMON: Final = "HPCFLOW_MIRROR_OF"
JOB_NAME: Final = "hpcflow-mirror"
#: Between the starts of two passes; and the least time from the end of one to the next.
_EVERY_S: Final = 60.0
_PAUSE_S: Final = 10.0
#: How often to check whether the job is in the queue.
_JOB_EVERY_S: Final = 600.0
#: How many new runs are checked in one round.
_NEW_RUNS: Final = 200
_ERROR_BYTES: Final = 4000
_END_S: Final = 5.0
#: No round waits longer. A job that was created all the same is found by its name.
_SLURM_TIMEOUT_S: Final = 20.0


class Mirroring:
    """Keep the mirror running while any run of the home has one.

    Args:
        say: receives the mirror's errors, repeated ones once.
        find_site: site name -> site as its file is now; None for this machine's site.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        say: Callable[[str], None],
        find_site: Callable[[str | None], Site],
    ) -> None:
        self._settings, self._clock, self._say = settings, clock, say
        self._find_site = find_site
        self._looked_at: set[str] = set()
        self._have_none: set[str] = set()
        self._mirrored: RunDir | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._began_s = self._next_s = clock.monotonic()
        self._last_text = ""

    def tend(self) -> None:
        """Start or check the mirror, after each round. This is fast."""
        if self._process is not None and not self._has_ended(self._process):
            return
        if self._clock.monotonic() < self._next_s or not self._is_wanted():
            return
        site = self._site()
        try:
            if site is not None and site.mirror is not None and site.mirror.partition is not None:
                self._tend_job(site.mirror.partition, site.default_account)
            else:
                self._start()
        except (HpcflowError, OSError) as error:
            self._next_s = self._clock.monotonic() + _JOB_EVERY_S
            self._warn_once(f"the mirror cannot be started: {error}")

    def close(self) -> None:
        """End the process, if there is one; the mirror can be ended at any time."""
        if self._process is not None:
            with suppress(OSError):
                self._process.terminate()
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._errors is not None:
            self._errors.close()

    def _is_wanted(self) -> bool:
        """Return whether any run has a mirror; runs without one are not read again."""
        if self._mirrored is None:
            ids = [each for each in run_ids(self._settings.home) if each not in self._looked_at]
            for run_dir in linked(self._settings.home, ids[:_NEW_RUNS]):
                self._looked_at.add(run_dir.path.name)
                if is_others(run_dir) or is_gone(run_dir):
                    continue
                if mirror_of_run(run_dir) is not None:
                    self._mirrored = run_dir
                    break
                self._have_none.add(run_dir.path.name)
            if len(ids) <= _NEW_RUNS:  # all read: unreadable runs are tried again
                self._looked_at = set(self._have_none)
        return self._mirrored is not None

    def _site(self) -> Site | None:
        """Return this machine's site, or the run's if that is unknown. Both are read anew: the site
        frozen with the run is old and may be another cluster's."""
        assert self._mirrored is not None
        with suppress(HpcflowError):
            return self._find_site(None)
        with suppress(HpcflowError):
            return self._find_site(read_run(self._mirrored).site)
        return None

    def _start(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - read when it has ended
        self._process = subprocess.Popen(
            own_python("hpcflow.cli.main", "mirror", "--once"),
            env={**self._settings.environ, OF_DAEMON: str(os.getpid())},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C reaches only the daemon, which ends this process
        )
        self._began_s = self._clock.monotonic()

    def _has_ended(self, process: subprocess.Popen[bytes]) -> bool:
        if process.poll() is None:
            return False
        self._next_s = max(self._began_s + _EVERY_S, self._clock.monotonic() + _PAUSE_S)
        self._process = None
        if self._errors is not None:
            with self._errors as file:
                file.seek(0)
                self._warn_once(file.read(_ERROR_BYTES).decode(errors="replace").strip())
        return True

    def _tend_job(self, partition: str, account: str | None) -> None:
        self._next_s = self._clock.monotonic() + _JOB_EVERY_S
        name = f"{JOB_NAME}{self._settings.mark}"
        found = ask(
            ["squeue", "--me", "--noheader", f"--name={name}", "--format=%i"],
            timeout_s=_SLURM_TIMEOUT_S,
        )
        if not found.strip():
            script = resource_dir("sbatch") / "mirror.sbatch"
            log = self._settings.home.daemon / "mirror.log"
            log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            options = [f"--job-name={name}", f"--partition={partition}", f"--output={log}"]
            options += [f"--account={account}"] if account is not None else []
            answer = run_submission(
                ["sbatch", "--parsable", *options, str(script)],
                cwd=self._settings.home.path,
                timeout_s=_SLURM_TIMEOUT_S,
                lock_fd=None,  # two jobs would do no harm: each run has a lock
                environment={**self._settings.environ, "HPCFLOW_PYTHON": sys.executable},
            )
            if answer.exit_code != 0:
                raise SchedulerUnavailable(f"sbatch: {answer.complaint}")

    def _warn_once(self, text: str) -> None:
        if text and text != self._last_text:
            self._say(f"mirror: {text}")
        self._last_text = text
