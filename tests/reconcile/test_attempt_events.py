"""What an attempt says of itself is found in its events, however many there are."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from hpcflow.model.events import MAX_LINE_BYTES
from hpcflow.reconcile import attempt_events
from hpcflow.reconcile.attempt_events import (
    first_notice,
    has_finished,
    last_exit,
    was_told_to_leave,
)
from hpcflow.storage.layout import RunDir

AT = "2026-03-01T00:00:00.000Z"
STARTED: dict[str, Any] = {"event": "started", "job_id": "17", "nodes": ["n1"]}
PROGRESS: dict[str, Any] = {"event": "progress", "train_step": 1, "metrics": {"loss": 0.1}}
NOTICE: dict[str, Any] = {"event": "notice", "signal": "TERM"}
FINISHED: dict[str, Any] = {"event": "finished", "train_step": 9}
EXITED: dict[str, Any] = {"event": "exited", "exit_code": 75}


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    run_dir = RunDir(tmp_path)
    run_dir.attempt(1).path.mkdir(parents=True)
    return run_dir


def line(event: dict[str, Any]) -> bytes:
    return json.dumps({"at": AT, **event}).encode() + b"\n"


def say(run_dir: RunDir, *lines: bytes) -> None:
    with run_dir.attempt(1).events.open("ab") as file:
        file.writelines(lines)


def words(run_dir: RunDir) -> tuple[str | None, bool, int | None]:
    """Its first notice, whether it has finished, and its last exit code."""
    end = last_exit(run_dir, 1)
    return first_notice(run_dir, 1), has_finished(run_dir, 1), end[0] if end else None


@pytest.mark.parametrize("portion_bytes", [1, 7, 100, 1 << 20])
def test_the_same_is_found_in_whatever_portions_it_is_read(
    run_dir: RunDir, monkeypatch: pytest.MonkeyPatch, portion_bytes: int
) -> None:
    monkeypatch.setattr(attempt_events, "_PORTION_BYTES", portion_bytes)
    assert words(run_dir) == (None, False, None)
    say(run_dir, line(STARTED), line(PROGRESS))
    assert words(run_dir) == (None, False, None)
    say(run_dir, line(NOTICE), b"garbage\n\n", line({**NOTICE, "signal": "USR2"}), line(FINISHED))
    assert words(run_dir) == ("TERM", True, None)
    say(run_dir, line(EXITED).rstrip(), b"\n\0\0")
    assert words(run_dir) == ("TERM", True, 75)
    say(run_dir, b"\n", line(STARTED), line(PROGRESS))
    assert words(run_dir) == ("TERM", False, None), "Slurm has started it again"


def test_a_metric_of_such_a_name_is_no_notice(run_dir: RunDir) -> None:
    say(run_dir, line(STARTED), line({**PROGRESS, "metrics": {"notice": 1.0}}))
    assert not was_told_to_leave(run_dir, 1)


def test_the_events_of_a_week_are_judged_in_a_modest_memory(run_dir: RunDir) -> None:
    endless = b"x" * (5 * MAX_LINE_BYTES) + b"\n"
    say(run_dir, line(STARTED), *[line(PROGRESS) * 1000] * 200, endless, line(FINISHED))
    assert run_dir.attempt(1).events.stat().st_size > 20e6
    tracemalloc.start()
    try:
        assert words(run_dir) == (None, True, None)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8e6
