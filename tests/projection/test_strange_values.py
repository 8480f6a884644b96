"""A journal and events may hold any value, also one that no database stores: of every kind of
record, in every field. The run is read as far as it can be, and all others are read."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from hpcflow.ledger.store import Ledger, open_ledger
from hpcflow.projection import catch_up, check
from hpcflow.storage.layout import Home, RunDir
from hpcflow.storage.rundir import make_record, params_json
from tests.ledger import lines as say
from tests.ledger.databases import Databases
from tests.projection.files import everything, grow
from tests.storage.runs import make_run

_AT: Final = "2026-03-01T12:00:00.000Z"
_OF_ALL: Final = {"at": _AT, "by": "ada", "why": "because", "rule": "a rule", "reason": "Priority"}
#: One record of each kind, with every field.
RECORDS: Final[list[dict[str, Any]]] = [
    {"record": "intended", "attempt": 1, "job_name": "j", "scheduler": "slurm", "partition": "gpu"}
    | {"account": "a"}
    | {"resume_from": "checkpoints/1", "cluster": "c", "host": "h", "mem_mb": 10, "restarts": 1}
    | {"excluded": ["n1"], "mirror": "s3://lab/ada", "standby": True, "after": 1},
    {"record": "submitted", "attempt": 1, "job_id": "7", "cluster": "c"},
    {"record": "refused", "attempt": 1, "reason": "no", "retryable": True},
    {"record": "withdrawn", "attempt": 1, "reason": "no"},
    {"record": "observed", "attempt": 1, "job_id": "7", "state": "running", "raw_state": "RUNNING"}
    | {"nodes": ["n1"], "submitted_at": _AT, "begins_at": _AT, "started_at": _AT, "ended_at": _AT}
    | {"preempted_at": _AT, "exit_code": 1, "signal": 9, "last_sign": _AT, "host": "h"},
    {"record": "ended", "attempt": 1, "cause": "failed", "raw_state": "FAILED", "exit_code": 1}
    | {"ended_at": _AT},
    {"record": "accounted", "attempt": 1, "job_id": "7", "source": "accounting", "partition": "gpu"}
    | {"started_at": _AT, "ended_at": _AT, "elapsed_s": "60", "nodes": 1, "cpus": 1, "mem_mb": 1}
    | {"gpus": {"a100": 1}, "gpu_hours": "1", "cost_usd": "1", "cost_su": "1", "tries": 1}
    | {"on_demand_usd": "1", "account": "a", "qos": "q"}
    | {
        "charges": [
            {"kind": "gpu:a100", "begin": _AT, "end": _AT, "hours": "1", "cost_usd": "1"}
            | {"cost_su": "1"}
        ],
        "parts": [
            {"partition": "gpu", "account": "a", "gpu_type": "a100", "gpu_hours": "1"}
            | {"cost_usd": "1", "cost_su": "1", "on_demand_usd": "1"}
        ],
    },
    {"record": "begin_lifted", "attempt": 1, "job_id": "7", "refused": "no"},
    {"record": "cancel_requested", "signal": "pruned"},
    {"record": "resumed"},
    {"record": "held"},
    {"record": "released"},
    {"record": "decided", "after": 1, "action": "wait", "not_before": _AT, "mem_mb": 1},
    {"record": "stall", "attempt": 1, "action": "notice", "silent_s": 1.0, "signs": 1}
    | {"log_bytes": 1, "longest_s": 1.0, "files_at": _AT},
    {"record": "overspent", "attempt": 1, "budget": "project:vision"},
    {"record": "checkpoint_removed", "train_step": 1, "path": "checkpoints/1", "size_bytes": 1}
    | {"made_in": 1},
    {"record": "changed", "overrides": ["a=1"]},
    {"record": "restored", "url": "s3://lab/ada", "journal": True, "after": 1, "checkpoints": [1]}
    | {"skipped": [1], "newest": 1, "size_bytes": 1, "site": "s", "site_before": "s"}
    | {"run_dir_before": "/d"},
]
RECORDS.extend({"record": "standby", "says": {**_OF_ALL, **each}} for each in RECORDS[:4])
EVENTS: Final[list[dict[str, Any]]] = [
    {"event": "started", "job_id": "7", "nodes": ["n1"], "restarts": 0},
    {"event": "train_started", "world_size": 1, "framework": "torch", "total_train_steps": 9}
    | {"resumed_from": "checkpoints/1", "train_step": 1, "loader_workers": 1},
    {"event": "progress", "train_step": 1, "total_train_steps": 9, "epoch": 1.0, "data_wait_s": 1}
    | {"metrics": {"loss": 0.5}},
    {"event": "checkpoint", "train_step": 1, "path": "checkpoints/1", "size_bytes": 1, "epoch": 1}
    | {"metrics": {"loss": 0.5}, "held_s": 1, "write_s": 1, "interval_s": 1},
    {"event": "checkpoint_metrics", "train_step": 1, "path": "checkpoints/1", "size_bytes": 1}
    | {"epoch": 1, "metrics": {"loss": 0.5}, "created_at": _AT},
    {"event": "checkpoint_removed", "train_step": 1, "path": "checkpoints/1", "size_bytes": 1},
    {"event": "checkpoint_failed", "train_step": 1, "why": "disk full"},
    {"event": "notice", "signal": "TERM"},
    {"event": "finished", "train_step": 1, "metrics": {"loss": 0.5}, "model": "model.pt"},
    {"event": "usage", "seconds": 60, "samples": 2, "nodes": 1, "cpu_s": 1, "mem_peak_mb": 1},
    {"event": "exited", "exit_code": 0},
]
MIRROR: Final = {"at": _AT, "what": "mirrored", "url": "s3://lab/ada", "train_step": 1}
MIRROR_MORE: Final = {"size_bytes": 1, "manifest_sha256": "0" * 64}
#: Values as they stand in JSON.
STRANGE: Final = {
    "the year 1": '"0001-01-01T00:00:00Z"',
    "the year 9999": '"9999-12-31T23:59:59.999999-12:00"',
    "the first time": '"1900-01-01T00:00:00Z"',
    "the last time": '"9000-01-01T00:00:00Z"',
    "just before the last time": '"8999-12-31T23:59:59.999Z"',
    "a long text": json.dumps(random.Random(1).randbytes(4500).hex()),  # no database compresses it
    "the year 300000": '"300000-01-01T00:00:00Z"',
    "a time without a zone": '"2026-03-01T12:00:00"',
    "NaN": "NaN",
    "NaN in a text": '"NaN"',
    "sNaN": '"sNaN"',
    "infinity": "Infinity",
    "minus infinity in a text": '"-Infinity"',
    "too large a float": "1e400",
    "a large float": "1e308",
    "too large an amount": '"1e400"',
    "an endless amount": '"1E+999999"',
    "a tiny amount": '"1E-999999"',
    "above int32": str(2**31),
    "below int32": str(-(2**31) - 1),
    "above int64": str(2**63),
    "above any float": "1" + "0" * 400,
    "NUL": '"a\\u0000b"',
    "a lone surrogate": '"a\\ud800b"',
    "raw NUL": '"a\0b"',
    "a raw surrogate": '"a\udc80b"',
    "below any float": "-1" + "0" * 400,
    "negative": "-1",
}


def variants(record: Any) -> Iterator[Any]:
    """``record`` with a mark in the place of one value, or name, in it; of each one."""
    if isinstance(record, dict):
        for name, value in record.items():
            if name in ("record", "event", "what"):
                continue
            yield {**record, name: "MARK"}
            for changed in variants(value):
                yield {**record, name: changed}
        if record and not record.keys() & {"at", "kind"}:
            yield {"MARK": value, **record}
    elif isinstance(record, list):
        for changed in ("MARK", *(each for old in record for each in variants(old))):
            yield [changed]


@cache
def _marked(record: str) -> list[str]:
    return [json.dumps(each) for each in variants(json.loads(record))]


def lines_with(record: dict[str, Any], value: str) -> list[bytes]:
    """The lines of ``variants(record)`` with ``value``."""
    # No object has a name that is not a text.
    texts = [
        text
        for text in _marked(json.dumps(record))
        if value.startswith('"') or '"MARK": ' not in text
    ]
    return [
        (text.replace('"MARK"', value) + "\n").encode("utf-8", "surrogateescape") for text in texts
    ]


def run_without_code(root: Path) -> RunDir:
    """A run whose directory has no copy of the runtime, because no job of it starts."""
    run, home = make_run(root / "scratch"), Home(root / "home")
    run_dir = home.run_dir(Path(run.run_dir))
    run_dir.path.mkdir(parents=True)
    run_dir.params_json.write_bytes(params_json(run))
    assert make_record(home, run)
    return run_dir


def strange_runs(root: Path, value: str) -> Iterator[RunDir]:
    """Runs with such lines. Lines about an attempt are all in one run: each about its own one."""
    many = run_without_code(root)
    attempt = 0
    for record in [{**_OF_ALL, **each} for each in RECORDS]:
        for line in lines_with(record, value):
            run_dir = many if "attempt" in record else run_without_code(root)
            attempt = attempt + 1 if "attempt" in record else 1
            grow(run_dir.journal, say.intended(attempt), say.submitted(attempt))
            grow(run_dir.journal, line.replace(b'"attempt": 1', b'"attempt": %d' % attempt))
            if run_dir is not many:
                yield run_dir
    for line in [each for event in EVENTS for each in lines_with({"at": _AT, **event}, value)]:
        attempt += 1
        grow(many.journal, say.intended(attempt), say.submitted(attempt))
        grow(many.attempt(attempt).events, line)
    for line in lines_with({**MIRROR, **MIRROR_MORE}, value):
        grow(many.mirror, line)
    yield many


@pytest.mark.postgres
@pytest.mark.parametrize("value", STRANGE.values(), ids=STRANGE)
def test_a_strange_value_in_any_field_lets_all_runs_be_read(
    both_databases: list[Databases], tmp_path: Path, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # hundreds of runs
    run_dirs = list(strange_runs(tmp_path, value))
    sqlite, postgres = (open_ledger(each.with_tables()) for each in both_databases)
    with sqlite, postgres:
        for ledger in (sqlite, postgres):
            require_all_read(ledger, run_dirs)
        assert check(sqlite, run_dirs) == []
        assert everything(postgres, run_dirs) == everything(sqlite, run_dirs)


def require_all_read(ledger: Ledger, run_dirs: list[RunDir]) -> None:
    summary = catch_up(ledger, run_dirs)
    assert summary.problems == []
    assert len(summary.changed) == len(run_dirs)
    ids = {run_dir.path.name for run_dir in run_dirs}
    assert {run.run_id for run in ledger.runs()} == ids
    assert ledger.known(sorted(ids)).keys() == ids
    for run_id in ids:
        ledger.run(run_id)
