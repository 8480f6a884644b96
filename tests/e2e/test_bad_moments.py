"""A preemption at the worst moments: in a save, before the first one, to a program that is deaf.

And files that are deleted at a bad one: the run directory of a job that runs.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hpcflow.testing.cluster import Cluster, User, poll
from tests.e2e.conftest import Hpcflow
from tests.e2e.counted import (
    CHECKPOINT_EVERY,
    NEVER_SAVES,
    assert_counted,
    complete,
    start,
    take_all_nodes,
    watch,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

DEAF = ("--set", "params.deaf=true")


@contextmanager
def no_grace(cluster: Cluster) -> Iterator[None]:
    """For the length of the block, the partition ``spot`` is without a grace time.

    Slurm sends TERM all the same, and KILL after KillWait: a notice of five seconds that no site
    promises.
    """
    cluster.run("scontrol", "update", "partitionname=spot", "gracetime=0")
    try:
        yield
    finally:
        cluster.run("scontrol", "update", "partitionname=spot", "gracetime=5")


def test_no_more_is_lost_than_since_the_last_checkpoint(
    hpcflow: Hpcflow, cluster: Cluster, grace: User
) -> None:
    with no_grace(cluster), watch(hpcflow):
        torn, fresh, deaf = start(hpcflow), start(hpcflow, *NEVER_SAVES), start(hpcflow, *DEAF)
        fresh.tell("stick")  # else it would save on notice
        for run in (torn, fresh, deaf):
            run.wait_training(saves=0 if run is fresh else 1)
        torn.tell("stick")
        poll((torn.path / "stuck").exists, 300, "it never saved again")
        whole = torn.checkpoints()
        take_all_nodes(grace)
        for run in (torn, fresh, deaf):
            run.wait_ended()
            run.take_back("stick")
        complete([torn, fresh, deaf])
    assert_counted(hpcflow, cluster, [torn, fresh, deaf])
    for run in (torn, fresh, deaf):
        assert run.causes == ["preempted", "completed"]

    assert int((torn.path / "stuck").read_text()) not in whole
    assert torn.executions[1].began_at == whole[-1], "the one before the torn one"

    assert fresh.executions[1].began_at == 0

    assert deaf.events(1, "notice") == []
    before, after = deaf.executions
    assert 0 <= before.reached - after.began_at <= CHECKPOINT_EVERY

    for run in (torn, fresh, deaf):
        before, after = run.executions
        first, second = hpcflow.json("history", run.run_id)["attempts"]
        # What is told stands on what the program reported, once a second; what it did is more.
        reported = [each["train_step"] for each in run.events(1, "progress")]
        assert first["lost_train_steps"] == max(0, max(reported) - after.began_at)
        assert first["lost_train_steps"] <= before.reached - after.began_at
        assert second["recovery_s"] > 0
        assert second["lost_train_steps"] is None, "it completed"
        if run is fresh:
            assert first["lost_train_steps"] > 0, "it never saved"


def test_a_run_directory_that_is_deleted_under_its_job_does_not_come_back(
    hpcflow: Hpcflow, cluster: Cluster, grace: User
) -> None:
    """Its program goes on counting, and would save every few train steps, and on notice."""
    with watch(hpcflow) as daemon:
        lost, kept = start(hpcflow), start(hpcflow)
        for run in (lost, kept):
            run.wait_training()
        (lost_job,) = lost.job_ids
        # At once, and not file by file while it writes others.
        shutil.rmtree(lost.path.rename(hpcflow.home.parent / "deleted"))
        gone = f"{lost.run_id}: its run directory is gone"
        daemon.wait_says(gone)
        kept.wait_training(saves=kept.saves() + 2)
        (shown,) = hpcflow.json("show", lost.run_id)["attempts"]
        assert shown["state"] == "running"
        states = cluster.run("squeue", "--noheader", f"--jobs={lost_job}", "--format=%T").split()
        assert states == ["RUNNING"], "its job is its owner's to end"
        take_all_nodes(grace)
        kept.wait_training(2)
        complete([kept])
        daemon.wait_says("(purged: its run directory is gone, and it has no mirror")
    (shown,) = hpcflow.json("show", lost.run_id)["attempts"]
    assert shown["ended_at"] is not None
    assert shown["rule"] != "its run directory is gone", "Slurm says how it ended"
    done = hpcflow("daemon", "--once")
    assert (done.returncode, done.stderr) == (0, "")
    assert not lost.path.exists()
    named = cluster.run("sacct", "-X", "-a", "-n", "-P", "--format=jobname", "-S", "now-1hours")
    assert named.count(lost.run_id) == 1, "nothing was sent after it"
    assert kept.causes == ["preempted", "completed"]
