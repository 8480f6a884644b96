"""Preemptions at the worst moments: in a save, before the first one, without any notice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest

from hpcflow.testing.cluster import Cluster, User, poll
from tests.e2e.conftest import Hpcflow
from tests.e2e.counted import (
    CHECKPOINT_EVERY,
    assert_counted,
    complete,
    start,
    take_all_nodes,
    watch,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

NEVER_SAVES = ("--set", "checkpoint.every_train_steps=null", "--set", "checkpoint.interval=never")


@contextmanager
def no_grace(cluster: Cluster) -> Iterator[None]:
    """For the length of the block, the partition ``spot`` is without a grace time."""
    cluster.run("scontrol", "update", "partitionname=spot", "gracetime=0")
    try:
        yield
    finally:
        cluster.run("scontrol", "update", "partitionname=spot", "gracetime=5")


def test_in_the_middle_of_a_checkpoint_and_before_the_first(
    hpcflow: Hpcflow, cluster: Cluster, grace: User
) -> None:
    with watch(hpcflow):
        torn, fresh = start(hpcflow), start(hpcflow, *NEVER_SAVES)
        torn.wait_training()
        fresh.wait_training(checkpoints=0)
        torn.tell("stick")
        fresh.tell("stick")  # else it would save on notice
        poll((torn.path / "stuck").exists, 30, "it never saved again")
        whole = torn.checkpoints()
        take_all_nodes(grace)
        for run in (torn, fresh):
            run.wait_ended()
            run.take_back("stick")
            run.wait_training(2, checkpoints=0)
        complete([torn, fresh])
    assert_counted(hpcflow, cluster, [torn, fresh])
    assert torn.causes == fresh.causes == ["preempted", "completed"]
    assert torn.executions[1].began_at == whole[-1]
    assert int((torn.path / "stuck").read_text()) not in whole
    assert fresh.executions[1].began_at == 0


def test_without_grace_no_more_is_lost_than_since_the_last_checkpoint(
    hpcflow: Hpcflow, cluster: Cluster, grace: User
) -> None:
    with no_grace(cluster), watch(hpcflow):
        hearing, deaf = start(hpcflow), start(hpcflow, "--set", "params.deaf=true")
        for number in (1, 2):
            for run in (hearing, deaf):
                run.wait_training(number)
            take_all_nodes(grace)
            for run in (hearing, deaf):
                run.wait_ended(number)
        complete([hearing, deaf])
    assert_counted(hpcflow, cluster, [hearing, deaf])
    assert hearing.causes == deaf.causes == ["preempted", "preempted", "completed"]
    assert [deaf.events(number, "notice") for number in (1, 2)] == [[], []]
    for run in (hearing, deaf):
        for before, after in pairwise(run.executions):
            assert 0 <= before.reached - after.began_at <= CHECKPOINT_EVERY
        told = hpcflow.json("history", run.run_id)["attempts"]
        assert all(0 <= each["lost_train_steps"] <= CHECKPOINT_EVERY for each in told[:-1])
