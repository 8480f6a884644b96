"""Two attempts that save at once: the older one should be over, and loses."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from hpcflow.testing.cluster import poll
from tests.runtime.harness import RunFolder, Training, run, start
from tests.runtime.program import BATCHES, EPOCHS

LAST = EPOCHS * BATCHES


def claim(folder: RunFolder, attempt: int) -> None:
    """As a job does before it executes an attempt."""
    path = folder.path / "attempts" / f"{attempt:04d}"
    path.mkdir(parents=True, exist_ok=True)
    (path / "claim").write_text("7\n")


def test_an_attempt_that_was_withdrawn_is_no_successor(folder: RunFolder) -> None:
    """A standby that was held, or not needed: its claim is sealed, and no job executes it."""
    folder.variables.update(HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS="10")
    for number, content in ((2, "withdrawn\n"), (3, "")):
        claim(folder, number)
        (folder.path / "attempts" / f"{number:04d}" / "claim").write_text(content)
    assert run(folder) == [0]
    assert made_by(folder) == dict.fromkeys([10, 20, 30, LAST], 1)


def made_by(folder: RunFolder) -> dict[int, int]:
    """Train step -> the attempt that has made its checkpoint."""
    return {
        train_step: json.loads((folder.checkpoint(train_step) / "manifest.json").read_bytes())[
            "attempt"
        ]
        for train_step in folder.complete()
    }


def wait_stopped(training: Training) -> None:
    """Wait until rank 0 has stopped itself."""
    stat = Path("/proc", str(training.processes[0].pid), "stat")
    poll(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", 120, training.log)


def go_on(training: Training) -> None:
    pid = training.processes[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("world_size", [1, 2])
def test_an_attempt_that_comes_to_life_again_saves_nothing_among_those_of_its_successor(
    folder: RunFolder, world_size: int
) -> None:
    folder.variables.update(HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS="10", PATIENT="1")
    older = start(folder, world_size, HURT="0:17:STOP")
    wait_stopped(older)
    assert made_by(folder) == {10: 1}

    newer = RunFolder(folder.path, 2, folder.variables)
    claim(newer, 2)
    assert run(newer, world_size) == [0] * world_size
    expected = {10: 1, 20: 2, 30: 2, LAST: 2}
    assert made_by(folder) == expected

    go_on(older)
    assert older.exit_codes_by_themselves() == [1] * world_size
    assert made_by(folder) == expected
    failed = [event["train_step"] for event in folder.events("checkpoint_failed")]
    assert failed == [20], "it trained on, and nobody will ever have it"
    assert "attempt 2 executes this run now; attempt 1 should have ended" in older.log()


def test_nor_what_was_being_written_when_the_successor_began(folder: RunFolder) -> None:
    folder.variables.update(HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS="10", SLOW="5")
    assert run(folder, HURT="0:12:be_succeeded") == [1]
    assert folder.complete() == []
    assert list(folder.checkpoints.iterdir()) == [], "half of one was left behind"


def test_what_it_published_in_the_last_moment_gives_way(folder: RunFolder) -> None:
    """Between its look and its rename, the later attempt has chosen what to resume from."""
    folder.variables.update(HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS="10", PATIENT="1")
    newer = RunFolder(folder.path, 2, folder.variables)
    waits = start(newer, HURT="0:17:STOP")
    wait_stopped(waits)
    assert run(folder, HURT="0:27:KILL") == [-signal.SIGKILL]
    assert made_by(folder) == {10: 2, 20: 1}

    go_on(waits)
    assert waits.exit_codes_by_themselves() == [0]
    assert made_by(folder) == {10: 2, 20: 2, 30: 2, LAST: 2}


@pytest.mark.parametrize("world_size", [1, 2])
def test_an_attempt_that_begins_late_leaves_what_its_successor_writes(
    folder: RunFolder, world_size: int
) -> None:
    claim(folder, 2)
    writes = folder.checkpoints / ".000000010.00000000deadbeef.tmp"
    writes.mkdir(parents=True)

    older = start(folder, world_size)

    assert older.exit_codes_by_themselves() == [1] * world_size
    assert "attempt 2 executes this run now; attempt 1 should have ended" in older.log()
    assert list(folder.checkpoints.iterdir()) == [writes]


def test_an_attempt_that_only_waits_for_this_one_to_end_is_no_successor(folder: RunFolder) -> None:
    (folder.path / "attempts" / "0002").mkdir(parents=True)
    assert run(folder) == [0]
    assert folder.complete() == [LAST]
