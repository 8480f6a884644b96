"""A tick of the daemon over 10,000 active runs.

Everything is real but Slurm: its programs are stand-ins that print what was recorded of the real
ones, at once, and count how often they are called. So processes, pipes and parsing are measured,
and slurmctld is not. The daemon is a process of its own (:mod:`tests.benchmarks.ticking`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from statistics import median
from typing import Final

from hpcflow.budgets.amounts import NOTHING
from hpcflow.budgets.folder import BudgetFolder
from hpcflow.budgets.records import Change, Limit, Opening, Terms
from hpcflow.budgets.scope import Scope
from hpcflow.clock import SystemClock, to_text
from hpcflow.model.ids import job_name
from hpcflow.model.journal import Intended, Observed, Submitted
from hpcflow.model.state import AttemptState
from hpcflow.schedulers.slurm.parse_jobs import FIELD_END, QUEUE_FORMAT, ROW_END
from hpcflow.schedulers.slurm.units import format_time
from hpcflow.storage.layout import Home, RunDir
from hpcflow.testing.cluster import Postgres
from tests.benchmarks.records import make_files
from tests.benchmarks.timing import Row
from tests.ledger.roles import SharedServer
from tests.storage.runs import make_run

_RUNS: Final = 10_000
_ENDED: Final = 200
_FIRST_JOB: Final = 1_000_000
_ROUNDS: Final = 5
_USER: Final = "ada"
_RESOURCES: Final = {"nodes": 2, "gpus_per_node": 4, "time_limit": "4h"}

_QUEUE_FIELDS: Final = [field.partition(":")[0] for field in QUEUE_FORMAT.split(",")]

_SQUEUE = """#!/bin/sh
echo squeue >>{folder}/calls
exec cat {folder}/queue.txt
"""
_SACCT = """#!/bin/sh
echo sacct >>{folder}/calls
"""
_SBATCH = """#!/bin/sh
echo sbatch >>{folder}/calls
read -r last <{folder}/last_job
echo $((last + 1)) >{folder}/last_job
echo $((last + 1))
"""


def rows() -> list[Row]:
    """Measure SQLite and Postgres, in a folder on the disk of this machine."""
    root = Path(tempfile.mkdtemp(prefix="hpcflow-bench-"))
    root.chmod(0o755)  # Postgres runs as a user of its own
    try:
        world = _World(root)
        with _postgres(root / "postgres") as url:
            postgres = _Daemon(world, url)
            elsewhere = _usual(world, postgres, "Postgres")
            postgres.end()
        sqlite = _Daemon(world, f"sqlite:///{root}/ledger.sqlite")
        found = _usual(world, sqlite, "SQLite")
        found += _budgeted(world, sqlite)
        found += _eventful(world, sqlite)
        sqlite.end()
        return [*found, *elsewhere]
    finally:
        shutil.rmtree(root)


@contextmanager
def _postgres(folder: Path) -> Iterator[str]:
    server = Postgres(folder).start()
    try:
        shared = SharedServer(server)  # row-level security binds no superuser
        yield shared.url(shared.database(), shared.ada)
    finally:
        server.stop()


@dataclass(frozen=True)
class _Active:
    """A run whose job runs."""

    number: int
    run_dir: RunDir
    job: str
    job_name: str
    sent_at: datetime
    started_at: datetime


class _World:
    """Home, scratch and Slurm, as far as a daemon sees them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bin = root / "bin"
        self.bin.mkdir()
        for name, text in {"squeue": _SQUEUE, "sacct": _SACCT, "sbatch": _SBATCH}.items():
            (self.bin / name).write_text(text.format(folder=root))
            (self.bin / name).chmod(0o755)
        (root / "slurm.conf").write_text("ClusterName=devcluster\n")
        (root / "last_job").write_text(f"{_FIRST_JOB + _RUNS}\n")
        self.home = Home(root / "home")
        self.home.path.mkdir(mode=0o700)
        now = SystemClock().now().replace(microsecond=0)
        self.runs = [self._make(number, now) for number in range(_RUNS)]
        self.show(self.runs)
        self._train_step = 0

    def _make(self, number: int, now: datetime) -> _Active:
        """The files as they would be, written without fsync."""
        at = now - timedelta(hours=12) + timedelta(milliseconds=number)
        run = make_run(
            self.root / "scratch", name=f"run{number % 100}", at=at, resources=_RESOURCES
        )
        run_dir = make_files(self.home, run)
        attempt = run_dir.attempt(1)
        job, name = str(_FIRST_JOB + number), job_name(run.run_id, 1)
        started_at = at.replace(microsecond=0) + timedelta(seconds=number)
        records = (
            Intended(at=at, attempt=1, job_name=name, scheduler="slurm", partition="gpu"),
            Submitted(at=at, attempt=1, job_id=job),
            Observed(
                at=started_at,
                attempt=1,
                job_id=job,
                state=AttemptState.RUNNING,
                raw_state="RUNNING",
                nodes=[f"n{2 * number + 1}", f"n{2 * number + 2}"],
                submitted_at=at.replace(microsecond=0),
                started_at=started_at,
            ),
        )
        run_dir.journal.write_text("".join(record.to_line() for record in records))
        attempt.claim.write_text(f"{job}\n")
        text = to_text(started_at)
        attempt.events.write_text(
            f'{{"at": "{text}", "event": "started", "job_id": "{job}", "nodes": ["n1", "n2"]}}\n'
            f'{{"at": "{text}", "event": "train_started", "train_step": 0}}\n'
        )
        return _Active(number, run_dir, job, name, at, started_at)

    def show(self, runs: Sequence[_Active], *, state: str = "RUNNING", rack: str = "n") -> None:
        """Let squeue say this of ``runs``, and of all others that they run."""
        shown = {each.job for each in runs}
        with (self.root / "queue.txt").open("w") as file:
            for each in self.runs:
                is_shown = each.job in shown
                nodes = f"{rack if is_shown else 'n'}[{2 * each.number + 1}-{2 * each.number + 2}]"
                sent, since = map(format_time, (each.sent_at, each.started_at))
                fields = {
                    "JobArrayID": each.job, "State": state if is_shown else "RUNNING",
                    "SubmitTime": sent, "StartTime": since, "EndTime": since, "Partition": "gpu",
                    "Account": "physics", "NodeList": nodes, "Name": each.job_name,
                    "Reason": "None",
                }  # fmt: skip
                values = (fields.get(name, "0") for name in _QUEUE_FIELDS)
                file.write(FIELD_END.join(values) + ROW_END + "\n")

    def progress(self) -> None:
        """Every job writes some of what it writes within ten seconds."""
        self._train_step += 3
        now = to_text(SystemClock().now())
        text = "".join(
            f'{{"at": "{now}", "event": "progress", "train_step": {self._train_step + more}, '
            '"epoch": 0.5, "metrics": {"loss": 0.25, "lr": 0.001}}\n'
            for more in range(3)
        )
        for each in self.runs:
            with each.run_dir.attempt(1).events.open("a") as file:
                file.write(text)

    def calls(self) -> list[str]:
        """Which of Slurm's programs were called since the last time."""
        path = self.root / "calls"
        said = path.read_text().split() if path.exists() else []
        path.unlink(missing_ok=True)
        return said


