"""Run one of Slurm's programs: with a clean environment, a time limit and no shell.

What the answers mean is known elsewhere: queries in parse_jobs.py and parse_cluster.py, submissions
in submit.py. Only what is the same for all is translated here: no such program, no answer.
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

#: What a shell may have set for Slurm's programs, or what a surrounding job has set. It changes
#: formats, partitions, accounts, and leaks into jobs even with ``--export=NONE``.
_SCRUBBED: Final = (
    "SLURM_", "SLURMD_", "SBATCH_", "SALLOC_", "SRUN_", "SQUEUE_", "SACCT_", "SACCTMGR_",
    "SCANCEL_", "SCONTROL_", "SINFO_", "SPANK_", "_SLURM_", "PMI_", "PMIX_", "PMI2_",
)  # fmt: skip
#: How the controller is found, and who we are: without these nothing works where they are used.
_KEPT: Final = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"})

#: What the command line sets for its own start to be quick. A job that runs in this environment may
#: want its plugins.
_OF_THE_CLI: Final = ("PYDANTIC_DISABLE_PLUGINS", "__all__")

#: For queries: times in UTC, whole array expressions, plain text.
FOR_QUERIES: Final = {
    "TZ": "UTC",
    "LC_ALL": "C.UTF-8",
    "SLURM_TIME_FORMAT": "standard",
    "SLURM_BITSTR_LEN": "0",
}

#: Seconds that a query may take. slurmctld's own MessageTimeout is 10 s, tried more than once.
QUERY_TIMEOUT_S: Final = 60.0


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` without what the surrounding shell or job says to Slurm's programs."""
    return {
        name: value
        for name, value in environment.items()
        if (name in _KEPT or not name.startswith(_SCRUBBED)) and (name, value) != _OF_THE_CLI
    }


@dataclass(frozen=True)
class Answer:
    """What a program said. ``exit_code`` is negative when a signal ended it, None when it was
    ended because it took longer than ``timeout_s``."""

    program: str
    exit_code: int | None
    stdout: str
    stderr: str
    timeout_s: float

    @property
    def complaint(self) -> str:
        """What it complained of, on one line, without ``sbatch: error:`` before every sentence."""
        if self.exit_code is None:
            return f"it did not answer within {self.timeout_s:g} s"
        lines = [strip_prefix(line, self.program) for line in self.stderr.splitlines()]
        text = "; ".join(dict.fromkeys(line for line in lines if line))
        if self.exit_code < 0:
            return f"ended by {_signal_name(-self.exit_code)}" + (f"; {text}" if text else "")
        return text or f"exit code {self.exit_code} without a word"


def strip_prefix(line: str, program: str) -> str:
    """``sbatch: error: Invalid …`` -> ``Invalid …``."""
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
    """Run a program that may create a job.

    It gets a session of its own, so that a Ctrl-C at the terminal does not cut it off half-way;
    and ``lock_fd``, so that the lock on it lives as long as the program does.

    Args:
        environment: which the job gets, too, unless it says otherwise; ours if None.
    """
    return _run(
        argv,
        environment=clean_environment(os.environ if environment is None else environment),
        timeout_s=timeout_s,
        cwd=cwd,
        pass_fds=() if lock_fd is None else (lock_fd,),
        umask=0o077,  # which Slurm makes the job's log with; the job script sets the program's
    )


def run_query(
    argv: Sequence[str], *, timeout_s: float = QUERY_TIMEOUT_S, cwd: Path | None = None
) -> Answer:
    """Run a program that asks, or that may safely be repeated."""
    environment = {**clean_environment(os.environ), **FOR_QUERIES}
    return _run(argv, environment=environment, timeout_s=timeout_s, cwd=cwd)


def ask(argv: Sequence[str], *, timeout_s: float = QUERY_TIMEOUT_S) -> str:
    """The standard output of a query.

    Raises:
        SchedulerUnavailable: it failed; nothing is known.
    """
    answer = run_query(argv, timeout_s=timeout_s)
    if answer.exit_code != 0:
        raise unavailable(answer)
    return answer.stdout


def unavailable(answer: Answer) -> SchedulerUnavailable:
    """The error for a program that did not get its answer from Slurm."""
    return SchedulerUnavailable(
        f"{answer.program} got no answer: {answer.complaint}",
        next_action="Slurm must answer again first; then try once more",
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
            next_action="log in to the cluster, load its Slurm module, or use `--site local`",
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
    except OSError as error:  # nothing was executed: no memory, no more processes, a broken program
        raise SchedulerUnavailable(
            f"{program} cannot be started: {error.strerror or error}",
            next_action=f"try `{program} --version` on this machine, then once more",
        ) from error
    return Answer(program, done.exit_code, done.stdout, done.stderr, timeout_s)
