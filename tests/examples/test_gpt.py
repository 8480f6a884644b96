"""The GPT example learns, sharded or not, and goes on with other ranks on the same loss curve."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.harness import RunFolder, start

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "gpt"
SMALL = {"n_layer": 2, "n_embd": 32, "block_size": 32, "batch_size": 8, "train_steps": 40}


def run_folder(path: Path, **params: object) -> RunFolder:
    path.mkdir()
    (path / "params.json").write_text(json.dumps({**SMALL, **params}))
    variables = {"PROGRAM": str(EXAMPLE / "train.py"), "HPCFLOW_PARAMS": str(path / "params.json")}
    return RunFolder(path, variables=variables)


def test_it_is_a_plain_script_too_and_learns(tmp_path: Path) -> None:
    params = tmp_path / "params.json"
    params.write_text(json.dumps(SMALL))

    done = subprocess.run(
        [sys.executable, str(EXAMPLE / "train.py")],
        env={**os.environ, "PYTHONPATH": str(EXAMPLE.parents[1]), "HPCFLOW_PARAMS": str(params)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.startswith("40 train steps, ")
    assert float(done.stdout.split()[3]) < 5, "log(256) = 5.5 is what knows nothing"
    assert list(tmp_path.iterdir()) == [params]


@pytest.mark.parametrize("parallel", ["ddp", "fsdp2"])
def test_resumed_with_other_ranks_it_ends_on_the_same_loss_curve(
    tmp_path: Path, parallel: str
) -> None:
    whole = run_folder(tmp_path / "whole")
    broken = run_folder(tmp_path / "broken", parallel=parallel)
    training = start(whole)
    assert training.exit_codes() == [0], training.log()

    training = start(broken, 2, HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS=10)
    training.wait_saved(broken)
    training.kill()
    training.exit_codes()
    broken.attempt = 2
    training = start(broken, 4)
    assert training.exit_codes() == [0] * 4, training.log()

    assert broken.events("train_started")[0]["train_step"] in (10, 20, 30)
    (expected,), (finished,) = (each.events("finished") for each in (whole, broken))
    assert finished["metrics"] == pytest.approx(expected["metrics"], rel=1e-3)
    assert last_loss(broken) == pytest.approx(last_loss(whole), rel=1e-3)


def last_loss(folder: RunFolder) -> float:
    """That of the last train step, of the whole batch."""
    told = [event["metrics"] for event in folder.events("progress")]
    return float([metrics["loss"] for metrics in told if "loss" in metrics][-1])


def test_ranks_that_a_batch_cannot_be_divided_among_are_told_so(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", batch_size=7)

    training = start(folder, 2)

    assert training.exit_codes() == [1, 1]
    assert "params.batch_size 7 cannot be divided among 2 ranks" in training.log()


def test_its_config_is_one_that_hpcflow_takes() -> None:
    from hpcflow.config import load_spec

    spec = load_spec(EXAMPLE / "config.yaml").spec

    assert spec.name == "gpt"
    assert (EXAMPLE / str(spec.script)).exists()
    assert spec.resources.nodes == 2
    assert set(spec.params) <= {*SMALL, "parallel", "n_head", "lr", "seed"}
