"""Whether a cancel for a stall is what ended an attempt, or somebody else much later."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from hpcflow.history import RunHistory
from hpcflow.model.journal import Stall
from hpcflow.reconcile.attempt_events import last_sign, time_there
from hpcflow.reconcile.attribute_stall import CANCEL_TAKES, attribute_stall
from hpcflow.storage.layout import RunDir
from tests.reconcile.test_classify_end import NOW, RUNNING, answer

SOON, LATE = CANCEL_TAKES.total_seconds() - 1, CANCEL_TAKES.total_seconds() + 1
#: The clock that files have their times from is another one.
FILES_NOW = datetime(2031, 5, 1, tzinfo=timezone.utc)


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    run_dir = RunDir(tmp_path)
    run_dir.attempt(1).path.mkdir(parents=True)
    return run_dir


def cancel(at: datetime = NOW, files_at: datetime | None = FILES_NOW) -> Stall:
    said = {"action": "cancel", "rule": "silent", "why": "x", "silent_s": 1, "signs": 1}
    said |= {"attempt": 1, "at": at, "files_at": files_at, "longest_s": 1}
    return Stall.model_validate(said)


def is_ours(run_dir: RunDir, slurm_s: float | None, *, said: Sequence[Stall] = (cancel(),)) -> bool:
    """Slurm has ended the job so long after NOW; None where it does not know it any more."""
    job = answer("CANCELLED by 1000")
    if slurm_s is not None:
        job = replace(job, ended_at=NOW + timedelta(seconds=slurm_s))
    history = RunHistory.of(said)
    return (
        attribute_stall(run_dir, history, RUNNING, job if slurm_s is not None else None) is not None
    )


def writes(path: Path, later_s: float) -> None:
    path.touch()
    moment = FILES_NOW.timestamp() + later_s
    os.utime(path, (moment, moment))


@pytest.mark.parametrize(
    ("slurm_s", "files_s", "ours"),
    [
        (SOON, SOON, True),
        (LATE, LATE, False),
        (SOON, LATE, True),
        (LATE, SOON, True),
        (LATE, -1800, True),
        (-3600, LATE, True),
        (None, SOON, True),
        (None, LATE, False),
        (SOON, None, True),
        (LATE, None, False),
        (None, None, True),
    ],
)
@pytest.mark.parametrize("name", ["log", "events"])
def test_only_where_nobody_knows_better_the_end_is_somebody_elses(
    run_dir: RunDir, name: str, slurm_s: float | None, files_s: float | None, ours: bool
) -> None:
    if files_s is not None:
        writes(getattr(run_dir.attempt(1), name), files_s)
    assert is_ours(run_dir, slurm_s) is ours


def test_a_cancel_that_is_said_again_counts_from_then(run_dir: RunDir) -> None:
    hour = timedelta(hours=1)
    writes(run_dir.attempt(1).log, 3600)
    assert not is_ours(run_dir, 3600)
    assert is_ours(run_dir, 3600, said=[cancel(), cancel(NOW + hour, FILES_NOW + hour)])


def test_a_record_of_before_files_were_asked_leaves_it_to_slurm(run_dir: RunDir) -> None:
    writes(run_dir.attempt(1).log, LATE)
    for slurm_s, ours in ((SOON, True), (LATE, False), (None, True)):
        assert is_ours(run_dir, slurm_s, said=[cancel(files_at=None)]) is ours


def test_the_time_there_is_that_of_what_is_written_then(run_dir: RunDir) -> None:
    before = time_there(run_dir, 1)
    run_dir.attempt(1).log.write_text("x")
    written, after = last_sign(run_dir, 1), time_there(run_dir, 1)
    assert before is not None
    assert written is not None
    assert after is not None
    assert before <= written <= after
    assert [each.name for each in run_dir.attempt(1).path.iterdir()] == ["out.log"]


def test_events_of_whatever_size_are_not_read_for_it(run_dir: RunDir) -> None:
    with run_dir.attempt(1).events.open("w") as file:
        file.truncate(100_000_000)  # one line
    tracemalloc.start()
    try:
        is_ours(run_dir, SOON)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1e6
