"""``hpcflow ssh``."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcflow.cli.arguments import plain_text, run_argument
from hpcflow.cli.session import Session
from hpcflow.errors import InputError, SchedulerUnavailable, Where
from hpcflow.model.state import AttemptState
from hpcflow.schedulers.slurm.run_command import ask, clean_environment
from hpcflow.terminal import echo

if TYPE_CHECKING:
    from hpcflow.model.views import AttemptView


@click.command("ssh", short_help="Open a shell inside the running job of a run.")
@run_argument
@click.option("--node", callback=plain_text, help="Node of the job. Default: the first.")
def command(run: str, node: str | None) -> int:
    """Open a shell on a node of the running job of RUN, in its run directory.

    The shell is a step of the job (`srun --overlap`): it shares the job's CPUs, memory and GPUs
    with the training, and ends with the job. Without a terminal, bash reads commands from stdin.
    """
    session = Session()
    run_dir = session.run_dir(run, newest=True)
    session.refresh()
    detail = session.detail(run_dir.path.name)
    attempt = _running(detail.attempts, run_dir.path.name)
    if session.site(detail.run.site).scheduler != "slurm":
        raise InputError(
            f"run {run_dir.path.name} runs on this machine, not in a Slurm job",
            next_action=f"look into its directory: cd {run_dir.path}",
        )
    if node is not None and node not in attempt.nodes:
        raise InputError(
            f"job {attempt.job_id} has no node {node[:80]!r}",
            where=Where(key="--node"),
            next_action=f"name one of these: {', '.join(attempt.nodes)}",
        )
    program = shutil.which("srun")
    if program is None:
        raise SchedulerUnavailable(
            "srun is not on PATH", next_action="load the site's Slurm module"
        )
    argv = shell_argv(
        str(attempt.job_id), node or attempt.nodes[0], run_dir.path, on_terminal=sys.stdin.isatty()
    )
    echo(f"job {attempt.job_id} on {node or attempt.nodes[0]}; leave it: exit", err=True)
    sys.stderr.flush()
    os.execve(program, argv, clean_environment(os.environ))  # noqa: S606 - there is no shell


def _running(attempts: list[AttemptView], run_id: str) -> AttemptView:
    """Return the attempt whose job runs on nodes."""
    running = [each for each in attempts if each.state is AttemptState.RUNNING and each.nodes]
    if not running or running[-1].job_id is None:
        raise InputError(
            f"no job of run {run_id} is running", next_action=f"see why: hpcflow why {run_id}"
        )
    return running[-1]


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
