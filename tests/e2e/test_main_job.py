"""The main job: a training on real data over several nodes of a real Slurm cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hpcflow.testing.cluster import poll
from tests.e2e.conftest import TRAINING, TWO_NODES, Hpcflow, saves

pytestmark = pytest.mark.cluster


def weights(shown: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The tensors of a run's final checkpoint."""
    folder = Path(shown["run_dir"]) / shown["checkpoints"][-1]["path"]
    found: dict[str, torch.Tensor] = {}
    for path in sorted(folder.glob("*.pt")):
        if "rng" not in path.name:
            collect(torch.load(path, weights_only=True), path.name, found)
    assert found
    return found


def collect(value: Any, name: str, found: dict[str, torch.Tensor]) -> None:
    """All tensors within ``value``, by where they are."""
    if isinstance(value, torch.Tensor):
        found[name] = value
    elif isinstance(value, dict):
        for key, item in value.items():
            collect(item, f"{name}.{key}", found)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            collect(item, f"{name}.{index}", found)


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    different = [name for name in one if not torch.equal(one[name], other[name])]
    assert different == []


def test_the_digits_are_learned_on_two_nodes(undisturbed: dict[str, Any]) -> None:
    assert (undisturbed["state"], undisturbed["cause"]) == ("completed", "completed")
    assert undisturbed["metrics"]["accuracy"] > 0.95
    assert "loss" in undisturbed["metrics"]
    (attempt,) = undisturbed["attempts"]
    assert attempt["raw_state"] == "COMPLETED"
    assert attempt["exit_code"] == 0
    assert len(attempt["nodes"]) == 2
    assert attempt["started_at"] < attempt["ended_at"]
    assert all(checkpoint["complete"] for checkpoint in undisturbed["checkpoints"])


# A ledger in SQLite is that of almost all other tests.
@pytest.mark.parametrize("hpcflow", ["postgresql"], indirect=True)
def test_a_killed_run_resumes_and_ends_with_the_same_weights(
    hpcflow: Hpcflow, undisturbed: dict[str, Any]
) -> None:
    """Its ranks are killed, then its job is cancelled, and people see it with ls, show and logs."""
    options = (*TWO_NODES, *TRAINING, "--set", "launch.launcher=torchrun", "--set", "name=seen")
    run = hpcflow.json("run", hpcflow.digits, *options)
    assert run["run_id"] in hpcflow("ls").stdout
    poll(lambda: saves(run), 300, "the run never wrote a checkpoint")
    code = Path(run["run_dir"]).parents[1] / ".code"  # another cluster may train on this machine
    hpcflow.user.run(["pkill", "-9", "-f", f"{code}/.*/train.py"])
    _ended(hpcflow, "failed")

    again = hpcflow.json("resume", "seen")
    poll(lambda: saves(run, 2), 300, "the second attempt never wrote a checkpoint")
    hpcflow.user.run(["scancel", again["job_id"]])
    _ended(hpcflow, "cancelled")

    assert hpcflow("resume", "seen", "--wait").returncode == 0
    assert hpcflow("wait", "seen").stdout.startswith(f"{run['run_id']}: completed")
    shown = hpcflow.json("show", "seen")
    assert shown["state"] == "completed"
    attempts = shown["attempts"]
    assert [each["cause"] for each in attempts] == ["failed", "cancelled", "completed"]
    assert len({each["job_id"] for each in attempts}) == 3
    assert None not in [each["resume_from"] for each in attempts[1:]]
    assert_same(weights(shown), weights(undisturbed))
    assert "accuracy" in hpcflow("show", "seen").stdout
    assert "accuracy" in hpcflow("logs", "seen").stdout
    (listed,) = hpcflow.json("ls")["runs"]
    assert (listed["run_id"], listed["state"]) == (run["run_id"], "completed")


def _ended(hpcflow: Hpcflow, state: str) -> None:
    assert hpcflow("wait", "seen", check=False).returncode == 1
    killed = hpcflow.json("show", "seen")
    assert killed["state"] == state
    assert killed["train_step"] < killed["total_train_steps"], "it was killed too late"
