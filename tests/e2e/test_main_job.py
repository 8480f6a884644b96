"""The main job: a training on real data over several nodes of a real Slurm cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hpcflow.testing.cluster import poll
from tests.e2e.conftest import TWO_NODES, Hpcflow

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


@pytest.mark.parametrize("hpcflow", ["postgresql"], indirect=True)
def test_people_see_the_run_with_ls_show_and_logs(hpcflow: Hpcflow) -> None:
    run = hpcflow.json("run", hpcflow.digits, *TWO_NODES, "--set", "name=seen")
    assert run["run_id"] in hpcflow("ls").stdout
    assert hpcflow("wait", "seen").stdout.startswith(f"{run['run_id']}: completed")
    assert "accuracy" in hpcflow("show", "seen").stdout
    assert "accuracy" in hpcflow("logs", "seen").stdout
    (listed,) = hpcflow.json("ls")["runs"]
    assert (listed["run_id"], listed["state"]) == (run["run_id"], "completed")


# Which ledger it is has nothing to do with how a run is killed: each of both once.
@pytest.mark.parametrize(
    ("kill", "state", "hpcflow"),
    [
        (("scancel", "{job_id}"), "cancelled", "postgresql"),
        (("pkill", "-9", "-f", "{script}"), "failed", "sqlite"),
    ],
    ids=["scancel-postgresql", "sigkill-sqlite"],
    indirect=["hpcflow"],
)
def test_a_killed_run_resumes_and_ends_with_the_same_weights(
    hpcflow: Hpcflow, undisturbed: dict[str, Any], kill: tuple[str, ...], state: str
) -> None:
    run = hpcflow.json("run", hpcflow.digits, *TWO_NODES)

    def half_way() -> bool:
        return bool(hpcflow.json("show", run["run_id"])["checkpoints"])

    poll(half_way, 300, "the run never wrote a checkpoint")
    code = Path(run["run_dir"]).parents[1] / ".code"  # another cluster may train on this machine
    hpcflow.user.run([word.format(**run, script=f"{code}/.*/train.py") for word in kill])
    assert hpcflow("wait", run["run_id"], check=False).returncode == 1
    killed = hpcflow.json("show", run["run_id"])
    assert killed["state"] == state
    assert killed["train_step"] < killed["total_train_steps"], "it was killed too late"

    assert hpcflow("resume", run["run_id"], "--wait").returncode == 0
    shown = hpcflow.json("show", run["run_id"])
    assert shown["state"] == "completed"
    first, second = shown["attempts"]
    assert first["job_id"] != second["job_id"]
    assert second["resume_from"] is not None
    assert_same(weights(shown), weights(undisturbed))
