"""Run jobs on this machine: the same script as on a cluster, under submitit's controller.

There is no queue: a job starts when it is submitted. local_jobs.py defines the files of the jobs,
local_runner.py supervises a script.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import hpcflow
from hpcflow.errors import SchedulerUnavailable, SubmissionInDoubt, SubmissionRefused, shell_word
from hpcflow.model.state import AttemptState
from hpcflow.schedulers import local_jobs
from hpcflow.schedulers.base import JobInfo, JobRef, Lookup, Scheduler, SubmitRequest
from hpcflow.schedulers.local_jobs import MARK_VARIABLE, JobFolder, carriers, this_machine
from hpcflow.schedulers.local_runner import RESTORE_VARIABLE
from hpcflow.schedulers.slurm.run_command import clean_environment
from hpcflow.schedulers.waiting import ClusterQueue
from hpcflow.sites.live import ClusterInfo, NodeKind, PartitionInfo

_SUBMIT_TIMEOUT_S: Final = 120.0


class LocalScheduler(Scheduler):
    """Jobs on this machine. They run at once, so nothing is pending; their files name the machine.

    Args:
        home: HPCFLOW_HOME; its folder ``local`` holds the jobs.
        submit_timeout_s: how long starting a job may take.
    """

    name = "local"

    def __init__(self, home: Path, *, submit_timeout_s: float = _SUBMIT_TIMEOUT_S) -> None:
        self.home = home
        self._folder = home.absolute() / "local"
        self._submit_timeout_s = submit_timeout_s

    def submit(self, request: SubmitRequest) -> JobRef:
        if not request.script.is_file():
            raise SubmissionRefused(f"no job script {request.script}")
        argv = [sys.executable, "-m", "hpcflow.schedulers.local_submit", str(self._folder)]
        argv += [str(request.script.absolute()), str(request.directory.absolute())]
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise SchedulerUnavailable(
                f"cannot create {self._folder}: {error.strerror}",
                next_action=f"see who owns it: ls -ld {shell_word(self.home)}",
            ) from error
        process = subprocess.Popen(
            [*argv, request.job_name],
            cwd=self._folder,
            env=_submitter_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            pass_fds=() if request.lock_fd is None else (request.lock_fd,),
            start_new_session=True,
        )
        try:
            stdout, stderr = process.communicate(timeout=self._submit_timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            stdout, stderr = process.communicate()
        if process.returncode == 0 and stdout.strip().isdecimal():
            return JobRef(stdout.strip())
        why = f"the submission exited with code {process.returncode}"
        if output := stderr.strip():
            why += f" ({output.splitlines()[-1]})"
        raise SubmissionInDoubt(
            f"the job may or may not exist: {why}",
            next_action=f"look for its files in {self._folder}",
        )

    def find(self, job_name: str, since: datetime) -> Lookup:
        named = [job for job in local_jobs.infos(self._jobs()) if job.job_name == job_name]
        return Lookup(tuple(_since(named, since)))

    def queue(self, job_ids: Sequence[str] = ()) -> list[JobInfo]:
        wanted = frozenset(job_ids)
        return local_jobs.infos(
            each for each in self._jobs() if not wanted or each.job_id in wanted
        )

    def accounting(
        self,
        job_ids: Sequence[str],
        since: datetime,
        *,
        job_names: Sequence[str] = (),
        is_named: Callable[[str], bool] | None = None,
    ) -> list[JobInfo]:
        jobs = [
            job
            for job in local_jobs.infos(self._jobs())
            if job.job_id in job_ids
            or job.job_name in job_names
            or (is_named is not None and is_named(job.job_name))
        ]
        return _since(jobs, since)

    def cancel(self, job_ids: Sequence[str]) -> None:
        for job in self.queue(job_ids) if job_ids else []:
            if job.state is not AttemptState.ENDED:
                _cancel(JobFolder(self._folder / job.job_id))

    def cluster_info(self) -> ClusterInfo:
        gpus = Path("/proc/driver/nvidia/gpus")
        partition = PartitionInfo(
            name="local",
            is_default=True,
            is_up=True,
            time_limit_max_min=None,
            kinds=(
                NodeKind(
                    count=1,
                    cpus=os.cpu_count() or 1,
                    mem_mb=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20,
                    gpus={"": len(list(gpus.iterdir()))} if gpus.is_dir() else {},
                ),
            ),
        )
        return ClusterInfo(
            this_machine().host, hpcflow.__version__, (partition,), has_accounting=False
        )

    def cluster_queue(self) -> ClusterQueue:
        return ClusterQueue()

    def _jobs(self) -> list[JobFolder]:
        return local_jobs.all_jobs(self._folder)


def _since(jobs: list[JobInfo], since: datetime) -> list[JobInfo]:
    return [job for job in jobs if job.submitted_at is None or job.submitted_at >= since]


def _cancel(folder: JobFolder) -> None:
    """Request the supervisor to end the job; if the supervisor was killed, kill the processes."""
    job = folder.job()
    if job is None:
        return
    folder.cancel.touch()
    started = folder.started()
    mark = job.mark
    alive = carriers({mark})[mark]
    if started is not None and started["pid"] not in alive:
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _submitter_environment() -> dict[str, str]:
    """Return this environment with the job's mark, and this hpcflow on PYTHONPATH.

    The variables of a surrounding Slurm job are removed, so that the script does not use them.
    """
    environment = clean_environment(os.environ)
    package = str(Path(hpcflow.__file__).parents[1])
    inherited = environment.get("PYTHONPATH")
    return {
        **environment,
        "PYTHONPATH": f"{package}{os.pathsep}{inherited}" if inherited else package,
        MARK_VARIABLE: secrets.token_hex(16),
        RESTORE_VARIABLE: json.dumps({"PYTHONPATH": inherited}),
    }
