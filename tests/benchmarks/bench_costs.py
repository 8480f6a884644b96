"""Costs: a report over 100,000 attempts; the bills of 1,000 jobs that have just ended.

The report is the whole process, from the shell to its end, over a ledger that was rebuilt from the
files of 20,000 runs. The bills are those of one ``hpcflow ls``; Slurm's programs are stand-ins that
print at once what the real ones print, and count how often they are called.
"""

from __future__ import annotations

import os
import pwd
import shutil
import sys
import tempfile
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Final

from hpcflow.clock import SystemClock
from hpcflow.ledger.store import open_ledger
from hpcflow.model.ids import job_name
from hpcflow.model.journal import (
    Accounted,
    ChargeLine,
    Ended,
    Intended,
    JournalRecord,
    Observed,
    Submitted,
)
from hpcflow.model.state import AttemptState, Cause
from hpcflow.projection import catch_up, rebuild
from hpcflow.schedulers.slurm.parse_jobs import ACCOUNTING_FIELDS, FIELD_END
from hpcflow.schedulers.slurm.units import format_time
from hpcflow.storage.layout import Home, RunDir
from hpcflow.testing.cluster import Postgres
from tests.benchmarks.records import make_files
from tests.benchmarks.timing import Row, in_turn, quiet, time_process, wall
from tests.ledger.roles import SharedServer
from tests.storage.runs import make_run

_RUNS: Final = 20_000
_ATTEMPTS: Final = 5  # of each
_ENDED: Final = 1_000
_ROUNDS: Final = 5
_AT_MOST_S: Final = 2.0
_HPCFLOW: Final = str(Path(sys.executable).with_name("hpcflow"))
_RESOURCES: Final = {"nodes": 1, "gpus_per_node": 4, "time_limit": "4h"}
_STAND_IN: Final = "#!/bin/sh\necho {name} >>{folder}/calls\ncat {folder}/{name}.txt\n"


def rows() -> list[Row]:
    """Measure both, in a folder of its own on the disk of this machine."""
    root = Path(tempfile.mkdtemp(prefix="hpcflow-bench-"))
    root.chmod(0o755)  # Postgres runs as a user of its own
    try:
        return [*_reports(root / "report"), _bills(root / "bills")]
    finally:
        shutil.rmtree(root)


def _reports(root: Path) -> list[Row]:
    home = _home(root)
    run_dirs = [_make(root, home, number, _ATTEMPTS, is_billed=True) for number in range(_RUNS)]
    server = Postgres(root / "postgres").start()
    try:
        shared = SharedServer(server)  # row-level security binds no superuser
        on_server = shared.url(shared.database(), shared.ada)
        urls = {"SQLite": f"sqlite:///{home.ledger}", "Postgres": on_server}
        for url in urls.values():
            with open_ledger(url) as ledger:
                rebuild(ledger, run_dirs)
        _settle(on_server)
        asked = {
            "report": ["--by", "project", "--by", "user"],
            "report --by run": ["--by", "run"],
        }
        starts = {
            (name, which): quiet(
                [_HPCFLOW, "cost", "report", *words],
                env={**os.environ, "HPCFLOW_HOME": str(home.path), "HPCFLOW_LEDGER": url},
            )
            for name, url in urls.items()
            for which, words in asked.items()
        }
        named = {" ".join(key): start for key, start in starts.items()}
        times = in_turn(named, _ROUNDS)
    finally:
        server.stop()
    found = []
    for name, which in starts:
        usages = times[f"{name} {which}"]
        has_goal = which == "report"
        found.append(
            Row(
                f"`hpcflow cost {which}` over {_RUNS * _ATTEMPTS:,} attempts, {name}, whole "
                "process",
                f"{wall(usages):.2f} s, {max(usage.peak_mb for usage in usages):.0f} MB",
                f"at most {_AT_MOST_S:g} s" if has_goal else "none",
                not has_goal or wall(usages) <= _AT_MOST_S,
            )
        )
    return found


def _bills(root: Path) -> Row:
    home = _home(root)
    run_dirs = [_make(root, home, number, 1, is_billed=False) for number in range(_ENDED)]
    programs = root / "bin"
    programs.mkdir()
    for name in ("squeue", "sacct"):
        (programs / name).write_text(_STAND_IN.format(name=name, folder=root))
        (programs / name).chmod(0o755)
    (root / "squeue.txt").touch()
    (root / "sacct.txt").write_text("".join(map(_row, range(_ENDED), run_dirs)))
    (root / "slurm.conf").write_text("ClusterName=devcluster\n")
    with open_ledger(str(home.ledger)) as ledger:
        catch_up(ledger, run_dirs)
    env = {
        **{name: text for name, text in os.environ.items() if name != "HPCFLOW_LEDGER"},
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HPCFLOW_HOME": str(home.path),
        "SLURM_CONF": str(root / "slurm.conf"),
    }
    took = time_process(quiet([_HPCFLOW, "ls"], env=env))
    calls = (root / "calls").read_text().split()
    again = time_process(quiet([_HPCFLOW, "ls"], env=env))
    with open_ledger(str(home.ledger)) as ledger:
        bills = ledger.bills(since=_first(), until=_first() + timedelta(days=400), filters={})
    assert [each.billed_by for each in bills] == ["accounting"] * _ENDED, bills[:2]
    sacct = calls.count("sacct")
    return Row(
        f"`hpcflow ls` that journals the bills of {_ENDED:,} jobs which have just ended",
        f"{sacct} sacct, {took.wall_s:.2f} s (with nothing to do: {again.wall_s:.2f} s)",
        "one sacct call",
        sacct == 1,
    )


