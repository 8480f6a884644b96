"""What can be saved and what cannot; loading executes nothing."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hpcflow.runtime.files import NewFile
from hpcflow.runtime.manifest import manifest_bytes
from hpcflow.runtime.objects import check_object
from hpcflow.runtime.program_state import ProgramState
from hpcflow.runtime.ranks import Alone, TorchRanks
from tests.runtime.harness import (
    RunFolder,
    rewritten,
    run,
    start,
)


class Bomb:
    """Unpickled by anything that believes files, it creates one."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("by_torch", [True, False])
def test_no_file_of_a_checkpoint_is_ever_executed(folder: RunFolder, by_torch: bool) -> None:
    run(folder, HURT="0:15:KILL", PATIENT=1, HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS=10)
    path, crater = folder.checkpoint(10), folder.path / "crater"
    with (path / "model.pt").open("wb") as file:
        (torch.save if by_torch else pickle.dump)(Bomb(crater), file)
    rewritten(path, "model.pt")

    training = start(folder)

    assert training.exit_codes() == [1]
    assert "model.pt holds more than tensors and plain values" in training.log()
    assert not crater.exists()


def test_random_numbers_that_make_no_sense_are_refused(folder: RunFolder) -> None:
    run(folder, HURT="0:15:KILL", PATIENT=1, HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS=10)
    path = folder.checkpoint(10)
    state = json.loads((path / "rank-00000.json").read_text())
    state["rng"]["python"] = [3, ["a"], None]
    (path / "rank-00000.json").write_text(json.dumps(state))
    rewritten(path, "rank-00000.json")

    training = start(folder)

    assert training.exit_codes() == [1]
    assert "CheckpointError: its random state is invalid" in training.log()


def test_a_checkpoint_of_other_objects_is_refused(folder: RunFolder) -> None:
    run(folder, HURT="0:15:KILL", PATIENT=1, HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS=10)
    manifest = json.loads((folder.checkpoint(10) / "manifest.json").read_text())
    del manifest["files"]["scheduler.pt"]
    (folder.checkpoint(10) / "manifest.json").write_bytes(manifest_bytes(manifest))
    (folder.checkpoint(10) / "scheduler.pt").unlink()

    training = start(folder)

    assert training.exit_codes() == [1]
    assert "has no scheduler.pt; it has count.json, manifest.json, model.pt" in training.log()


@pytest.fixture
def one_rank() -> Iterator[None]:
    """A process group of this process alone."""
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("one_rank")
def test_what_is_sharded_in_a_way_that_hpcflow_does_not_know_is_refused() -> None:
    """Rank 0 alone would save its own part, and all would go on from it."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    check_object("model", model)
    kind = type("FullyShardedDataParallel", (torch.nn.Sequential,), {})
    assert kind.__name__ == FullyShardedDataParallel.__name__
    with pytest.raises(TypeError, match=r"model: .* use fully_shard of torch\.distributed\.fsdp"):
        check_object("model", kind(model))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # by torch's own import of it
@pytest.mark.usefixtures("one_rank")
def test_an_optimizer_that_every_rank_has_a_part_of_is_refused_before_the_training() -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = torch.nn.Linear(2, 2)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
    with pytest.raises(TypeError, match=r"optimizer: ZeroRedundancyOptimizer .* fully_shard"):
        check_object("optimizer", optimizer)


def test_a_save_does_not_undo_what_the_program_sets_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch has one setting for all threads: whether files get a checksum of its own."""
    settings = pytest.importorskip("torch.serialization")
    if not hasattr(settings, "set_crc32_options"):
        pytest.skip("torch before 2.6 has no such setting")
    save_as_torch_does, seen = torch.save, []

    def meanwhile(state: Any, file: Any) -> None:
        save_as_torch_does(state, file)
        if isinstance(file, NewFile):
            seen.append(settings.get_crc32_options())
            settings.set_crc32_options(True)

    monkeypatch.setattr(torch, "save", meanwhile)
    settings.set_crc32_options(False)
    try:
        for part in ProgramState({"model": torch.nn.Linear(2, 2)}, Alone()).capture(tmp_path, None):
            part.write(tmp_path, NewFile)
        assert settings.get_crc32_options(), "the program has set it while this was saved"
        for part in ProgramState({"other": torch.nn.Linear(2, 2)}, Alone()).capture(tmp_path, None):
            part.write(tmp_path, NewFile)
        assert settings.get_crc32_options(), "as it was before"
    finally:
        settings.set_crc32_options(True)
    assert seen == [False, False]


@pytest.mark.usefixtures("one_rank")
def test_a_torch_that_takes_no_patience_is_no_reason_not_to_train(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its name begins with an underscore: another version may not have it."""
    monkeypatch.delattr(torch.distributed.distributed_c10d, "_set_pg_timeout")
    assert TorchRanks().max(3) == 3


@pytest.mark.usefixtures("one_rank")
def test_what_is_sharded_after_restore_is_refused(tmp_path: Path) -> None:
    from torch.distributed.fsdp import fully_shard

    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    state = ProgramState({"model": model}, Alone())
    fully_shard(model)
    with pytest.raises(TypeError, match="sharded after"):
        state.capture(tmp_path, None)
