"""Slurm with queries and cancel through the pyslurm library, if it can be imported.

A C library can crash this process, so a separate process tries it once, before the first query.
docs/schedulers.md says what pyslurm is not used for. Removing a begin time uses scontrol: it is
rare, and one call for many jobs.
"""

from __future__ import annotations

import importlib
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from types import ModuleType
from typing import Any, Final

from hpcflow.clock import Clock
from hpcflow.model.state import AttemptState, attempt_state
from hpcflow.schedulers.base import JobInfo
from hpcflow.schedulers.slurm.commands import SlurmCommands
from hpcflow.schedulers.slurm.hostlist import expand
from hpcflow.schedulers.slurm.job_ids import is_single_job_id, leader
from hpcflow.schedulers.slurm.parse_jobs import sensible_exit
from hpcflow.schedulers.slurm.run_command import clean_environment
from hpcflow.working_dir import LEAVE_IT

_log = logging.getLogger(__name__)

_TRIAL: Final = f"{LEAVE_IT}import pyslurm; pyslurm.Jobs.load()"
_TRIAL_TIMEOUT_S: Final = 30.0


def works() -> bool:
    """Return whether pyslurm can be imported and gets an answer, tried in a separate process."""
    try:
        trial = subprocess.run(
            [sys.executable, "-c", _TRIAL],
            env=clean_environment(os.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TRIAL_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        _log.debug("pyslurm did not answer within %s s", _TRIAL_TIMEOUT_S)
        return False
    except OSError as error:
        _log.debug("pyslurm could not be tried: %s", error)
        return False
    if trial.returncode != 0:
        _log.debug("pyslurm does not work here: %s", trial.stderr.strip()[-500:])
    return trial.returncode == 0


class SlurmWithPyslurm(SlurmCommands):
    """Like its base, with pyslurm in place of squeue and scancel while it works."""

    def __init__(
        self, *, clock: Clock, has_accounting: bool = True, cluster_name: str | None = None
    ) -> None:
        super().__init__(clock=clock, has_accounting=has_accounting, cluster_name=cluster_name)
        self._library: ModuleType | None = None
        self._is_tried = False

    @property
    def uses_pyslurm(self) -> bool:
        """Return whether queries use pyslurm; the first call tries it."""
        return self._pyslurm() is not None

    def cancel(self, job_ids: Sequence[str]) -> None:
        pyslurm = self._pyslurm()
        left = list(job_ids)
        if pyslurm is not None:
            left = [each for each in job_ids if not _cancel(pyslurm, each)]
        if left:
            super().cancel(left)

    def _queue(self, job_name: str | None = None) -> list[JobInfo]:
        pyslurm = self._pyslurm()
        if pyslurm is None:
            return super()._queue(job_name)
        try:
            loaded = pyslurm.Jobs.load()
        except pyslurm.PyslurmError as error:
            _log.debug("pyslurm: %s; asking squeue", error)
            return super()._queue(job_name)
        uid = os.geteuid()
        mine = [job for job in loaded.values() if job.user_id == uid]
        if job_name is not None:
            mine = [job for job in mine if job.name == job_name]
        if any(job.exit_code or job.exit_code_signal for job in mine):
            # pyslurm subtracts 128 from large exit codes, which makes them ambiguous, and does not
            # show whether a failed job was being preempted.
            return super()._queue(job_name)
        return [_job_info(job) for job in mine]

    def _pyslurm(self) -> ModuleType | None:
        if not self._is_tried:
            self._is_tried = True
            if works():
                self._library = importlib.import_module("pyslurm")
        return self._library


def _cancel(pyslurm: ModuleType, job_id: str) -> bool:
    """Cancel a job, and return whether pyslurm could; it cannot cancel array tasks."""
    if not (is_single_job_id(job_id) and job_id.isdecimal()):
        return False
    try:
        pyslurm.Job(int(job_id)).cancel()
    except pyslurm.PyslurmError as error:
        _log.debug("pyslurm could not cancel %s: %s; trying scancel", job_id, error)
        return False
    return True


def _job_info(job: Any) -> JobInfo:
    state = attempt_state(job.state)
    nodes = expand(job.allocated_nodes or "")
    has_ended = state is AttemptState.ENDED
    exit_code, signal = None, None
    reason = None if job.state_reason in (None, "None") else job.state_reason
    waits_for_time = state is AttemptState.QUEUED and reason == "BeginTime"
    if has_ended:
        exit_code, signal = sensible_exit(job.exit_code or 0, job.exit_code_signal or 0, job.state)
    return JobInfo(
        job_id=_job_id(job),
        job_name=job.name or "",
        raw_state=job.state,
        state=state,
        reason=reason,
        partition=job.partition,
        account=job.account,
        nodes=nodes,
        exit_code=exit_code,
        signal=signal,
        restarts=job.requeue_count,
        submitted_at=_moment(job.submit_time),
        begins_at=_moment(job.start_time) if waits_for_time else None,
        started_at=_moment(job.start_time) if nodes and state is not AttemptState.QUEUED else None,
        ended_at=_moment(job.end_time) if has_ended else None,
    )


def _job_id(job: Any) -> str:
    """Return the job id in squeue's notation."""
    if job.array_tasks_waiting:
        return f"{job.array_id}_[{job.array_tasks_waiting}]"
    if job.array_task_id is not None and job.array_id:
        return f"{job.array_id}_{job.array_task_id}"
    if job.heterogeneous_id:
        return leader(f"{job.heterogeneous_id}+{job.heterogeneous_offset}")
    return str(job.id)


def _moment(timestamp: int | None) -> datetime | None:
    return datetime.fromtimestamp(timestamp, timezone.utc) if timestamp else None
