"""What jobs write is torn, garbage or taken back, or finds no space: the runs go on to their end.

On real Slurm, with real jobs that write meanwhile. A disk that is full at each single write of the
daemon cannot be had there: that is tests/requeue/test_faults_files.py, on the shipped fake.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from hpcflow.testing.cluster import Cluster, User, poll
from tests.cluster_fixture import small_disk
from tests.e2e.conftest import Hpcflow
from tests.e2e.counted import (
    CHECKPOINT_EVERY,
    NEVER_SAVES,
    Counted,
    assert_counted,
    complete,
    start,
    take_all_nodes,
    watch,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

#: The last of it is a line without an end; the job goes on behind it.
GARBAGE = b"\0" * 5000 + bytes(range(256)) * 20 + b'{"event": "exited", "exit_code": 0'


def cut_in_a_line(events: Path) -> None:
    os.truncate(events, events.stat().st_size - 20)


def add_garbage(events: Path) -> None:
    with events.open("ab") as file:
        file.write(GARBAGE)


def write_shorter(events: Path) -> None:
    """All but its first line is gone."""
    with events.open("rb") as file:
        os.truncate(events, len(file.readline()))


def events(run: Counted, attempt: int) -> Path:
    return run.run_dir.attempt(attempt).events


def has_reported_much(run: Counted) -> bool:
    return len(run.events(2, "checkpoint")) >= 8


@pytest.mark.soak
def test_events_that_are_cut_or_garbage_or_written_shorter_while_jobs_write_them(
    hpcflow: Hpcflow, cluster: Cluster, grace: User
) -> None:
    with watch(hpcflow) as daemon:
        runs = {fault: start(hpcflow) for fault in (cut_in_a_line, add_garbage, write_shorter)}
        for fault, run in runs.items():
            run.wait_training(saves=8)
            hpcflow("show", run.run_id)  # the ledger has all of it
            fault(events(run, 1))
        daemon.wait_says("is shorter than what was read of it before")

        take_all_nodes(grace)
        for fault, run in runs.items():
            run.wait_ended()
            fault(events(run, 1))
        for run in runs.values():
            run.wait_training(2)
            poll(partial(has_reported_much, run), 300, "it reports no checkpoints")
            hpcflow("show", run.run_id)
            write_shorter(events(run, 2))  # until its end it stays shorter than it was
            run.tell("finish")
        complete(list(runs.values()))
    assert_counted(hpcflow, cluster, list(runs.values()))
    listed = {each["run_id"]: each for each in hpcflow.json("ls")["runs"]}
    for run in runs.values():
        shown = hpcflow.json("show", run.run_id)
        assert [each["cause"] for each in shown["attempts"]] == ["preempted", "completed"]
        for said in (shown, listed[run.run_id]):
            assert said["state"] == "completed"
            assert said["train_step"] == run.executions[-1].reached


@contextmanager
def nothing_starts(cluster: Cluster) -> Iterator[None]:
    """For the length of the block, in the partition ``spot``."""
    cluster.run("scontrol", "update", "partitionname=spot", "state=down")
    try:
        yield
    finally:
        cluster.run("scontrol", "update", "partitionname=spot", "state=up")


def fill(folder: Path) -> None:
    """Take what space is left."""
    with (folder / "ballast").open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)


@pytest.mark.soak
def test_a_scratch_that_is_full_while_jobs_write_and_are_preempted(
    hpcflow: Hpcflow, cluster: Cluster, grace: User
) -> None:
    """What the programs say of their executions is on another disk."""
    folder, evidence = hpcflow.home.parent / "small", hpcflow.home.parent / "evidence"
    hpcflow.user.run(["mkdir", str(folder), str(evidence)])
    small = replace(hpcflow, env={**hpcflow.env, "SCRATCH": str(folder)})
    with small_disk(folder, "16m", owner=hpcflow.user.entry.pw_uid), watch(hpcflow) as daemon:
        with nothing_starts(cluster):
            runs = [start(small), start(small, *NEVER_SAVES)]
            for run in runs:
                ours = run.path / "executions.jsonl"
                hpcflow.user.run(["ln", "-s", str(evidence / run.run_id), str(ours)])
        for run in runs:
            run.wait_training(saves=0)

        reached = [run.executions[0].reached for run in runs]

        def have_trained_on() -> bool:
            fill(folder)
            return all(
                run.executions[0].reached > before + 2 * CHECKPOINT_EVERY
                for run, before in zip(runs, reached, strict=True)
            )

        poll(have_trained_on, 300, "a full disk has ended a training")
        for run in runs:  # whether or not its job could still write down that its save failed
            assert "→ make room: hpcflow " in hpcflow("show", run.run_id).stderr
        take_all_nodes(grace)
        daemon.wait_says("No space left on device")
        poll(lambda: not any(run.is_alive() for run in runs), 300, "they were not preempted")
        assert [len(run.job_ids) for run in runs] == [1, 1]
        (folder / "ballast").unlink()
        for run in runs:
            run.wait_training(2, saves=0)
        complete(runs)
        assert_counted(hpcflow, cluster, runs)
        for run in runs:
            assert run.causes == ["preempted", "completed"]
