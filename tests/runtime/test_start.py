"""A run that starts from the weights of another one: fine-tuning, by a script that resumes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hpcflow.runtime.files import NewFile
from hpcflow.runtime.manifest import CheckpointError
from hpcflow.runtime.program_state import ProgramState
from hpcflow.runtime.ranks import Alone
from tests.runtime.harness import RunFolder, differing, run, weights
from tests.runtime.program import BATCHES, EPOCHS


@pytest.fixture
def source(folder: RunFolder) -> RunFolder:
    """A run that was killed, with a checkpoint of train step 20."""
    run(folder, HURT="0:25:KILL", PATIENT=1, HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS=10)
    return folder


@pytest.fixture
def tuned(source: RunFolder) -> RunFolder:
    """A run directory as ``start_from`` makes it."""
    tuned = RunFolder(source.path.parent / "tuned")
    start = tuned.path / "start/000000000"
    shutil.copytree(source.checkpoint(20), start)
    tuned.variables["HPCFLOW_BEGIN_FROM"] = str(start)
    tuned.variables["HPCFLOW_RESUME_FROM"] = str(start)
    return tuned


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_script_that_resumes_starts_from_the_weights_at_train_step_0(
    source: RunFolder, tuned: RunFolder, world_size: int
) -> None:
    params = tuned.path / "params.json"
    params.write_text('{"epochs": 0}')
    assert run(tuned, world_size, HPCFLOW_PARAMS=params) == [0] * world_size
    assert tuned.complete() == [0]
    now, then = weights(tuned, 0), weights(source, 20)
    model = {name for name in then if name.startswith("model.")}
    assert model
    assert not model & set(differing({n: now[n] for n in model}, {n: then[n] for n in model}))
    assert now["count.train_steps"] == 0
    assert now["scheduler.last_epoch"] == 0, "its learning rate begins anew"
    assert not any(name.startswith("optimizer.state.") for name in now)


def test_it_trains_all_its_epochs_and_resumes_from_its_own_checkpoints(tuned: RunFolder) -> None:
    run(tuned, HURT="0:15:KILL", PATIENT=1, HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS=10)
    assert run(tuned) == [0]
    began = [(each["train_step"], each["resumed_from"]) for each in tuned.events("train_started")]
    assert began == [(0, "start/000000000"), (10, "checkpoints/000000010")]
    assert tuned.complete()[-1] == EPOCHS * BATCHES
    assert weights(tuned, EPOCHS * BATCHES)["count.train_steps"] == EPOCHS * BATCHES


def test_it_does_not_train_from_nothing_where_what_it_starts_from_is_damaged(
    tuned: RunFolder,
) -> None:
    start = tuned.path / "start/000000000"
    data = (start / "model.pt").read_bytes()
    (start / "model.pt").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert run(tuned) == [1]
    assert tuned.complete() == []


def saved(folder: Path, **objects: Any) -> Path:
    folder.mkdir()
    for part in ProgramState(objects, Alone()).capture(folder, None):
        part.write(folder, NewFile)
    return folder


def test_a_new_head_begins_as_it_is_with_a_word_about_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    then, now = nn.Linear(3, 3), nn.Linear(3, 3)
    head = nn.Linear(3, 2)
    before = head.weight.detach().clone()
    folder = saved(tmp_path / "start", backbone=then)
    ProgramState({"backbone": now, "head": head}, Alone()).load_weights(folder)
    assert torch.equal(now.weight, then.weight)
    assert torch.equal(head.weight, before)
    assert "head is not in the checkpoint that the run starts from" in capfd.readouterr().err


def test_weights_under_other_names_are_not_passed_over_in_silence(tmp_path: Path) -> None:
    folder = saved(tmp_path / "start", net=nn.Linear(3, 3))
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    for objects, none_of in (({"model": nn.Linear(3, 3)}, "model"), ({"opt": optimizer}, "any")):
        with pytest.raises(CheckpointError, match=rf"has no weights of {none_of}.*it has net\.pt"):
            ProgramState(objects, Alone()).load_weights(folder)
