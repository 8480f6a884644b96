"""A disk without room costs the new checkpoint, and never an old one or the training."""

from __future__ import annotations

import pytest

from hpcflow.runtime.manifest import verify
from tests.runtime.conftest import Undisturbed
from tests.runtime.harness import (
    RunFolder,
    differing,
    run,
    start,
    weights,
)
from tests.runtime.program import BATCHES, EPOCHS

LAST = EPOCHS * BATCHES


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_full_disk_does_not_end_a_training(
    undisturbed: Undisturbed, folder: RunFolder, world_size: int
) -> None:
    hurts = f"0:15:disk_full 0:{LAST - 1}:disk_free"
    training = start(
        folder, world_size, HURT=hurts, PATIENT=1, HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS=10
    )

    assert training.exit_codes() == [0] * world_size, training.log()

    assert training.log().count("training continues") == 2
    assert folder.complete() == [10, LAST]
    assert verify(folder.checkpoint(10)).train_step == 10
    assert not list(folder.checkpoints.glob(".*")), "half checkpoints fill the disk even more"
    assert differing(weights(folder, LAST), undisturbed(world_size)) == []


def test_a_full_disk_on_notice_costs_the_save_and_not_the_run(folder: RunFolder) -> None:
    """The job asks to be sent again, and goes on from the checkpoint before."""
    hurts = "0:15:disk_full 0:16:TERM"
    training = start(folder, 2, HURT=hurts, PATIENT=1, HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS=10)

    assert training.exit_codes() == [75, 75], training.log()

    assert folder.resubmit.exists()
    (failed,) = folder.events("checkpoint_failed")
    told = f"no checkpoint at train step {failed['train_step']}, exiting anyway: "
    assert training.log().count(told) == 1
    assert folder.complete() == [10]
    assert not list(folder.checkpoints.glob(".*"))
    assert run(folder, 2) == [0, 0]
    assert folder.events("train_started")[-1]["train_step"] == 10


def test_a_disk_that_is_full_on_another_node_fails_the_save_on_all(folder: RunFolder) -> None:
    training = start(
        folder, 2, HURT="1:15:disk_full", PATIENT=1, HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS=10
    )

    assert training.exit_codes() == [1, 1]

    assert folder.complete() == [10]
    assert "another rank could not write" in training.log()
