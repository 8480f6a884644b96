"""Read and write the files of local jobs: their description and state.

::

    $HPCFLOW_HOME/local/<job id>/     0700; created atomically with job.json
      job.json       the submission, written before any process starts
      started.json   the supervisor, and when it started the script
      cancel         exists once the job was cancelled
      ended.json     how it ended
      submitit/      files of submitit

A job without ended.json is alive if and only if a process has its mark (local_processes.py).
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from hpcflow.clock import from_text, to_text
from hpcflow.errors import shell_word
from hpcflow.model.state import AttemptState, attempt_state
from hpcflow.runtime.reading import read_object
from hpcflow.schedulers.base import JobInfo
from hpcflow.schedulers.local_processes import Machine, carriers, this_machine

#: The job id, for the script. SLURM_JOB_ID would make programs (JAX, Lightning, submitit) take this
#: machine for a Slurm cluster, and expect the rest of Slurm's variables.
JOB_ID_VARIABLE: Final = "HPCFLOW_LOCAL_JOB_ID"


@dataclass(frozen=True)
class LocalJob:
    """``job.json``."""

    job_name: str
    script: str
    directory: str
    submitted_at: str
    mark: str
    host: str
    boot_id: str
    pid_namespace: str


@dataclass(frozen=True)
class JobFolder:
    """The files of one job."""

    path: Path

    @property
    def job_id(self) -> str:
        return self.path.name

    @property
    def cancel(self) -> Path:
        return self.path / "cancel"

    @property
    def submitit(self) -> Path:
        return self.path / "submitit"

    def job(self) -> LocalJob | None:
        """Return the submission; None if its file is missing or damaged."""
        content = _read(self.path / "job.json", *_names(LocalJob))
        return LocalJob(**content) if content is not None else None

    def started(self) -> dict[str, Any] | None:
        """Return ``pid`` and ``started_at``; None before the script was started."""
        return _read(self.path / "started.json", "pid", "started_at")

    def ended(self) -> dict[str, Any] | None:
        """Return ``raw_state``, ``exit_code``, ``signal``, ``ended_at``; None if not recorded."""
        return _read(self.path / "ended.json", "raw_state", "exit_code", "signal", "ended_at")

    def write_started(self, *, pid: int, started_at: datetime) -> None:
        _write(self.path / "started.json", {"pid": pid, "started_at": to_text(started_at)})

    def write_ended(
        self, raw_state: str, *, exit_code: int | None, signal: int | None, ended_at: datetime
    ) -> None:
        _write(
            self.path / "ended.json",
            {
                "raw_state": raw_state,
                "exit_code": exit_code,
                "signal": signal,
                "ended_at": to_text(ended_at),
            },
        )


def create(folder: Path, job: LocalJob) -> JobFolder:
    """Create a job with the next free id."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = folder / f".new-{secrets.token_hex(8)}"
    draft.mkdir(mode=0o700)
    _write(draft / "job.json", asdict(job))
    number = max((int(each.job_id) for each in all_jobs(folder)), default=0)
    while True:
        number += 1
        try:
            draft.rename(folder / str(number))
        except OSError:
            # Another process took this number: rename() never replaces a folder with files.
            if not (folder / str(number)).exists():
                raise
        else:
            return JobFolder(folder / str(number))


def all_jobs(folder: Path) -> list[JobFolder]:
    """Return all jobs, oldest first."""
    if not folder.is_dir():
        return []
    jobs = (JobFolder(entry) for entry in folder.iterdir() if entry.name.isdecimal())
    return sorted(jobs, key=lambda each: int(each.job_id))


def infos(folders: Iterable[JobFolder]) -> list[JobInfo]:
    """Return the states of the jobs, in the same order; skip jobs with damaged files."""
    jobs = [
        (folder, job, folder.ended()) for folder in folders if (job := folder.job()) is not None
    ]
    open_marks = {job.mark for _, job, ended in jobs if ended is None}
    alive = carriers(open_marks) if open_marks else {}
    return [_info(folder, job, ended, alive) for folder, job, ended in jobs]


def _info(
    folder: JobFolder,
    job: LocalJob,
    ended: Mapping[str, Any] | None,
    alive: Mapping[str, list[int]],
) -> JobInfo:
    started = folder.started()
    reason = None
    if ended is None and not alive[job.mark]:
        ended = folder.ended()  # it may have ended meanwhile
    if ended is not None:
        raw_state = ended["raw_state"]
    else:
        raw_state, reason = _judge(folder, job, is_started=started is not None, alive=alive)
    ended = ended or {}
    return JobInfo(
        job_id=folder.job_id,
        job_name=job.job_name,
        raw_state=raw_state,
        state=attempt_state(raw_state) if raw_state else AttemptState.ENDED,
        reason=reason,
        nodes=(job.host,) if started else (),
        exit_code=ended.get("exit_code"),
        signal=ended.get("signal"),
        restarts=0,
        submitted_at=from_text(job.submitted_at),
        started_at=from_text(started["started_at"]) if started else None,
        ended_at=from_text(ended["ended_at"]) if ended else None,
        source="local",
    )


def _judge(
    folder: JobFolder, job: LocalJob, *, is_started: bool, alive: Mapping[str, list[int]]
) -> tuple[str, str | None]:
    """Return raw state, as Slurm names it, and reason of a job without ``ended.json``.

    If all its processes are gone, the raw state is empty.
    """
    here, there = this_machine(), Machine(job.host, job.boot_id, job.pid_namespace)
    if here.was_before(there):
        return "NODE_FAIL", "the machine was rebooted"
    if not here.sees(there):
        return "RUNNING", (
            f"its machine is {job.host}, and its state is only visible there; "
            f"if that machine no longer exists: rm -r {shell_word(folder.path)}"
        )
    if alive[job.mark]:
        return ("RUNNING" if is_started else "PENDING"), None
    if folder.cancel.exists():
        return "CANCELLED", None
    return "", "all its processes are gone, and none recorded an exit code"


def _names(kind: type[LocalJob]) -> list[str]:
    return [field.name for field in fields(kind)]


def _read(path: Path, *keys: str) -> dict[str, Any] | None:
    """Return the values of ``keys``; None if one is missing."""
    try:
        content = read_object(path)
        return {key: content[key] for key in keys}
    except (OSError, ValueError, TypeError, LookupError):
        return None


def _write(path: Path, data: dict[str, Any]) -> None:
    """Write a file atomically, and sync it."""
    draft = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    with draft.open("x") as file:
        json.dump(data, file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
