"""What keeping checkpoints costs, from the files of 1,000 runs that are over: all, and of late.

Each run has told its progress 1,000 times, and has removed all ten of its checkpoints again.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from hpcflow.clock import SystemClock, to_text
from hpcflow.costs.checkpoint_costs import checkpoint_costs
from hpcflow.ledger.store import Ledger, open_ledger
from hpcflow.model.ids import job_name
from hpcflow.model.journal import Ended, Intended, JournalRecord, Observed, Submitted
from hpcflow.model.state import AttemptState, Cause
from hpcflow.projection import rebuild
from hpcflow.sites.schema import Site
from hpcflow.storage.layout import Home, RunDir
from tests.benchmarks.records import make_files
from tests.benchmarks.timing import Row
from tests.storage.runs import make_run

_RUNS: Final = 1_000
_LINES: Final = 1_000
_EVERY: Final = 100  # lines: a checkpoint
_SITE: Final = {
    "name": "devcluster",
    "scheduler": "local",
    "scratch": {"path": "/scratch", "price": {"storage_usd_per_gb_month": "1"}},
    "partitions": {"gpu": {"cpus_per_node": 64}},
}


def rows() -> list[Row]:
    """Measure both, in a folder of its own on the disk of this machine."""
    root = Path(tempfile.mkdtemp(prefix="hpcflow-bench-"))
    now = SystemClock().now()
    try:
        home = Home(root / "home")
        run_dirs = [_make(home, now - timedelta(days=365, minutes=n)) for n in range(_RUNS)]
        with open_ledger(str(root / "ledger.sqlite")) as ledger:
            rebuild(ledger, run_dirs)
            every, gb_months = _time(ledger, home, now - timedelta(days=1000), now)
            late, nothing = _time(ledger, home, now - timedelta(days=1), now)
    finally:
        shutil.rmtree(root)
    assert gb_months, "what was kept was counted"
    assert not nothing, "and nothing was, of late"
    what = f"checkpoints in `hpcflow cost report`, {_RUNS:,} runs with {_LINES:,} events"
    return [
        Row(what, f"{every:.2f} s", "none", is_met=True),
        Row(f"{what}, `--since 1d`", f"{late:.2f} s", "none", is_met=True),
    ]


def _time(ledger: Ledger, home: Home, since: datetime, until: datetime) -> tuple[float, float]:
    site = Site.model_validate(_SITE)
    began = time.perf_counter()
    found = checkpoint_costs(
        ledger,
        ("project",),
        since=since,
        until=until,
        filters={},
        everyone=True,
        find_site=lambda _: site,
        home=home,
    )
    return time.perf_counter() - began, float(found.report.total.gb_months)


def _make(home: Home, at: datetime) -> RunDir:
    """A run as its files would be, written without fsync."""
    run_dir = make_files(home, run := make_run(home.path.parent, at=at))
    end = at + timedelta(seconds=_LINES)
    who = {"attempt": 1, "job_id": "1"}
    times = {"submitted_at": at, "started_at": at, "ended_at": end}
    name = job_name(run.run_id, 1)
    records: list[JournalRecord] = [
        Intended(at=at, attempt=1, job_name=name, scheduler="slurm", partition="gpu"),
        Submitted(at=at, **who),
        Observed(at=end, **who, **times, state=AttemptState.ENDED, raw_state="COMPLETED"),
        Ended(
            at=end, attempt=1, cause=Cause.COMPLETED, raw_state="COMPLETED", ended_at=end, rule="x"
        ),
    ]
    run_dir.journal.write_text("".join(record.to_line() for record in records))
    run_dir.attempt(1).events.write_text("".join(map(_events, [at] * _LINES, range(1, _LINES + 1))))
    return run_dir


def _events(begin: datetime, step: int) -> str:
    at = to_text(begin + timedelta(seconds=step))
    said = {"at": at, "event": "progress", "train_step": step}
    line = json.dumps({**said, "metrics": {"loss": 1 / step, "lr": 1e-4}, "epoch": 0.5}) + "\n"
    if step % _EVERY:
        return line
    saved = {"train_step": step, "path": f"checkpoints/{step:09d}", "size_bytes": 10**9}
    later = to_text(begin + timedelta(seconds=step + _EVERY / 2))
    return (
        f"{line}{json.dumps({'at': at, 'event': 'checkpoint', **saved})}\n"
        f"{json.dumps({'at': later, 'event': 'checkpoint_removed', **saved})}\n"
    )
