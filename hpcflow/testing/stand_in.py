"""A Slurm stand-in in a file, which many processes share and which survives their kills.

``sbatch``, ``squeue`` and the others are real programs on PATH (stand_in_program.py), so hpcflow
calls them like Slurm's; the test decides what happens to the jobs. Every submission is recorded
with its process and the live jobs of the same run, to verify "exactly once".
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from hpcflow.clock import SystemClock, to_text
from hpcflow.model.ids import parse_job_name
from hpcflow.storage.layout import Home, RunDir
from hpcflow.storage.locks import wait_for_lock

_PROGRAM = Path(__file__).with_name("stand_in_program.py")
_TABLES = """
CREATE TABLE job (
    job_id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, state TEXT NOT NULL,
    exit_code INTEGER, submitted TEXT NOT NULL, started TEXT, ended TEXT,
    sender INTEGER NOT NULL, beside INTEGER NOT NULL, is_remembered INTEGER NOT NULL DEFAULT 1
);
CREATE TABLE request (program TEXT NOT NULL, sender INTEGER NOT NULL);
CREATE TABLE setting (name TEXT PRIMARY KEY, value REAL NOT NULL);
INSERT INTO job (job_id, name, state, submitted, ended, sender, beside, is_remembered)
    VALUES (1000, '', 'COMPLETED', '', '', 0, 0, 0);
DELETE FROM job;
"""


@dataclass(frozen=True)
class Job:
    """A submitted job; ``beside``: number of its run's jobs that were alive then."""

    job_id: str
    name: str
    state: str
    is_over: bool
    has_started: bool
    is_remembered: bool
    sender: int
    beside: int

    @property
    def run_id(self) -> str:
        return self.name.split(":")[0]

    @property
    def attempt(self) -> int:
        return int(self.name.split(":")[1])


class StandIn:
    """The cluster in ``folder``.

    Args:
        sbatch_s: the longest time until sbatch has created the job, and again until it answers.
        slow: fraction of submissions that may take twenty times as long.
        lost_answers: fraction of submissions that "time out" although the job exists.
    """

    def __init__(
        self, folder: Path, *, sbatch_s: float = 0.0, slow: float = 0.0, lost_answers: float = 0.0
    ) -> None:
        self.folder = folder
        self._database = folder / "cluster.sqlite"
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("sbatch", "squeue", "sacct", "scancel", "scontrol"):
            program = folder / name
            argv = f'"{sys.executable}" -I -S "{_PROGRAM}" "{self._database}" {name} "$@"'
            program.write_text(f"#!/bin/sh\nexec {argv}\n")
            program.chmod(0o755)
        (folder / "slurm.conf").write_text("ClusterName=devcluster\n")
        with self._open() as raw:
            raw.executescript(_TABLES)
        self.set(sbatch_s=sbatch_s, slow=slow, lost_answers=lost_answers)

    def environment(self, home: Path, scratch: Path) -> dict[str, str]:
        """Return the environment of a user of this cluster."""
        kept = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        return {
            **kept,
            "PATH": f"{self.folder}:/usr/bin:/bin",
            "SLURM_CONF": str(self.folder / "slurm.conf"),
            "HOME": str(home.parent),
            "HPCFLOW_HOME": str(home),
            "SCRATCH": str(scratch),
        }

    def set(self, **settings: float) -> None:
        with self._open() as raw:
            raw.executemany("INSERT OR REPLACE INTO setting VALUES (?, ?)", settings.items())

    def jobs(self) -> list[Job]:
        with self._open() as raw:
            rows = raw.execute(
                "SELECT job_id, name, state, ended IS NOT NULL, started IS NOT NULL, "
                "is_remembered, sender, beside FROM job ORDER BY job_id"
            ).fetchall()
        return [
            Job(str(row[0]), row[1], row[2], bool(row[3]), bool(row[4]), bool(row[5]), *row[6:])
            for row in rows
        ]

    def alive(self, run_id: str | None = None) -> list[Job]:
        """Return the jobs that have not ended, of all runs or of one."""
        return [job for job in self.jobs() if not job.is_over and run_id in (None, job.run_id)]

    def requests(self) -> Mapping[str, int]:
        """Return program -> number of calls."""
        with self._open() as raw:
            return dict(
                raw.execute("SELECT program, count(*) FROM request GROUP BY program").fetchall()
            )

    def start(self, job: Job, home: Home) -> bool:
        """Start a job and claim its attempt, as the script would; return False if it is claimed."""
        self._change(job, "RUNNING", "started")
        attempt = _run_dir(job, home).attempt(job.attempt)
        own = attempt.path / f"claim.{job.job_id}"
        own.write_text(f"{job.job_id}\n")
        try:
            os.link(own, attempt.claim)
        except FileExistsError:
            self._change(job, "FAILED", "ended", 1)
            return False
        finally:
            own.unlink()
        self.say(job, home, "started", job_id=job.job_id, nodes=["n1"], restarts=0)
        return True

    def say(self, job: Job, home: Home, event: str, **said: object) -> None:
        line = json.dumps({"at": to_text(SystemClock().now()), "event": event, **said})
        with _run_dir(job, home).attempt(job.attempt).events.open("a") as file:
            file.write(line + "\n")

    def end(
        self, job: Job, home: Home, state: str, *, exit_code: int = 0, checkpoint: int | None = None
    ) -> None:
        """End a job, with a checkpoint at this train step, if any."""
        if checkpoint is not None:
            path = f"checkpoints/{checkpoint:09d}"
            self.say(job, home, "checkpoint", train_step=checkpoint, path=path, size_bytes=1)
        self._change(job, state, "ended", exit_code)

    def forget(self, job: Job) -> None:
        """Drop a job from the queue; accounting keeps it."""
        with self._open() as raw:
            raw.execute("UPDATE job SET is_remembered = 0 WHERE job_id = ?", [job.job_id])

    def _change(self, job: Job, state: str, when: str, exit_code: int | None = None) -> None:
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
        with self._open() as raw:
            raw.execute(
                f"UPDATE job SET state = ?, {when} = ?, exit_code = ? WHERE job_id = ?",
                [state, now, exit_code, job.job_id],
            )

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Open the database for each use: SQLite must not be open across a fork."""
        raw = sqlite3.connect(self._database, isolation_level=None, timeout=30)
        try:
            raw.execute("PRAGMA synchronous = OFF")
            yield raw
        finally:
            raw.close()


def _run_dir(job: Job, home: Home) -> RunDir:
    return home.run_dir(home.scratch_link(job.run_id).readlink())


def assert_exactly_once(jobs: list[Job]) -> None:
    """Assert that no name was submitted twice, and no job beside a live one of its run."""
    names = [job.name for job in jobs]
    assert len(set(names)) == len(names), (
        f"sent twice: {sorted({n for n in names if names.count(n) > 1})}"
    )
    beside = [job for job in jobs if job.beside]
    assert beside == [], "sent while another job of the run was alive"
    assert all(parse_job_name(name) for name in names)


def pass_five_minutes(home: Home) -> None:
    """Let all leases expire, as if their processes had not renewed them for five minutes."""
    for path in home.daemon.glob("*.lease"):
        with wait_for_lock(path, wait_s=30) as lock:
            record = json.loads(os.pread(lock.fd, 4096, 0))
            ended = json.dumps({**record, "expires_at": record["renewed_at"]})
            os.pwrite(lock.fd, ended.encode().ljust(1024), 0)
    if not home.ledger.exists():
        return
    with sqlite3.connect(home.ledger, timeout=30) as raw:
        raw.execute("UPDATE lease SET expires_at = renewed_at")
    raw.close()
