"""Run one of Slurm's programs with a clean environment, a timeout and no shell.

Only errors that all programs share are handled here: a missing program, and no answer.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hpcflow.errors import SchedulerUnavailable
from hpcflow.programs import run_program

#: Variables that a shell or a surrounding job may have set. They change formats, partitions and
#: accounts, and leak into jobs even with ``--export=NONE``.
_SCRUBBED: Final = (
    "SLURM_", "SLURMD_", "SBATCH_", "SALLOC_", "SRUN_", "SQUEUE_", "SACCT_", "SACCTMGR_",
    "SCANCEL_", "SCONTROL_", "SINFO_", "SPANK_", "_SLURM_", "PMI_", "PMIX_", "PMI2_",
)  # fmt: skip
#: Needed to find the controller, and to authenticate, at sites that use them.
_KEPT: Final = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"})

#: The command line sets this to start faster. A job may need pydantic's plugins.
_OF_THE_CLI: Final = ("PYDANTIC_DISABLE_PLUGINS", "__all__")

#: For queries: times in UTC, whole array expressions, plain text.
FOR_QUERIES: Final = {
    "TZ": "UTC",
    "LC_ALL": "C.UTF-8",
    "SLURM_TIME_FORMAT": "standard",
    "SLURM_BITSTR_LEN": "0",
}

#: Timeout of a query. slurmctld's own MessageTimeout is 10 s, tried more than once.
QUERY_TIMEOUT_S: Final = 60.0


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return ``environment`` without variables that change the behaviour of Slurm's programs."""
    return {
        name: value
        for name, value in environment.items()
        if (name in _KEPT or not name.startswith(_SCRUBBED)) and (name, value) != _OF_THE_CLI
    }


@dataclass(frozen=True)
class Answer:
    """The output of a program.

    Attributes:
        exit_code: negative if a signal ended it, None after ``timeout_s``.
    """

    program: str
    exit_code: int | None
    stdout: str
    stderr: str
    timeout_s: float

    @property
    def complaint(self) -> str:
        """Return the errors on one line, without ``sbatch: error:`` before each."""
        if self.exit_code is None:
            return f"it did not answer within {self.timeout_s:g} s"
        lines = [strip_prefix(line, self.program) for line in self.stderr.splitlines()]
        text = "; ".join(dict.fromkeys(line for line in lines if line))
        if self.exit_code < 0:
            return f"ended by {_signal_name(-self.exit_code)}" + (f"; {text}" if text else "")
        return text or f"exit code {self.exit_code} without a message"


def strip_prefix(line: str, program: str) -> str:
    """Return ``Invalid …`` of ``sbatch: error: Invalid …``."""
    line = line.strip()
    for prefix in (f"{program}: ", "error: ", "fatal: "):
        line = line.removeprefix(prefix)
    return line.strip()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def run_submission(
    argv: Sequence[str],
    *,
    cwd: Path,
    timeout_s: float,
    lock_fd: int | None,
    environment: Mapping[str, str] | None = None,
) -> Answer:
    """Run a program that may create a job, in its own session, so that Ctrl-C does not stop it.

    Args:
        lock_fd: inherited, so that the lock is held as long as the program lives.
        environment: also of the job, unless its script says otherwise; ours if None.
    """
    return _run(
        argv,
        environment=clean_environment(os.environ if environment is None else environment),
        timeout_s=timeout_s,
        cwd=cwd,
        pass_fds=() if lock_fd is None else (lock_fd,),
        umask=0o077,  # for the log that Slurm makes; the job script sets the program's umask
    )


def run_query(
    argv: Sequence[str], *, timeout_s: float = QUERY_TIMEOUT_S, cwd: Path | None = None
) -> Answer:
    """Run a query, or another program that may safely be repeated."""
    environment = {**clean_environment(os.environ), **FOR_QUERIES}
    return _run(argv, environment=environment, timeout_s=timeout_s, cwd=cwd)


def ask(argv: Sequence[str], *, timeout_s: float = QUERY_TIMEOUT_S) -> str:
    """Return the standard output of a query. Raise SchedulerUnavailable if it fails."""
    answer = run_query(argv, timeout_s=timeout_s)
    if answer.exit_code != 0:
        raise unavailable(answer)
    return answer.stdout


def unavailable(answer: Answer) -> SchedulerUnavailable:
    """Return the error for a program that got no answer from Slurm."""
    return SchedulerUnavailable(
        f"{answer.program} got no answer: {answer.complaint}",
        next_action="try again when Slurm answers",
    )


def _run(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    timeout_s: float,
    cwd: Path | None = None,
    pass_fds: Sequence[int] = (),
    umask: int = -1,
) -> Answer:
    program = argv[0]
    path = shutil.which(program, path=environment.get("PATH"))
    if path is None:
        raise SchedulerUnavailable(
            f"no {program} on this machine",
            next_action="log in to the cluster, load its Slurm module, or type `--site local`",
        )
    try:
        done = run_program(
            [path, *argv[1:]],
            environment=environment,
            timeout_s=timeout_s,
            cwd=cwd,
            pass_fds=pass_fds,
            umask=umask,
        )
    except OSError as error:  # nothing ran: no memory, no more processes, a broken program
        raise SchedulerUnavailable(
            f"{program} cannot be started: {error.strerror or error}",
            next_action=f"try `{program} --version` on this machine, then try again",
        ) from error
    return Answer(program, done.exit_code, done.stdout, done.stderr, timeout_s)
