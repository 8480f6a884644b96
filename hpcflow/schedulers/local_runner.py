"""``python -m hpcflow.schedulers.local_runner FOLDER``: run a job's script as slurmstepd would.

submitit's controller of the job starts this process. It starts the script, signals it before the
time limit, kills all processes of the job at the end, and records how the job ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hpcflow.clock import Clock, SystemClock
from hpcflow.errors import StorageError
from hpcflow.runtime.reading import read_file
from hpcflow.schedulers.local_jobs import JOB_ID_VARIABLE, JobFolder, carriers
from hpcflow.schedulers.slurm.units import parse_length_s

#: The original values of variables that the submission changed, as JSON.
RESTORE_VARIABLE: Final = "HPCFLOW_LOCAL_RESTORE"

#: Between SIGTERM and SIGKILL, as Slurm's KillWait.
_GRACE_S: Final = 30.0
_POLL_S: Final = 0.2
_DIRECTIVE: Final = re.compile(r"#SBATCH\s+--([a-z-]+)(?:=|\s+)(\S+)")
_SIGNAL: Final = re.compile(r"B:(?:SIG)?(\w+)@(\d+)")


@dataclass(frozen=True)
class Directives:
    """The ``#SBATCH`` options that the local scheduler obeys."""

    output: str = "out.log"
    time_limit_s: int | None = None
    notice_signal: signal.Signals | None = None
    notice_s: int = 0


def run_script(folder: str) -> None:
    Supervisor(JobFolder(Path(folder)), SystemClock()).run()


def read_directives(script: str) -> Directives:
    """Read ``--output``, ``--time`` and ``--signal=B:…`` from a script's first comment lines."""
    found: dict[str, str] = {}
    for line in script.splitlines():
        if line.strip() and not line.startswith("#"):
            break
        if match := _DIRECTIVE.match(line):
            found[match[1]] = match[2]
    notice = _SIGNAL.fullmatch(found.get("signal", ""))
    return Directives(
        output=found.get("output", "out.log"),
        time_limit_s=parse_length_s(found.get("time", "")),
        notice_signal=signal.Signals[f"SIG{notice[1]}"] if notice else None,
        notice_s=int(notice[2]) if notice else 0,
    )


def job_environment(environment: Mapping[str, str], job_id: str) -> dict[str, str]:
    """Return the script's environment: the submitter's variables and the job id.

    submitit's variables are removed, and PYTHONPATH gets its original value.
    """
    job = {
        name: value
        for name, value in environment.items()
        if name != RESTORE_VARIABLE and not name.startswith("SUBMITIT_")
    }
    for name, value in json.loads(environment.get(RESTORE_VARIABLE, "{}")).items():
        job.pop(name, None)
        if value is not None:
            job[name] = value
    return {**job, JOB_ID_VARIABLE: job_id}


class Supervisor:
    """One job, from its start to its end."""

    def __init__(self, folder: JobFolder, clock: Clock) -> None:
        self._folder = folder
        job = folder.job()
        if job is None:
            raise StorageError(f"job.json in {folder.path} is missing or damaged")
        self._job = job
        self._clock = clock
        self._got_sigterm = False

    def run(self) -> None:
        # A signal must not be ignored here: the script could not trap an ignored signal.
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGUSR2, lambda *_: None)  # the notice is for the script
        if self._folder.cancel.exists():
            self._end("CANCELLED", None)
            return
        self._folder.write_started(pid=os.getpid(), started_at=self._clock.now())
        directives = read_directives(read_file(self._job.script).decode(errors="replace"))
        script = self._start(directives)
        timed_out = self._watch(script, directives)
        self._signal_others(signal.SIGKILL)  # remaining processes, as Slurm does
        self._end(self._raw_state(script.returncode, timed_out=timed_out), script.returncode)

    def _raw_state(self, returncode: int, *, timed_out: bool) -> str:
        """Return Slurm's name of the end. SIGTERM without a cancel means a shutdown: PREEMPTED."""
        if timed_out:
            return "TIMEOUT"
        if self._folder.cancel.exists():
            return "CANCELLED"
        if self._got_sigterm:
            return "PREEMPTED"
        return "FAILED" if returncode else "COMPLETED"

    def _on_term(self, _number: int, _frame: object) -> None:
        self._got_sigterm = True

    def _start(self, directives: Directives) -> subprocess.Popen[bytes]:
        log = Path(self._job.directory, directives.output)
        with log.open("ab") as output:
            return subprocess.Popen(
                ["bash", self._job.script],
                cwd=self._job.directory,
                env=job_environment(os.environ, self._folder.job_id),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _watch(self, script: subprocess.Popen[bytes], directives: Directives) -> bool:
        """Wait for the end of the script; return whether the time limit ended it."""
        began = self._clock.monotonic()
        notice = directives.notice_signal
        kill_at: float | None = None
        timed_out = False
        while not _has_ended(script):
            elapsed_s = self._clock.monotonic() - began
            left_s = float("inf")
            if directives.time_limit_s is not None:
                left_s = directives.time_limit_s - elapsed_s
            if notice is not None and left_s <= directives.notice_s:
                script.send_signal(notice)
                notice = None
            is_stopping = self._got_sigterm or self._folder.cancel.exists()
            if kill_at is None and (left_s <= 0 or is_stopping):
                timed_out = not is_stopping
                self._signal_others(signal.SIGTERM)
                kill_at = elapsed_s + _GRACE_S
            if kill_at is not None and elapsed_s >= kill_at:
                self._signal_others(signal.SIGKILL)
        return timed_out

    def _signal_others(self, number: signal.Signals) -> None:
        """Signal every process of the job, except this one and submitit's."""
        for pid in carriers({self._job.mark})[self._job.mark]:
            if pid not in (os.getpid(), os.getppid()):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)

    def _end(self, raw_state: str, returncode: int | None) -> None:
        by_signal = returncode is not None and returncode < 0
        self._folder.write_ended(
            raw_state,
            exit_code=None if by_signal else returncode,
            signal=-returncode if by_signal and returncode is not None else None,
            ended_at=self._clock.now(),
        )


def _has_ended(script: subprocess.Popen[bytes]) -> bool:
    try:
        script.wait(timeout=_POLL_S)
    except subprocess.TimeoutExpired:
        return False
    return True


if __name__ == "__main__":
    run_script(*sys.argv[1:])
