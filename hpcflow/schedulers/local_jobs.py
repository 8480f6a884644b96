"""Read and write the files of local jobs, and find their processes.

::

    $HPCFLOW_HOME/local/<job id>/     0700; created atomically with job.json
      job.json       the submission, written before any process starts
      started.json   the supervisor, and when it started the script
      cancel         exists once the job was cancelled
      ended.json     how it ended
      submitit/      files of submitit

A job without ended.json is alive if and only if a process has its mark. All processes, from the
submitting one to the last child of the script, inherit the mark in their environment, in any
session. Process ids are no proof, because the kernel reuses them.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from hpcflow.clock import from_text, to_text
from hpcflow.errors import shell_word
from hpcflow.model.state import AttemptState, attempt_state
from hpcflow.runtime.reading import read_object
from hpcflow.schedulers.base import JobInfo

#: The job id, for the script. SLURM_JOB_ID would make programs (JAX, Lightning, submitit) take this
#: machine for a Slurm cluster, and expect the rest of Slurm's variables.
JOB_ID_VARIABLE: Final = "HPCFLOW_LOCAL_JOB_ID"
MARK_VARIABLE: Final = "HPCFLOW_LOCAL_MARK"

_PROC: Final = Path("/proc")
_KERNEL_THREAD: Final = 0x00200000  # PF_KTHREAD of the kernel's include/linux/sched.h


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
        content = _read(self.path / "job.json", *(each.name for each in fields(LocalJob)))
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


@dataclass(frozen=True)
class Machine:
    """A machine or container, in which processes can see each other.

    Attributes:
        host: its name, which can change.
        boot_id: changes with each boot; a container has that of its host.
        pid_namespace: differs in each container.
    """

    host: str
    boot_id: str
    pid_namespace: str

    def sees(self, other: Machine) -> bool:
        """Return whether this machine can see the processes of ``other``."""
        is_renamed = self.pid_namespace == other.pid_namespace
        return self.boot_id == other.boot_id and (self.host == other.host or is_renamed)

    def was_before(self, other: Machine) -> bool:
        """Return whether ``other`` is this machine before a reboot, so its processes are gone."""
        return self.host == other.host and self.boot_id != other.boot_id


def this_machine() -> Machine:
    boot_id = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return Machine(socket.gethostname(), boot_id, str((_PROC / "self/ns/pid").readlink()))


def carriers(marks: Collection[str]) -> dict[str, list[int]]:
    """Return mark -> ids of the living processes that have it.

    While /proc is being read, a process may start another and end, so that neither is seen. So a
    mark without processes is searched for twice.
    """
    found = _scan(marks)
    unseen = [mark for mark, pids in found.items() if not pids]
    return found | _scan(unseen) if unseen else found


def _scan(marks: Collection[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {mark: [] for mark in marks}
    for entry in _PROC.iterdir():
        if entry.name.isdecimal() and (mark := _mark_of(entry)) in found:
            found[mark].append(int(entry.name))
    return found


def _mark_of(process: Path) -> str:
    try:
        environment = (process / "environ").read_bytes()
        is_whole = bool(environment)
        while not is_whole:  # read again if an exec was under way
            was_executed = _is_being_executed(process)
            environment = (process / "environ").read_bytes()
            is_whole = bool(environment) or not (was_executed or _is_being_executed(process))
    except OSError:
        return ""  # it has ended, or is another user's
    prefix = f"{MARK_VARIABLE}=".encode()
    for variable in environment.split(b"\0"):
        if variable.startswith(prefix):
            return variable[len(prefix) :].decode(errors="replace")
    return ""


def _is_being_executed(process: Path) -> bool:
    """Return whether a process is inside exec, before its environment is visible.

    Then ``env_end`` of proc_pid_stat(5) is 0, as for kernel threads and ended processes.
    """
    fields = (process / "stat").read_bytes().rpartition(b")")[2].split()
    state, flags, env_end = fields[0], int(fields[6]), int(fields[48])
    return env_end == 0 and state not in (b"Z", b"X") and not flags & _KERNEL_THREAD
