"""A state that is sharded over the ranks is saved by all of them, and resumed by any others."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch

from hpcflow.runtime.manifest import verify
from hpcflow.runtime.store import CheckpointStore
from tests.runtime.harness import RunFolder, Training, start
from tests.runtime.sharded_program import TRAIN_STEPS
from tests.runtime.test_damaged import BREAKS
from tests.runtime.test_successor import claim, go_on, made_by, wait_stopped

# One process runs all tests of this file, so their common set-up is made once.
pytestmark = pytest.mark.xdist_group("sharded")

EVERY = "HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS"
PROGRAM = str(Path(__file__).with_name("sharded_program.py"))

#: How the state is sharded, and over how many ranks.
Layout = tuple[str, int]
Source = Callable[[Layout], RunFolder]


def begin(folder: RunFolder, layout: Layout, **variables: object) -> Training:
    return start(folder, layout[1], PROGRAM=PROGRAM, LAYOUT=layout[0], **variables)


def train(folder: RunFolder, layout: Layout, **variables: object) -> None:
    training = begin(folder, layout, **variables)
    assert training.exit_codes() == [0] * layout[1], training.log()


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """Layout -> a training that nobody disturbed, with its checkpoints 10, 20, 30 and 40."""

    @cache
    def of(layout: Layout) -> RunFolder:
        folder = RunFolder(tmp_path_factory.mktemp("source") / f"{layout}")
        train(folder, layout, PATIENT=1, **{EVERY: 10})
        assert folder.complete() == [10, 20, 30, 40]
        return folder

    return of


def losses(folder: RunFolder) -> dict[int, float]:
    """Train step -> its loss, the last time that it was done."""
    lines = (folder.path / "losses.jsonl").read_text().splitlines()
    return dict(json.loads(line) for line in lines)


def tensors(path: Path, name: str) -> dict[str, torch.Tensor]:
    """The tensors of an object in a checkpoint, read as the docs say that they lie there."""
    if (path / f"{name}.pt").exists():
        state = torch.load(path / f"{name}.pt", weights_only=True)
        return {key: value for key, value in state.items() if isinstance(value, torch.Tensor)}
    whole = {}
    for entry in json.loads((path / "shards.json").read_text())["tensors"]:
        if entry["place"][0] != name:
            continue
        dtype = getattr(torch, entry["dtype"])
        tensor = torch.zeros(entry["shape"], dtype=dtype)
        for offsets, shape, rank, at in entry["pieces"]:
            data = (path / f"rank-{rank:05d}.shards").read_bytes()[at:]
            piece = torch.frombuffer(bytearray(data), dtype=dtype, count=prod(shape)).view(shape)
            tensor[tuple(slice(o, o + s) for o, s in zip(offsets, shape, strict=True))] = piece
        whole[".".join(entry["place"][1:])] = tensor
    return whole


def assert_equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


LAYOUTS: list[Layout] = [("fsdp2", 2), ("fsdp2", 4), ("hsdp", 4), ("tp", 2), ("2d", 4)]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_killed_training_goes_on_with_the_same_losses_bit_for_bit(
    source: Source, folder: RunFolder, layout: Layout
) -> None:
    chance = random.Random(str(layout))
    at, rank = chance.randrange(15, TRAIN_STEPS - 1), chance.randrange(layout[1])
    killed = begin(folder, layout, HURT=f"{rank}:{at}:KILL", PATIENT=1, **{EVERY: 10})
    assert killed.exit_codes()[rank] == -9
    newest = folder.complete()[-1]

    train(folder, layout)

    assert folder.events("train_started")[-1]["train_step"] == newest
    assert losses(folder) == losses(source(layout))
    assert folder.events("finished")[0]["model"] == "checkpoints/000000040"
    for name in ("model", "optimizer"):
        this, that = (tensors(each.checkpoint(40), name) for each in (folder, source(layout)))
        assert_equal(this, that)


@pytest.mark.parametrize("how", ["TERM", "flag"])
def test_so_it_does_on_notice_with_random_numbers_of_every_rank(
    folder: RunFolder, how: str
) -> None:
    whole = RunFolder(folder.path / "whole")
    train(whole, ("fsdp2", 2), DROPOUT=0.3)

    training = begin(folder, ("fsdp2", 2), HURT=f"0:17:{how}", DROPOUT=0.3)
    assert training.exit_codes() == [75, 75], training.log()
    folder.attempt = 2
    train(folder, ("fsdp2", 2), DROPOUT=0.3)

    assert losses(folder) == losses(whole)


MOVES: list[tuple[Layout, Layout]] = [
    (("fsdp2", 2), ("fsdp2", 4)),
    (("fsdp2", 4), ("fsdp2", 2)),
    (("tp", 2), ("tp", 4)),
    (("2d", 4), ("fsdp2", 2)),
    (("fsdp2", 4), ("ddp", 2)),
    (("ddp", 2), ("fsdp2", 4)),
    (("ddp", 2), ("2d", 4)),
    (("hsdp", 4), ("none", 1)),
    (("tp", 2), ("fsdp2", 1)),
]


@pytest.mark.parametrize(("old", "new"), MOVES, ids=str)
def test_other_ranks_sharded_in_another_way_go_on_from_the_same_state(
    source: Source, folder: RunFolder, old: Layout, new: Layout
) -> None:
    begun = source(old).checkpoint(20)

    training = begin(folder, new, HPCFLOW_RESUME_FROM=begun, SAVE_FIRST=1)

    assert training.exit_codes() == [0] * new[1], training.log()
    warning = f"saved by {old[1]} ranks, resumed by {new[1]}: "
    assert training.log().count(warning) == (old[1] != new[1])
    assert_equal(tensors(folder.checkpoint(20), "model"), tensors(begun, "model"))
    if "ddp" not in (old[0], new[0]) and new[0] != "none":
        assert_equal(tensors(folder.checkpoint(20), "optimizer"), tensors(begun, "optimizer"))

    there, here = losses(source(old)), losses(folder)
    assert sorted(here) == list(range(21, 41))
    assert [here[at] for at in sorted(here)] == pytest.approx(
        [there[at] for at in sorted(here)], rel=1e-3
    )


def test_there_and_back_again_not_a_bit_is_lost(folder: RunFolder) -> None:
    """Also of the optimizer, whose parameters have numbers here and names there."""
    folder.variables = {"SCALER": "1", "TRAIN_STEPS": "20"}
    there, back = (RunFolder(folder.path / name, 1, folder.variables) for name in ("there", "back"))

    train(folder, ("ddp", 2))
    train(there, ("fsdp2", 4), HPCFLOW_RESUME_FROM=folder.checkpoint(20))
    train(back, ("ddp", 2), HPCFLOW_RESUME_FROM=there.checkpoint(20))

    for name in ("model", "optimizer", "scheduler", "scaler"):
        one, other = (
            torch.load(each.checkpoint(20) / f"{name}.pt", weights_only=True)
            for each in (folder, back)
        )
        assert _spelled(one) == _spelled(other)


def _spelled(value: Any) -> Any:
    """Something to compare by ==."""
    if isinstance(value, torch.Tensor):
        return (value.dtype, value.tolist())
    if isinstance(value, dict):
        return {key: _spelled(item) for key, item in value.items()}
    return [_spelled(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_every_number_is_written_once_and_all_ranks_write_about_as_much(
    source: Source, layout: Layout
) -> None:
    path = source(layout).checkpoint(20)
    sizes = [(path / f"rank-{rank:05d}.shards").stat().st_size for rank in range(layout[1])]
    whole = {
        f"{name}.{key}": tensor.nbytes
        for name in ("model", "optimizer")
        for key, tensor in tensors(path, name).items()
    }

    written = 0
    for entry in json.loads((path / "shards.json").read_text())["tensors"]:
        size_bytes = sum(prod(shape) for _, shape, *_ in entry["pieces"])
        written += size_bytes * getattr(torch, entry["dtype"]).itemsize

    assert written == sum(whole.values())
    if layout[0] in ("fsdp2", "hsdp"):
        assert max(sizes) < 1.5 * min(sizes)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[random.Random(path.name).randrange(len(data))] ^= 1
    path.write_bytes(data)


def test_a_bit_flipped_in_any_file_is_found_and_the_one_before_is_used(
    source: Source, folder: RunFolder
) -> None:
    names = sorted(path.name for path in source(("fsdp2", 2)).checkpoint(20).iterdir())
    assert len(names) == 9
    for name in names:
        shutil.rmtree(folder.checkpoints, ignore_errors=True)
        for train_step in (10, 20):
            shutil.copytree(
                source(("fsdp2", 2)).checkpoint(train_step), folder.checkpoint(train_step)
            )
        flip(folder.checkpoint(20) / name)

        newest = CheckpointStore(folder.checkpoints).newest()

        assert newest is not None
        assert newest.train_step == 10


@pytest.mark.parametrize("how", sorted(name for name in BREAKS if "manifest" in name))
def test_one_whose_manifest_is_missing_or_makes_no_sense_is_left_for_the_one_before(
    source: Source, folder: RunFolder, how: str
) -> None:
    for train_step in (10, 20):
        shutil.copytree(source(("fsdp2", 2)).checkpoint(train_step), folder.checkpoint(train_step))
    BREAKS[how](folder.checkpoint(20))

    newest = CheckpointStore(folder.checkpoints).newest()

    assert newest is not None
    assert newest.train_step == 10


def test_of_two_attempts_that_save_at_once_the_older_one_loses(
    source: Source, folder: RunFolder
) -> None:
    folder.variables.update({EVERY: "10", "PATIENT": "1"})
    older = begin(folder, ("fsdp2", 2), HURT="0:17:STOP")
    wait_stopped(older)
    newer = RunFolder(folder.path, 2, folder.variables)
    claim(newer, 2)
    train(newer, ("fsdp2", 2))

    go_on(older)

    assert older.exit_codes_by_themselves() == [1, 1], "it has saved nothing at its end"
    assert made_by(folder) == {10: 1, 20: 2, 30: 2, 40: 2}
    assert all(verify(folder.checkpoint(at)).train_step == at for at in folder.complete())
    newest = tensors(folder.checkpoint(40), "model")
    assert_equal(newest, tensors(source(("fsdp2", 2)).checkpoint(40), "model"))


@pytest.mark.parametrize("name", ["rank-00000.shards", "rank-00001.shards", "shards.json"])
def test_whichever_rank_finds_it_all_resume_from_the_one_before(
    source: Source, folder: RunFolder, name: str
) -> None:
    for train_step in (10, 20):
        shutil.copytree(source(("fsdp2", 2)).checkpoint(train_step), folder.checkpoint(train_step))
    flip(folder.checkpoint(20) / name)

    training = begin(folder, ("fsdp2", 2), **{EVERY: 10})

    assert training.exit_codes() == [0, 0], training.log()
    assert training.log().count(f"{name} is not what was written") == 1
    assert folder.events("train_started")[-1]["resumed_from"] == "checkpoints/000000010"
    assert verify(folder.checkpoint(20)).train_step == 20, "it was not made again"
    assert losses(folder) == {
        at: loss for at, loss in losses(source(("fsdp2", 2))).items() if at > 10
    }


@pytest.mark.parametrize("kills", [20, pytest.param(50, marks=pytest.mark.soak)])
def test_a_kill_of_any_rank_at_any_moment_leaves_only_whole_checkpoints(
    source: Source, folder: RunFolder, kills: int
) -> None:
    """At so many calls, a third of them with two ranks: these take longer to meet each other."""
    chance, hidden = random.Random("kill -9, sharded"), 0
    for number, at_call in enumerate(chance.sample(range(1, 250), kills)):
        shutil.rmtree(folder.checkpoints, ignore_errors=True)
        world_size = 2 if number % 3 == 0 else 1
        rank = number % world_size
        variables: dict[str, object] = {"DIE_AT_CALL": at_call, "DIE_RANK": rank, EVERY: 2}
        if world_size == 1:
            variables["MEET"] = f"file://{folder.path}/meet-{number}"

        training = begin(folder, ("fsdp2", world_size), **variables)

        assert training.exit_codes()[rank] == -9, training.log()
        assert all(verify(folder.checkpoint(at)).train_step == at for at in folder.complete())
        hidden += len(list(folder.checkpoints.glob(".*"))) if folder.checkpoints.is_dir() else 0
    assert hidden > kills * 0.3, "most kills should have come while something was being written"

    train(folder, ("fsdp2", 2))
    assert losses(folder)[TRAIN_STEPS] == losses(source(("fsdp2", 2)))[TRAIN_STEPS]
    assert not list(folder.checkpoints.glob(".*.tmp"))


def test_a_disk_that_is_full_for_one_rank_fails_the_save_on_all(folder: RunFolder) -> None:
    hurts = f"1:15:disk_full 1:{TRAIN_STEPS - 1}:disk_free"

    training = begin(folder, ("fsdp2", 2), HURT=hurts, PATIENT=1, **{EVERY: 10})

    assert training.exit_codes() == [0, 0], training.log()
    assert folder.complete() == [10, TRAIN_STEPS]
    assert training.log().count("training continues: another rank could not write") == 2
    assert not list(folder.checkpoints.glob(".*"))


def test_a_disk_that_is_full_for_one_rank_on_notice_costs_the_save_and_not_the_run(
    folder: RunFolder,
) -> None:
    training = begin(
        folder, ("fsdp2", 2), HURT="1:15:disk_full 0:16:TERM", PATIENT=1, **{EVERY: 10}
    )

    assert training.exit_codes() == [75, 75], training.log()
    assert folder.resubmit.exists()
    assert len(folder.events("checkpoint_failed")) == 1
    assert folder.complete() == [10]
    assert verify(folder.checkpoint(10)).train_step == 10
    assert not list(folder.checkpoints.glob(".*"))


def test_ranks_with_parts_of_the_model_that_have_other_names_are_refused(
    folder: RunFolder,
) -> None:
    training = begin(folder, ("pipeline", 2))

    assert training.exit_codes() == [1, 1]
    assert training.log().count("TypeError: model is not the same on all ranks") == 2