@dataclass(frozen=True)
class _Tick:
    took_s: float
    peak_mb: float
    sent: int
    calls: list[str]


class _Daemon:
    """The process that ticks."""

    def __init__(self, world: _World, ledger_url: str) -> None:
        self._world = world
        self._url = ledger_url
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.ticking", _USER],
            env={
                **os.environ,
                "PATH": f"{world.bin}:{os.environ['PATH']}",
                "HPCFLOW_HOME": str(world.home.path),
                "HPCFLOW_LEDGER": ledger_url,
                "SLURM_CONF": str(world.root / "slurm.conf"),
                "SCRATCH": str(world.root / "scratch"),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tick(self) -> _Tick:
        """One tick.

        Raises:
            RuntimeError: it failed, or there was trouble; what went wrong has no time.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        said = json.loads(self._process.stdout.readline() or '{"trouble": "it died"}')
        if said["trouble"]:
            raise RuntimeError(str(said["trouble"])[:2000])
        return _Tick(said["took_s"], said["peak_mb"], said["sent"], self._world.calls())

    def settle(self) -> None:
        """What a server does by itself within a minute, and the measurement takes less: count."""
        if self._url.startswith("postgresql"):
            import psycopg

            with psycopg.connect(self._url.replace("+psycopg", ""), autocommit=True) as raw:
                raw.execute("VACUUM ANALYZE")

    def end(self) -> None:
        """Let it end."""
        self._process.communicate(timeout=60)


def _usual(world: _World, daemon: _Daemon, database: str) -> list[Row]:
    """What a daemon does all day."""
    where = f"over {_RUNS:,} active runs, {database}"
    world.calls()
    daemon.tick()  # reads everything, once
    daemon.settle()
    quiet = [daemon.tick() for _ in range(_ROUNDS)]
    busy = []
    for _ in range(_ROUNDS):
        world.progress()
        busy.append(daemon.tick())
    return [
        _row(f"a round {where}, in which nothing happened", quiet, 0.5),
        _row(f"a round {where}, each of which wrote three lines of progress", busy, 2),
    ]


def _budgeted(world: _World, daemon: _Daemon) -> list[Row]:
    """The same once a project has a budget, to which what runs is added at the first look."""
    folder, scope = BudgetFolder(world.home.budgets), Scope("project", "vision")
    terms = Terms({"cost_usd": Limit(Decimal(10**9))})
    now = SystemClock().now()
    with folder.lock():
        change = Change(now, _USER, terms, opening=Opening(NOTHING))
        folder.append(scope, [change.to_line()])
    first = daemon.tick()
    assert len(folder.read(scope).committed_to()) == _RUNS
    daemon.tick()
    quiet = [daemon.tick() for _ in range(_ROUNDS)]
    took_s = median(each.took_s for each in quiet)
    what = f"over {_RUNS:,} active runs, SQLite, with a budget that counts all of them"
    return [
        Row(
            f"a round {what}, in which nothing happened",
            f"{took_s:.2f} s; {first.took_s:.1f} s when it was set, and each run is read",
            "at most 2 s",
            took_s <= 2,
        )
    ]


def _eventful(world: _World, daemon: _Daemon) -> list[Row]:
    """What happens once: it is measured once."""
    where = f"over {_RUNS:,} active runs, SQLite"
    world.show(world.runs[:_ENDED], state="PREEMPTED")
    sending = daemon.tick()
    assert sending.sent == _ENDED, sending
    world.show(world.runs[_ENDED:], rack="m")
    moved = daemon.tick()
    fsync_s = _fsync_s(world.root, 200) * _RUNS
    return [
        Row(
            f"a round {where}, {_ENDED} of which were preempted and are resubmitted",
            f"{sending.took_s:.2f} s, {sending.peak_mb:.0f} MB, {_called(sending.calls)}",
            "none",
            True,
        ),
        Row(
            f"a round {where}, each of which has a new fact for its journal",
            f"{moved.took_s:.2f} s, {moved.peak_mb:.0f} MB, {_called(moved.calls)} "
            f"({_RUNS:,} × an append and fsync, one after the other: {fsync_s:.1f} s)",
            "none",
            True,
        ),
    ]


def _row(what: str, ticks: list[_Tick], at_most_s: float) -> Row:
    took_s, peak_mb = median(tick.took_s for tick in ticks), max(tick.peak_mb for tick in ticks)
    calls = max((tick.calls for tick in ticks), key=len)
    return Row(
        what,
        f"{took_s:.2f} s, {peak_mb:.0f} MB, {_called(calls)}",
        f"at most {at_most_s:g} s, 300 MB, two Slurm calls",
        took_s <= at_most_s and peak_mb <= 300 and len(calls) <= 2,
        is_aim="Postgres" in what,
    )


def _called(calls: Sequence[str]) -> str:
    return ", ".join(f"{calls.count(name)} {name}" for name in dict.fromkeys(calls))


def _fsync_s(folder: Path, times: int) -> float:
    """Seconds that appending a line to a file durably takes here, whoever does it."""
    began = time.perf_counter()
    for number in range(times):
        descriptor = os.open(folder / f"fsync{number}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(descriptor, b"x" * 300)
        os.fsync(descriptor)
        os.close(descriptor)
    return (time.perf_counter() - began) / times


def main() -> int:
    """Print the table; 0 if every goal is met."""
    found = rows()
    for row in found:
        print(f"{row.what}: {row.measured}; goal {row.goal}: {'met' if row.is_met else 'MISSED'}")
    return 0 if all(row.is_met for row in found) else 1


if __name__ == "__main__":
    sys.exit(main())
