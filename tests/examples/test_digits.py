"""The digits example learns, alone and on several ranks, and survives a kill half-way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.harness import RunFolder, differing, start, weights

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits"


def test_it_is_a_plain_script_too(tmp_path: Path) -> None:
    params = tmp_path / "params.json"
    params.write_text(json.dumps({"epochs": 8}))
    done = subprocess.run(
        [sys.executable, str(EXAMPLE / "train.py")],
        env={**os.environ, "PYTHONPATH": str(EXAMPLE.parents[1]), "HPCFLOW_PARAMS": str(params)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    accuracy = float(done.stdout.partition("accuracy ")[2].split()[0])
    assert accuracy > 0.97
    assert list(tmp_path.iterdir()) == [params]


@pytest.mark.parametrize("world_size", [1, 2])
def test_killed_half_way_it_ends_with_the_same_weights(tmp_path: Path, world_size: int) -> None:
    params = tmp_path / "params.json"
    params.write_text(json.dumps({"epochs": 5}))
    variables = {
        "PROGRAM": str(EXAMPLE / "train.py"),
        "HPCFLOW_PARAMS": str(params),
        "HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS": "30",
    }
    whole = RunFolder(tmp_path / "whole", variables=variables)
    broken = RunFolder(tmp_path / "broken", variables=variables)
    assert start(whole, world_size).exit_codes() == [0] * world_size

    training = start(broken, world_size)
    training.wait_saved(broken, 60)
    training.kill()
    assert training.exit_codes() == [-9] * world_size
    assert broken.complete()[-1] < 115
    assert start(broken, world_size).exit_codes() == [0] * world_size

    # Python's and numpy's generators are not seeded by the example, nor used.
    one, other = (
        {name: value for name, value in weights(folder, 115).items() if "rng." not in name}
        for folder in (whole, broken)
    )
    assert any(name.startswith("model.") for name in one)
    assert differing(one, other) == []
    assert broken.events("train_started")[-1]["resumed_from"] is not None
    assert broken.events("finished")[0]["metrics"]["accuracy"] > 0.93


def test_its_config_is_one_that_hpcflow_takes() -> None:
    from hpcflow.config import load_spec

    spec = load_spec(EXAMPLE / "config.yaml").spec

    assert spec.name == "digits"
    assert (EXAMPLE / str(spec.script)).exists()
    assert set(spec.params) == {"epochs", "batch_size", "lr", "hidden", "seed"}
