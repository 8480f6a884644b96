"""The jobs of this machine as files: their description and state. Starts and ends nothing.

::

    $HPCFLOW_HOME/local/<job id>/     0700; appears at once, with job.json in it
      job.json       what was submitted, before anything was started for it
      started.json   the supervisor, and when it started the script
      cancel         exists once somebody wants the job to end
      ended.json     how it ended
      submitit/      what submitit keeps

A job without ended.json is alive exactly while a process carries its mark (local_processes.py).
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

#: For the script: the id of its job. Not SLURM_JOB_ID, by which programs would take this machine
#: for a Slurm cluster (JAX, Lightning and submitit do) and miss the rest of its variables.
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
        """What was submitted; None where the file is gone or damaged."""
        said = _read(self.path / "job.json", *_names(LocalJob))
        return LocalJob(**said) if said is not None else None

    def started(self) -> dict[str, Any] | None:
        """``pid`` and ``started_at``; None before the script was started."""
        return _read(self.path / "started.json", "pid", "started_at")

    def ended(self) -> dict[str, Any] | None:
        """``raw_state``, ``exit_code``, ``signal``, ``ended_at``; None while nobody wrote it."""
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
    """A new job with the next free id."""
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
            # Somebody else took this number: a folder that is not empty is never replaced.
            if not (folder / str(number)).exists():
                raise
        else:
            return JobFolder(folder / str(number))


def all_jobs(folder: Path) -> list[JobFolder]:
    """Every job, oldest first."""
    if not folder.is_dir():
        return []
    jobs = (JobFolder(entry) for entry in folder.iterdir() if entry.name.isdecimal())
    return sorted(jobs, key=lambda each: int(each.job_id))


def infos(folders: Iterable[JobFolder]) -> list[JobInfo]:
    """Where the jobs stand now, in the same order; without those whose files are damaged."""
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
        ended = folder.ended()  # it may have ended while we looked
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
    """Raw state in Slurm's words, and reason, of a job that left no word of its end.

    One whose processes are all gone has no raw state: it vanished.
    """
    here, there = this_machine(), Machine(job.host, job.boot_id, job.pid_namespace)
    if here.was_before(there):
        return "NODE_FAIL", "the machine was rebooted"
    if not here.sees(there):
        return "RUNNING", (
            f"it is on {job.host}, and can only be seen there; "
            f"if that machine is no more: rm -r {shell_word(folder.path)}"
        )
    if alive[job.mark]:
        return ("RUNNING" if is_started else "PENDING"), None
    if folder.cancel.exists():
        return "CANCELLED", None
    return "", "all its processes are gone, and none left an exit code"


def _names(kind: type[LocalJob]) -> list[str]:
    return [field.name for field in fields(kind)]


def _read(path: Path, *keys: str) -> dict[str, Any] | None:
    """The values of ``keys``; None when the file does not hold them all."""
    try:
        said = read_object(path)
        return {key: said[key] for key in keys}
    except (OSError, ValueError, TypeError, LookupError):
        return None


def _write(path: Path, data: dict[str, Any]) -> None:
    """Whole or not at all, and durable."""
    draft = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    with draft.open("x") as file:
        json.dump(data, file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
