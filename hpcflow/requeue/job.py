"""The daemon as a job: what ``sbatch/daemon.sbatch`` calls on the compute node.

There is always one job that runs and at most one that waits for its end (``singleton``), so the
chain goes on through time limits, preemption and dead nodes, whoever is alive. Two at once would be
harmless, by the lease. The successor is sent by a child process while the daemon is at work
already, and again until Slurm has taken it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn

from hpcflow.clock import Clock, SystemClock
from hpcflow.errors import HpcflowError, InputError, SubmissionRefused
from hpcflow.requeue.install.ledger_for_jobs import require_ledger_for_jobs
from hpcflow.requeue.install.slurm_job import daemon_jobs
from hpcflow.schedulers.slurm.allocation import Allocation, read_allocation
from hpcflow.schedulers.slurm.run_command import ask, run_submission
from hpcflow.schedulers.slurm.submit import job_from
from hpcflow.settings import load_settings

#: Tells a successor which job it follows.
AFTER: Final = "HPCFLOW_DAEMON_AFTER"
#: A daemon that cannot live must not fill the queue: one job a minute, at most.
_EARLIEST: Final = "now+60"
_FIRST_DELAY_S: Final = 10.0
_LONGEST_DELAY_S: Final = 300.0
_SUBMIT_TIMEOUT_S: Final = 180.0
_STATE: Final = re.compile(r"\bJobState=(\w+)")


def was_cancelled(job_id: str) -> bool:
    """Whether somebody ended this job by hand; False where nobody knows any more."""
    try:
        found = _STATE.search(ask(["scontrol", "show", "job", job_id]))
        if found is not None:
            return found[1] == "CANCELLED"
    except HpcflowError:
        pass  # slurmctld forgets after some minutes; accounting, if there is any, does not
    try:
        argv = ["sacct", "--allocations", "--noheader", "--parsable2", "--format=State"]
        return ask([*argv, f"--jobs={job_id}"]).startswith("CANCELLED")
    except HpcflowError:
        return False


def successor_command(script: Path, allocation: Allocation, job_name: str) -> list[str]:
    """sbatch for the same job again, with what this one was given on its command line."""
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


def send_successor(script: Path, environ: Mapping[str, str], clock: Clock) -> str:
    """Send the successor, unless one waits already; again, until Slurm has an answer.

    Returns:
        What came of it, for the log.
    """
    job_name = environ.get("SLURM_JOB_NAME") or "hpcflow-daemon"
    delay_s = _FIRST_DELAY_S
    while (said := _try_to_send(script, environ, job_name)) is None:
        clock.sleep(delay_s)
        delay_s = min(2 * delay_s, _LONGEST_DELAY_S)
    return said


def _try_to_send(script: Path, environ: Mapping[str, str], job_name: str) -> str | None:
    """What came of it; None where nobody knows, and the queue has to be looked at again."""
    try:
        waiting = [job for job in daemon_jobs([job_name]) if job.state == "PENDING"]
        if waiting:
            return f"job {waiting[0].job_id} waits for the end of this one"
        answer = run_submission(
            successor_command(script, read_allocation(environ), job_name),
            cwd=Path.cwd(),
            timeout_s=_SUBMIT_TIMEOUT_S,
            lock_fd=None,
        )
        return f"job {job_from(answer).job_id} goes on after this one"
    except SubmissionRefused as error:
        return f"this is the last one of these jobs: {error.message}"
    except HpcflowError:  # Slurm is silent, a limit is full, or an answer was lost
        return None


def main(argv: Sequence[str] | None = None) -> int:
    """``python -m hpcflow.requeue.job SCRIPT``, in a job whose script that is."""
    words = list(sys.argv[1:] if argv is None else argv)
    job_id = os.environ.get("SLURM_JOB_ID", "")
    try:
        if not job_id or not words:
            raise InputError(
                "this is no batch job of Slurm", next_action="send it: sbatch sbatch/daemon.sbatch"
            )
        if words[1:] == ["--send"]:
            os.environ[AFTER] = job_id
            _say(f"job {job_id}: {send_successor(Path(words[0]), os.environ, SystemClock())}")
            return 0
        require_ledger_for_jobs(load_settings())
    except HpcflowError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    before = os.environ.pop(AFTER, "")
    if not (before.isdecimal() and was_cancelled(before)):
        subprocess.Popen([sys.executable, "-m", "hpcflow.requeue.job", words[0], "--send"])
        _become([sys.executable, "-m", "hpcflow.cli.main", "daemon"])
    _say(f"job {job_id}: job {before} was cancelled, so this one ends, too")
    return 0


def _become(command: list[str]) -> NoReturn:
    """Slurm's signals reach this process, so it has to be the daemon itself."""
    os.execv(command[0], command)  # noqa: S606


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