def _home(root: Path) -> Home:
    home = Home(root / "home")
    home.runs.mkdir(parents=True)
    home.path.chmod(0o700)
    return home


def _first() -> datetime:
    return SystemClock().now().replace(microsecond=0) - timedelta(days=365)


def _make(root: Path, home: Home, number: int, attempts: int, *, is_billed: bool) -> RunDir:
    """A run as its files would be, written without fsync."""
    at = _first() + timedelta(minutes=20 * number)
    run = make_run(
        root / "scratch",
        name=f"run{number % 100}",
        at=at,
        project=f"project{number % 40}",
        resources=_RESOURCES,
    )
    run = run.model_copy(update={"user": pwd.getpwuid(os.getuid()).pw_name})
    run_dir = make_files(home, run)
    records: list[JournalRecord] = []
    for attempt in range(1, attempts + 1):
        records += _lived(run.run_id, number * attempts + attempt, attempt, at, is_billed)
    run_dir.journal.write_text("".join(record.to_line() for record in records))
    return run_dir


def _lived(
    run_id: str, number: int, attempt: int, at: datetime, is_billed: bool
) -> list[JournalRecord]:
    """What the journal has of an attempt of an hour."""
    job, begin = str(1_000_000 + number), at + timedelta(hours=attempt)
    end = begin + timedelta(hours=1)
    name = job_name(run_id, attempt)
    who = {"attempt": attempt, "job_id": job}
    times = {"submitted_at": begin, "started_at": begin, "ended_at": end}
    state = {"state": AttemptState.ENDED, "raw_state": "PREEMPTED", "nodes": ["n1"]}
    cause = Cause.PREEMPTED
    records: list[JournalRecord] = [
        Intended(at=begin, attempt=attempt, job_name=name, scheduler="slurm", partition="gpu"),
        Submitted(at=begin, **who),
        Observed(at=end, **who, **times, **state),
        Ended(at=end, attempt=attempt, cause=cause, raw_state="PREEMPTED", ended_at=end, rule="x"),
    ]
    if is_billed:
        charge = ChargeLine(
            kind="gpu:a100", begin=begin, end=end, hours=Decimal(4), cost_usd=Decimal(12)
        )
        records.append(
            Accounted(
                at=end,
                **who,
                source="accounting",
                started_at=begin,
                ended_at=end,
                elapsed_s=Decimal(3600),
                nodes=1,
                cpus=16,
                gpus={"a100": 4},
                gpu_hours=Decimal(4),
                cost_usd=Decimal("12.00000001"),
                charges=[charge],
            )
        )
    return records


def _row(number: int, run_dir: RunDir) -> str:
    """What sacct prints of the job of a run."""
    at = _first() + timedelta(minutes=20 * number)
    begin = at + timedelta(hours=1)
    end = begin + timedelta(hours=1)
    fields = {
        "JobID": str(1_000_001 + number), "State": "PREEMPTED", "ExitCode": "0:15",
        "Submit": format_time(begin), "Start": format_time(begin), "End": format_time(end),
        "Partition": "gpu", "Account": "physics", "NodeList": "n1", "Reason": "None",
        "QOS": "normal", "ElapsedRaw": "3600", "JobName": job_name(run_dir.path.name, 1),
        "DBIndex": str(1 + number),
        "AllocTRES": "billing=16,cpu=16,gres/gpu:a100=4,gres/gpu=4,mem=2000M,node=1",
    }  # fmt: skip
    return FIELD_END.join(fields[name] for name in ACCOUNTING_FIELDS) + "\n"


def _settle(url: str) -> None:
    """What a server does by itself within a minute, and the measurement takes less: count."""
    import psycopg

    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as raw:
        raw.execute("VACUUM ANALYZE")


def main() -> int:
    """Print the table; 0 if every goal is met."""
    found = rows()
    for row in found:
        print(f"{row.what}: {row.measured}; goal {row.goal}: {'met' if row.is_met else 'MISSED'}")
    return 0 if all(row.is_met for row in found) else 1


if __name__ == "__main__":
    sys.exit(main())
