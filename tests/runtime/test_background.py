"""A checkpoint is written while the training continues, and is the state that it was begun with."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hpcflow import runtime
from hpcflow.runtime.checksum import sha256_of
from hpcflow.runtime.files import NewFile
from hpcflow.runtime.host_copy import HostCopies
from hpcflow.runtime.job import job_from
from hpcflow.runtime.manifest import CheckpointError, verify
from hpcflow.runtime.parameters import Params
from hpcflow.runtime.ranks import Alone
from hpcflow.runtime.run import Run
from tests.runtime.conftest import Undisturbed
from tests.runtime.harness import RunFolder, context, differing, run, start, weights
from tests.runtime.program import BATCHES, EPOCHS, wait_for_write

LAST = EPOCHS * BATCHES
EVERY = "HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS"


@pytest.fixture
def inside(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunFolder]:
    """This process as a program inside a job that saves after every train step."""
    for name, value in {**folder.environ(), EVERY: "1"}.items():
        monkeypatch.setenv(name, value)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR2)}
    yield folder
    for number, handler in before.items():
        signal.signal(number, handler)


def only(folder: RunFolder, train_step: int, name: str) -> RunFolder:
    """A run directory that holds this one checkpoint of ``folder``."""
    other = RunFolder(folder.path / name)
    other.checkpoints.mkdir(parents=True)
    shutil.copytree(folder.checkpoint(train_step), other.checkpoint(train_step))
    return other


@pytest.mark.parametrize("world_size", [1, 2])
def test_every_checkpoint_of_a_training_that_never_stopped_leads_to_the_same_end(
    undisturbed: Undisturbed, folder: RunFolder, world_size: int
) -> None:
    """Nothing of them is on disk before the training has changed all of its state again."""
    assert run(folder, world_size, SLOW=3, **{EVERY: 9}) == [0] * world_size
    assert folder.complete() == [9, 18, 27, 36, LAST]
    assert differing(weights(folder, LAST), undisturbed(world_size)) == []

    for train_step in folder.complete()[:-1]:
        other = only(folder, train_step, f"from {train_step}")
        assert run(other, world_size) == [0] * world_size
        assert other.events("train_started")[0]["train_step"] == train_step
        assert differing(weights(other, LAST), undisturbed(world_size)) == []


def test_the_train_loop_is_not_held_while_it_is_written(folder: RunFolder) -> None:
    """Or the write, which waits for train steps, would never end."""
    assert run(folder, 2, SLOW=5, **{EVERY: 15}) == [0, 0]

    seen = [(e["event"], e["train_step"]) for e in folder.events() if "train_step" in e]
    assert [at for kind, at in seen if kind == "checkpoint"] == [15, 30, LAST]


@pytest.mark.parametrize("world_size", [1, 2])
def test_on_notice_what_is_under_way_is_finished_before_the_last_state_is_saved(
    folder: RunFolder, world_size: int
) -> None:
    hurts = " ".join(f"{rank}:12:TERM" for rank in range(world_size))
    training = start(folder, world_size, SLOW=1000, HURT=hurts, **{EVERY: 10})

    assert training.exit_codes() == [75] * world_size, training.log()
    first, last = folder.complete()
    assert first == 10
    assert last in (12, 13)
    told = [(event["event"], event.get("train_step")) for event in folder.events()]
    assert told[-3:] == [("notice", None), ("checkpoint", 10), ("checkpoint", last)]
    assert folder.resubmit.exists()


def test_checkpoints_that_are_due_faster_than_they_are_written_wait(folder: RunFolder) -> None:
    assert run(folder, 2, **{EVERY: 1}) == [0, 0]

    assert folder.complete() == list(range(1, LAST + 1))
    assert [event["train_step"] for event in folder.events("checkpoint")] == folder.complete()


@pytest.mark.parametrize("world_size", [1, 2])
def test_or_are_left_out(folder: RunFolder, world_size: int) -> None:
    variables = {EVERY: 5, "HPCFLOW_CHECKPOINT_WHEN_BUSY": "skip"}

    assert run(folder, world_size, SLOW=12, **variables) == [0] * world_size

    assert {5, LAST} <= set(folder.complete())
    assert {10, 15}.isdisjoint(folder.complete())


def test_a_word_that_is_neither_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCFLOW_CHECKPOINT_WHEN_BUSY", "hurry")
    with pytest.raises(ValueError, match="HPCFLOW_CHECKPOINT_WHEN_BUSY='hurry': not wait or skip"):
        runtime.start()


@pytest.mark.parametrize("kills", [20, pytest.param(50, marks=pytest.mark.soak)])
def test_a_kill_at_any_moment_leaves_only_whole_checkpoints(
    undisturbed: Undisturbed, folder: RunFolder, kills: int
) -> None:
    """At so many calls of both threads, drawn from those of some ten checkpoints."""
    chance, hidden = random.Random("kill -9"), 0
    for at_call in chance.sample(range(1, 600), kills):
        shutil.rmtree(folder.checkpoints, ignore_errors=True)

        assert run(folder, DIE_AT_CALL=at_call, **{EVERY: 2}) == [-9]

        assert all(verify(folder.checkpoint(at)).train_step == at for at in folder.complete())
        strangers = [
            path.name
            for path in (folder.checkpoints.iterdir() if folder.checkpoints.is_dir() else ())
            if not path.name.isdecimal()
        ]
        assert all(name.startswith(".") for name in strangers)
        hidden += len(strangers)
    assert hidden > kills * 0.2, "most kills should have come while something was being written"

    assert run(folder) == [0]
    assert differing(weights(folder, LAST), undisturbed(1)) == []
    assert not list(folder.checkpoints.glob(".*.tmp"))


def test_a_program_that_fails_meanwhile_still_leaves_the_checkpoint(folder: RunFolder) -> None:
    training = start(folder, SLOW=1000, HURT="0:12:raise", **{EVERY: 10})

    assert training.exit_codes_by_themselves() == [1], training.log()
    assert folder.complete() == [10]
    assert verify(folder.checkpoint(10)).train_step == 10
    assert [event["train_step"] for event in folder.events("checkpoint")] == [10]


def test_of_several_ranks_none_waits_for_what_cannot_be_published(folder: RunFolder) -> None:
    training = start(folder, 2, SLOW=1000, HURT="1:12:raise", **{EVERY: 10})

    assert training.exit_codes_by_themselves() == [1, 1], training.log()
    assert folder.complete() == []
    assert run(folder, 2) == [0, 0]
    assert folder.complete() == [LAST]
    assert not list(folder.checkpoints.glob(".*")), "what was given up was not cleaned up"


def test_workers_of_a_data_loader_are_forked_while_it_is_written(folder: RunFolder) -> None:
    """Every checkpoint is begun with an epoch's last batch: then the next epoch's workers start."""
    training = start(folder, SLOW=3, WORKERS=2, **{EVERY: 10})

    assert training.exit_codes() == [0], training.log()
    assert folder.complete() == [10, 20, 30, LAST]
    assert all(verify(folder.checkpoint(at)).train_step == at for at in folder.complete())


def test_whatever_goes_wrong_in_the_background_is_a_warning(
    inside: RunFolder, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    save = torch.save

    def fail_once(*arguments: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            save(*arguments)
            return
        monkeypatch.setattr(torch, "save", save)
        raise ZeroDivisionError("a mistake in torch")

    monkeypatch.setattr(torch, "save", fail_once)
    run = runtime.start()
    run.restore(model=torch.nn.Linear(2, 2))
    for _ in run.train_steps(4):
        pass
    run.finish()

    assert inside.complete() == [2, 3, 4]
    assert not list(inside.checkpoints.glob(".*"))
    assert (
        "no checkpoint at train step 1, training continues: ZeroDivisionError: a mistake in torch"
        in capfd.readouterr().err
    )


def test_without_memory_for_the_copy_there_is_a_warning_and_no_checkpoint(
    inside: RunFolder, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: not enough memory")

    monkeypatch.setattr(HostCopies, "_buffer", refuse)
    run = runtime.start()
    run.restore(model=torch.nn.Linear(2, 2))
    for _ in run.train_steps(3):
        pass
    run.finish()

    assert inside.complete() == [3], "the last one is saved without a copy"
    assert capfd.readouterr().err.count("no copy in host memory could be made: Default") == 2


def train_and_list_what_is_read(environ: dict[str, str], out: Path) -> None:
    os.environ.update(environ)
    read = []

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and arguments[2] & os.O_ACCMODE != os.O_WRONLY:
            read.append(os.fsdecode(arguments[0]) if arguments[0] else "")

    sys.addaudithook(look)
    run = runtime.start()
    run.restore(model=torch.nn.Linear(500, 500), notes={"a": 1})
    for _ in run.train_steps(3):
        wait_for_write(run)
    run.finish()
    out.write_text(json.dumps(read))


def test_checksums_are_those_of_the_files_which_nobody_read(folder: RunFolder) -> None:
    folder.variables = {EVERY: "1"}
    out = folder.path / "read.json"
    process = context.Process(target=train_and_list_what_is_read, args=(folder.environ(), out))
    process.start()
    process.join()

    assert folder.complete() == [1, 2, 3]
    for train_step in folder.complete():
        path = folder.checkpoint(train_step)
        manifest = json.loads((path / "manifest.json").read_text())
        assert sorted(manifest["files"]) == ["model.pt", "notes.json", "rank-00000.json"]
        for name, entry in manifest["files"].items():
            assert entry["sha256"] == sha256_of(path / name)
            assert entry["size_bytes"] == (path / name).stat().st_size
    opened = [Path(path) for path in json.loads(out.read_text())]
    assert folder.checkpoints in opened, "folders are opened, to sync them"
    assert not [path for path in opened if path.suffix in (".pt", ".json")]


def test_an_object_that_saves_itself_is_in_the_manifest_too(inside: RunFolder) -> None:
    class Own:
        def save(self, folder: Path) -> None:
            (folder / "deep").mkdir()
            (folder / "deep" / "a.txt").write_text("text")

        def load(self, folder: Path) -> None:
            raise NotImplementedError

    run = runtime.start()
    run.restore(own=Own())
    for _ in run.train_steps(3):
        pass
    run.finish()

    assert inside.complete() == [1, 2, 3]
    assert verify(inside.checkpoint(1)).size_bytes > 4
    manifest = json.loads((inside.checkpoint(1) / "manifest.json").read_text())
    assert sorted(manifest["files"]) == ["own/deep/a.txt", "rank-00000.json"]


def test_the_end_of_the_program_stops_a_file(tmp_path: Path) -> None:
    asked = iter([False, True])
    file = NewFile(tmp_path / "model.pt", lambda: next(asked))

    file.write(bytes(3 << 20))

    with pytest.raises(OSError, match="the program has ended"):
        file.close()
    assert (tmp_path / "model.pt").stat().st_size == 1 << 20


def test_a_checkpoint_is_a_copy_of_the_state(tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.arange(12.0).reshape(3, 4))
    state = torch.nn.Linear(1, 1).state_dict()
    state.update(
        weight=weight,
        tied=weight,
        view=weight.detach().T[1:],
        half=torch.ones(3, dtype=torch.bfloat16),
        scalar=torch.tensor(3),
        empty=torch.zeros(0, 5),
        sparse=torch.eye(3).to_sparse(),
        conjugate=torch.ones(2, dtype=torch.complex64).conj(),
        groups=[{"params": [0, 1], "betas": (0.9, 0.999), "lr": 0.1}],
        none=None,
    )
    expected = tmp_path / "expected.pt"
    torch.save(state, expected)
    copies = HostCopies()

    copy = copies.take(state)
    copies.wait()
    with torch.no_grad():
        for value in state.values():
            if isinstance(value, torch.Tensor) and value.layout == torch.strided:
                value.fill_(0)
    state["groups"][0]["lr"] = 0.0
    torch.save(copy(), tmp_path / "copy.pt")

    one, other = (
        torch.load(tmp_path / name, weights_only=True) for name in ("expected.pt", "copy.pt")
    )
    assert list(one) == list(other)
    for name, value in one.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value.to_dense(), other[name].to_dense()), name
            assert (value.dtype, value.stride() if value.layout == torch.strided else None) == (
                other[name].dtype,
                other[name].stride() if value.layout == torch.strided else None,
            )
            assert value.requires_grad is other[name].requires_grad
        else:
            assert value == other[name]
    assert one._metadata == other._metadata
    assert other["tied"] is other["weight"]
    assert other["view"].untyped_storage().data_ptr() == other["weight"].data_ptr()
    assert (tmp_path / "copy.pt").stat().st_size == pytest.approx(expected.stat().st_size, abs=500)


def test_there_is_one_copy_in_memory_and_it_is_used_again(inside: RunFolder) -> None:
    model = torch.nn.Linear(300, 300, bias=False)
    copies = []
    run = runtime.start()
    run.restore(model=model, ema=model)
    for _ in run.train_steps(4):
        assert run._saving is not None
        wait_for_write(run)
        copies.append([buffer.data_ptr() for buffer in run._saving._copies._buffers])
    assert copies[0] == []
    assert copies[1] == copies[2] == copies[3]
    assert len(copies[1]) == 1, "two objects with the same tensor"
    run.finish()

    assert run._saving is not None
    assert run._saving._copies._buffers == []
    assert inside.complete() == [1, 2, 3, 4]


def test_memory_for_what_has_become_larger_replaces_that_before() -> None:
    copies = HostCopies()
    for size in (10, 20, 20):
        copies.restart()
        copies.take({"a": torch.ones(3), "b": torch.full((size,), float(size))})
        copies.wait()
    assert [buffer.numel() for buffer in copies._buffers] == [12, 80]
    copies.restart()
    copy = copies.take({"a": torch.ones(3)})
    copies.wait()
    assert [buffer.numel() for buffer in copies._buffers] == [12]
    assert copy()["a"].tolist() == [1, 1, 1]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_tensors_on_a_gpu_are_copied_into_pinned_memory() -> None:
    copies = HostCopies()
    state = {"a": torch.arange(1 << 20, device="cuda"), "b": torch.ones(3)}
    copy = copies.take(state)
    copies.wait()
    state["a"].zero_()
    assert copy()["a"].device.type == "cpu"
    assert torch.equal(copy()["a"], torch.arange(1 << 20))
    assert [buffer.is_pinned() for buffer in copies._buffers] == [True, False]


def test_the_checksums_of_other_ranks_are_those_that_they_wrote(folder: RunFolder) -> None:
    assert run(folder, 2, **{EVERY: 10}) == [0, 0]

    for train_step in folder.complete():
        path = folder.checkpoint(train_step)
        manifest = json.loads((path / "manifest.json").read_text())
        there = sorted(file.name for file in path.iterdir() if file.name != "manifest.json")
        assert sorted(manifest["files"]) == there
        assert "rank-00001.json" in there
        assert verify(path).train_step == train_step


def test_what_another_rank_left_garbled_is_never_published(
    inside: RunFolder, capfd: pytest.CaptureFixture[str]
) -> None:
    """As a file system does that shows rank 0 half of what rank 1 wrote."""

    class Two(Alone):
        world_size = 2

        def max(self, value: int) -> int:
            for path in inside.checkpoints.glob(".*.tmp"):
                (path / "rank-00001.part").write_text('{"rank-00001.json": {"size_by')
            return value

    run = Run(job_from(os.environ), Params(), Two())
    run.restore()
    for _ in run.train_steps(3):
        wait_for_write(run)
    with pytest.raises(CheckpointError, match="is not what rank 1 wrote"):
        run.finish()

    assert "no checkpoint at train step 1, training continues: " in capfd.readouterr().err
    assert list(inside.checkpoints.iterdir()) == []
