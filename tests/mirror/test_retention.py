"""Which checkpoints the store keeps."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from hpcflow.clock import SystemClock, to_text
from hpcflow.mirror.passes import Pass
from hpcflow.mirror.records import read_records
from hpcflow.mirror.retention import to_remove
from hpcflow.mirror.stores import Stores
from hpcflow.mirror.survey import read_mirror
from hpcflow.storage.layout import RunDir
from hpcflow.testing.clock import FakeClock
from tests.mirror.runs import Desk, desk_in, save


@pytest.fixture
def desk(bucket_url: str, tmp_path: Path) -> Desk:
    return desk_in(tmp_path, bucket_url)


def let_go(
    run_dir: RunDir,
    *train_steps: int,
    event: str = "checkpoint_removed",
    at: datetime | None = None,
) -> None:
    """What a job says when it has removed checkpoints by its rule, or made them."""
    attempt = run_dir.attempt(1)
    attempt.path.mkdir(parents=True, exist_ok=True)
    with attempt.events.open("a") as file:
        for train_step in train_steps:
            said = {"at": to_text(at or SystemClock().now()), "event": event}
            path = f"checkpoints/{train_step:09d}"
            size = {"train_step": train_step, "path": path, "size_bytes": 1}
            file.write(json.dumps({**said, **size}) + "\n")


def test_one_that_was_made_again_after_it_was_let_go_stays(desk: Desk) -> None:
    run_dir = desk.make(keep_last=1)
    let_go(run_dir, 100)
    for train_step in (100, 200):
        save(run_dir, train_step)
    desk.mirror()
    for train_step in (100, 200):
        shutil.rmtree(run_dir.checkpoints / f"{train_step:09d}")
    assert desk.mirror().removed == []


def test_the_rule_for_keeping_there(desk: Desk) -> None:
    run_dir = desk.make(keep_last=2)
    for train_step in (100, 200, 300, 400):
        save(run_dir, train_step)
    desk.mirror()
    assert desk.mirror().removed == []  # the run directory has them all

    for train_step in (100, 200, 300, 400):
        shutil.rmtree(run_dir.checkpoints / f"{train_step:09d}")
    assert desk.mirror().removed == []  # a purge took them, no rule
    let_go(run_dir, 100, 200, 300, 400)
    assert [step for _, step in desk.mirror().removed] == [100, 200]
    assert list(desk.stored(run_dir)) == [400, 300]
    assert not any("000000100" in name for name in desk.remote.names())
    assert desk.mirror().removed == []


def test_events_of_a_long_training_are_read_line_by_line(tmp_path: Path) -> None:
    desk = desk_in(tmp_path, str(tmp_path / "store"))
    run_dir = desk.make(keep_last=1)
    for train_step in (100, 200):
        save(run_dir, train_step)
    desk.mirror()
    for train_step in (100, 200):
        shutil.rmtree(run_dir.checkpoints / f"{train_step:09d}")
    run_dir.attempt(1).path.mkdir(parents=True, exist_ok=True)
    with run_dir.attempt(1).events.open("ab") as file:
        for _ in range(80):
            file.write(b'"checkpoint' + b" " * (1 << 20) + b"\n")
    let_go(run_dir, 100, 200)
    mirror = read_mirror(run_dir)
    assert mirror is not None
    records = read_records(run_dir, mirror.url)
    tracemalloc.start()
    try:
        found = to_remove(run_dir, mirror, records, set(), SystemClock().now())
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert found == [100]


def test_the_newest_stays_however_old(desk: Desk) -> None:
    run_dir = desk.make(keep_for_s=3600)
    for train_step in (100, 200):
        save(run_dir, train_step)
        desk.mirror()
        shutil.rmtree(run_dir.checkpoints / f"{train_step:09d}")
        let_go(run_dir, train_step)
    assert desk.mirror().removed == []
    later = FakeClock(SystemClock().now())
    later.advance(7200)
    assert removed(desk, run_dir, later) == []
    later.advance(3599)
    assert removed(desk, run_dir, later) == []
    later.advance(1)
    assert removed(desk, run_dir, later) == [100]
    assert desk.mirror().removed == []


def removed(desk: Desk, run_dir: RunDir, clock: FakeClock) -> list[int]:
    """What a pass at this time takes from the store."""
    with Stores(clock) as stores:
        report = Pass(desk.home, clock, stores).run(lambda: [run_dir])
    assert report.problems == {}
    return [step for _, step in report.removed]


@pytest.mark.parametrize("passes", [1, 5])
@pytest.mark.parametrize("keep_last", [None, 1])
def test_a_clock_that_is_years_ahead_for_some_passes_takes_nothing_from_the_store(
    desk: Desk, passes: int, keep_last: int | None
) -> None:
    """For good: the run directory does not have it any more."""
    run_dir = desk.make(keep_for_s=90 * 24 * 3600, keep_last=keep_last)
    for train_step in (100, 200):
        save(run_dir, train_step)
        desk.mirror()
        shutil.rmtree(run_dir.checkpoints / f"{train_step:09d}")
        let_go(run_dir, train_step)
    clock = FakeClock(SystemClock().now())
    ten_years_s = 10 * 365 * 24 * 3600
    clock.advance(ten_years_s)
    for _ in range(passes):
        assert removed(desk, run_dir, clock) == []
        clock.advance(30)
    clock.advance(-ten_years_s)
    for _ in range(2):
        assert removed(desk, run_dir, clock) == []
        clock.advance(3600)
    clock.advance(90 * 24 * 3600)  # what a pass noted by the clock that was ahead is no first look
    assert removed(desk, run_dir, clock) == []
    clock.advance(3600)
    assert removed(desk, run_dir, clock) == [100]


@pytest.mark.parametrize("behind_s", [7 * 24 * 3600, 10 * 365 * 24 * 3600])
def test_a_clock_that_is_behind_while_it_mirrors_takes_nothing_from_the_store(
    desk: Desk, behind_s: int
) -> None:
    """The job has another clock: nothing is mirrored before it is made."""
    keep_for_s = 2 * 24 * 3600
    run_dir = desk.make(keep_for_s=keep_for_s)
    clock = FakeClock(SystemClock().now())
    save(run_dir, 100)
    let_go(run_dir, 100, event="checkpoint")
    clock.advance(-behind_s)
    assert removed(desk, run_dir, clock) == []
    clock.advance(behind_s + 1)
    save(run_dir, 200)
    let_go(run_dir, 200, event="checkpoint")
    assert removed(desk, run_dir, clock) == []
    for train_step in (100, 200):
        shutil.rmtree(run_dir.checkpoints / f"{train_step:09d}")
        let_go(run_dir, train_step)
    for _ in range(3):
        clock.advance(3600)
        assert removed(desk, run_dir, clock) == []
    clock.advance(keep_for_s)
    assert removed(desk, run_dir, clock) == []
    clock.advance(3600)
    assert removed(desk, run_dir, clock) == [100]


def test_a_job_whose_clock_is_ahead_keeps_nothing_for_years(desk: Desk) -> None:
    run_dir = desk.make(keep_for_s=3600)
    clock = FakeClock(SystemClock().now())
    for train_step in (100, 200):
        save(run_dir, train_step)
        let_go(run_dir, train_step, event="checkpoint", at=clock.now() + timedelta(days=3650))
        assert removed(desk, run_dir, clock) == []
        shutil.rmtree(run_dir.checkpoints / f"{train_step:09d}")
        let_go(run_dir, train_step)
    clock.advance(3601)
    assert removed(desk, run_dir, clock) == []
    clock.advance(3600)
    assert removed(desk, run_dir, clock) == [100]
