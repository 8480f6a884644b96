"""The daemon as a job: what ``sbatch/daemon.sbatch`` calls on the compute node.

One job runs, and at most one is pending until it ends (``singleton``). So the chain continues after
time limits, preemption and node failures. Two daemons at once would be harmless, because of the
lease. A child process submits the successor while the daemon works, and again whenever there is
none. If the job fails or has to exit before that, ``sbatch/daemon.sbatch`` submits it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from hpcflow.clock import Clock, SystemClock
from hpcflow.errors import HpcflowError, InputError
from hpcflow.model.secret import redact
from hpcflow.requeue.install.ledger_for_jobs import require_ledger_for_jobs
from hpcflow.requeue.install.slurm_job import daemon_jobs
from hpcflow.schedulers.slurm.allocation import Allocation, read_allocation
from hpcflow.schedulers.slurm.run_command import ask, run_submission
from hpcflow.schedulers.slurm.submit import job_from
from hpcflow.settings import load_settings
from hpcflow.terminal import echo, echo_message, safe
from hpcflow.working_dir import own_python

#: Tells a successor which job it follows.
AFTER: Final = "HPCFLOW_DAEMON_AFTER"
#: A daemon that fails at once must not fill the queue: at most one job a minute.
_EARLIEST: Final = "now+60"
_FIRST_DELAY_S: Final = 10.0
_LONGEST_DELAY_S: Final = 300.0
_LOOK_AGAIN_S: Final = 600.0
_SUBMIT_TIMEOUT_S: Final = 180.0
#: One look a second: Slurm's default KillWait is 30 s.
_MOST_LOOKS: Final = 30
_UNDER_WAY: Final = frozenset({"COMPLETING", "RUNNING"})
_STATE: Final = re.compile(r"\bJobState=(\w+)")


def was_cancelled(job_id: str, clock: Clock) -> bool:
    """Return whether a user cancelled this job; False if Slurm no longer knows.

    The job may still be completing when its successor starts; it is queried until its end is known.
    """
    for _ in range(_MOST_LOOKS):
        state = _state_of(job_id)
        if state not in _UNDER_WAY:
            return state == "CANCELLED"
        clock.sleep(1.0)
    return False


def _state_of(job_id: str) -> str:
    """Return Slurm's state of a job; empty if unknown."""
    state = ""
    with suppress(HpcflowError):
        found = _STATE.search(ask(["scontrol", "show", "job", job_id]))
        state = found[1] if found is not None else ""
    if state in ("", "COMPLETING"):
        # slurmctld forgets a job after some minutes; accounting does not, and it has the final
        # state while the job is still completing.
        argv = ["sacct", "--allocations", "--noheader", "--parsable2", "--format=State"]
        with suppress(HpcflowError):
            words = ask([*argv, f"--jobs={job_id}"]).split()
            state = words[0] if words else state
    return state


def successor_command(script: Path, allocation: Allocation, job_name: str) -> list[str]:
    """Return the sbatch command for the same job again, with its command line options."""
    given = {
        "partition": allocation.partition,
        "account": allocation.account,
        "qos": allocation.qos,
        "time": allocation.time_limit_min,
    }
    options = [f"--{name}={value}" for name, value in given.items() if value is not None]
    return [
        *("sbatch", "--parsable", f"--job-name={job_name}", f"--begin={_EARLIEST}"),
        *options,
        str(script),
    ]


@dataclass(frozen=True)
class SuccessorCheck:
    """The result of one look for the successor.

    Attributes:
        job_id: of the successor; None if none is known.
        kind: type of the error; repeats of one kind are logged once.
        text: for the log.
    """

    job_id: str | None
    kind: str
    text: str


def keep_successor(
    script: Path,
    environ: Mapping[str, str],
    clock: Clock,
    *,
    say: Callable[[str], None],
    is_needed: Callable[[], bool],
) -> None:
    """Keep one successor pending while this job runs.

    A successor may be cancelled, or lost when slurmctld crashes. So the queue is checked every ten
    minutes, and more often while there is none.
    """
    job_name = environ.get("SLURM_JOB_NAME") or "hpcflow-daemon"
    delay_s = _FIRST_DELAY_S
    before: SuccessorCheck | None = None
    while is_needed():
        check = _look(script, environ, job_name)
        if before is None or (before.job_id, before.kind) != (check.job_id, check.kind):
            say(check.text)
        before = check
        if check.job_id is not None:
            delay_s = _FIRST_DELAY_S
            clock.sleep(_LOOK_AGAIN_S)
        else:
            clock.sleep(delay_s)
            delay_s = min(2 * delay_s, _LONGEST_DELAY_S)


def _look(script: Path, environ: Mapping[str, str], job_name: str) -> SuccessorCheck:
    """Look for the successor; submit it if none is pending."""
    try:
        waiting = [job for job in daemon_jobs([job_name]) if job.state == "PENDING"]
        if waiting:
            job_id = waiting[0].job_id
            return SuccessorCheck(job_id, "", f"job {job_id} is pending until this one ends")
        answer = run_submission(
            successor_command(script, read_allocation(environ), job_name),
            cwd=_folder(),
            timeout_s=_SUBMIT_TIMEOUT_S,
            lock_fd=None,
        )
        job_id = job_from(answer).job_id
    except (HpcflowError, OSError) as error:
        # Slurm does not answer, a limit is full, an answer was lost, the node has no process left;
        # or Slurm refuses the job, which a site may change.
        why = error.message if isinstance(error, HpcflowError) else error
        return SuccessorCheck(None, type(error).__name__, f"no successor yet: {why}; trying again")
    return SuccessorCheck(job_id, "", f"job {job_id} follows this one")


def _folder() -> Path:
    """Return the working directory for the successor; this job's may have been deleted."""
    try:
        return Path.cwd()
    except OSError:
        return Path.home()


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``python -m hpcflow.requeue.job SCRIPT`` inside the job of that script."""
    words = list(sys.argv[1:] if argv is None else argv)
    job_id = os.environ.get("SLURM_JOB_ID", "")
    try:
        if not job_id or not words:
            raise InputError(
                "this is not a Slurm batch job",
                next_action="submit it: sbatch sbatch/daemon.sbatch",
            )
        if words[1:] == ["--send"]:
            os.environ[AFTER] = job_id
            daemon = os.getppid()
            keep_successor(
                Path(words[0]),
                os.environ,
                SystemClock(),
                say=lambda text: _say(f"job {job_id}: {text}"),
                is_needed=lambda: os.getppid() == daemon,
            )
            return 0
        require_ledger_for_jobs(load_settings())
    except HpcflowError as error:
        echo("error: ", nl=False, err=True)
        echo_message(*map(redact, error.parts()), err=True)
        return error.exit_code
    before = os.environ.pop(AFTER, "")
    if not (before.isdecimal() and was_cancelled(before, SystemClock())):
        subprocess.Popen(own_python("hpcflow.requeue.job", words[0], "--send"))
        _become(own_python("hpcflow.cli.main", "daemon"))
    _say(f"job {job_id}: job {before} was cancelled, so this one exits too")
    return 0


def _become(command: list[str]) -> NoReturn:
    """Replace this process by ``command``: the script forwards Slurm's signals to this process."""
    os.execv(command[0], command)  # noqa: S606


def _say(text: str) -> None:
    """Write to the log, ignoring a full disk. Unbuffered: a buffer that cannot be flushed would
    make Python fail at exit."""
    with suppress(OSError):
        os.write(1, f"{safe(text)}\n".encode())


if __name__ == "__main__":
    sys.exit(main())
