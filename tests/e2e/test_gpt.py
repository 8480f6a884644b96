"""A sharded training over several nodes of a real Slurm cluster survives a kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcflow.testing.cluster import poll
from tests.e2e.conftest import Hpcflow, saves

pytestmark = pytest.mark.cluster

SMALL = {
    "params.n_layer": 2,
    "params.n_embd": 64,
    "params.block_size": 64,
    "params.train_steps": 120,
    "checkpoint.every_train_steps": 20,
}


def run(hpcflow: Hpcflow) -> Any:
    settings = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]
    config = hpcflow.software.examples / "gpt" / "config.yaml"
    return hpcflow.json("run", config, "--site", "devcluster", *settings)


@pytest.mark.soak
def test_a_killed_gpt_sharded_over_two_nodes_ends_with_the_same_loss(hpcflow: Hpcflow) -> None:
    whole, broken = run(hpcflow), run(hpcflow)

    poll(lambda: saves(broken), 300, "the run never wrote a checkpoint")
    hpcflow.user.run(["scancel", broken["job_id"]])
    assert hpcflow("wait", broken["run_id"], check=False).returncode == 1
    assert hpcflow.json("show", broken["run_id"])["train_step"] < 120, "it was ended too late"
    assert hpcflow("resume", broken["run_id"], "--wait").returncode == 0
    assert hpcflow("wait", whole["run_id"]).returncode == 0

    one, other = (hpcflow.json("show", each["run_id"]) for each in (whole, broken))
    _, second = other["attempts"]
    assert second["resume_from"] is not None
    assert len(second["nodes"]) == 2
    assert other["metrics"]["held_out_loss"] == one["metrics"]["held_out_loss"]
    newest = Path(other["run_dir"]) / other["checkpoints"][-1]["path"]
    assert {path.name for path in newest.glob("*.shards")} == {
        "rank-00000.shards",
        "rank-00001.shards",
    }
