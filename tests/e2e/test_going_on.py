"""Training on after a run is completed, on the real cluster, for a user who is not root."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Hpcflow

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

HERE = ("--site", "devcluster", "--set", "launch.launcher=srun", "--wait")
#: Of the digits example, which trains on four fifths of 1797 images, in batches of 64.
TRAIN_STEPS_PER_EPOCH = 23


def test_a_completed_run_is_extended_and_another_run_starts_from_its_checkpoint(
    hpcflow: Hpcflow,
) -> None:
    first = hpcflow.json("run", hpcflow.digits, *HERE, "--set", "params.epochs=2")
    assert (first["state"], first["train_step"]) == ("completed", 2 * TRAIN_STEPS_PER_EPOCH)

    extended = hpcflow.json("resume", first["run_id"], "--set", "params.epochs=4", "--wait")
    assert (extended["state"], extended["train_step"]) == ("completed", 4 * TRAIN_STEPS_PER_EPOCH)
    assert extended["results"] == [{"attempt": 1, "train_step": 2 * TRAIN_STEPS_PER_EPOCH}]

    start = f"start_from={first['run_id']}@{2 * TRAIN_STEPS_PER_EPOCH}"
    options = ("--set", start, "--set", "params.epochs=1", "--set", "name=tuned")
    tuned = hpcflow.json("run", hpcflow.digits, *HERE, *options)
    assert (tuned["state"], tuned["train_step"]) == ("completed", TRAIN_STEPS_PER_EPOCH)
    assert tuned["started_from"]["run_id"] == first["run_id"]
    assert tuned["metrics"]["accuracy"] > first["metrics"]["accuracy"], "it began with its weights"
