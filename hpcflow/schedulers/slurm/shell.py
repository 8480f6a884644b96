"""The srun command that opens a shell inside a running job."""

from __future__ import annotations

from pathlib import Path

from hpcflow.errors import SchedulerUnavailable
from hpcflow.schedulers.slurm.run_command import ask


def shell_argv(job_id: str, node: str, chdir: Path, *, on_terminal: bool) -> list[str]:
    """Return the srun command for a shell on a node of a running job.

    ``--overlap`` shares all of the job's CPUs, memory and GPUs with the step that trains.

    Raises:
        SchedulerUnavailable: the queue does not answer, or no longer has the job.
    """
    return [
        "srun",
        f"--jobid={_plain_id(job_id)}",
        "--overlap",
        "--nodes=1",
        "--ntasks=1",
        f"--nodelist={node}",
        f"--chdir={chdir}",
        *(["--pty"] if on_terminal else []),
        "bash",
        "-l",
    ]


def _plain_id(job_id: str) -> str:
    """Return the number of a job: ``srun --jobid`` does not accept ``123_4``."""
    if job_id.isdecimal():
        return job_id
    printed = ask(["squeue", "--noheader", "--format=%A", f"--jobs={job_id}"]).split()
    if len(printed) != 1 or not printed[0].isdecimal():
        raise SchedulerUnavailable(
            f"Slurm has no pending or running job {job_id}", next_action="list jobs: hpcflow ls"
        )
    return printed[0]
