"""A save that has no room is not begun; the old checkpoint stays, and the training continues."""

from __future__ import annotations

import errno
import json
import os
import signal
from pathlib import Path

import pytest
import torch

from hpcflow import runtime
from hpcflow.runtime.__main__ import main
from hpcflow.runtime.disk_quota import needed_bytes, require_room
from hpcflow.runtime.manifest import verify
from hpcflow.runtime.store import CheckpointStore
from tests.cluster_fixture import small_disk
from tests.runtime.harness import RunFolder, start
from tests.runtime.program import BATCHES, EPOCHS, wait_for_write
from tests.runtime.published import publish

LAST = EPOCHS * BATCHES


@pytest.fixture
def small(folder: RunFolder) -> RunFolder:
    """A run directory whose checkpoints are to go on a disk of 8 MiB."""
    folder.checkpoints.mkdir(parents=True)
    return folder


def fill(folder: Path, but_bytes: int) -> Path:
    """Take what space is left, but for so much."""
    disk = os.statvfs(folder)
    ballast = folder / "ballast"
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, disk.f_bavail * disk.f_frsize - but_bytes)
    return ballast


def test_there_is_room_for_what_fits_and_a_little_more(tmp_path: Path) -> None:
    disk = os.statvfs(tmp_path)
    require_room(tmp_path, 0)
    require_room(tmp_path, disk.f_bavail * disk.f_frsize // 2)
    with pytest.raises(OSError, match=r"a checkpoint takes .* TiB, but .* are free") as caught:
        require_room(tmp_path, 1 << 60)
    assert caught.value.errno == errno.ENOSPC
    assert needed_bytes(10**9) > 10**9


def test_a_disk_that_does_not_answer_is_tried(tmp_path: Path) -> None:
    require_room(tmp_path / "gone", 1 << 60)


def test_the_last_checkpoint_says_how_much_is_needed(small: RunFolder) -> None:
    with small_disk(small.checkpoints, "8m"):
        publish(small.checkpoints, 1, {"model.bin": bytes(1 << 20)})
        store = CheckpointStore(small.checkpoints)
        store.newest()
        ballast = fill(small.checkpoints, 512 << 10)
        with pytest.raises(OSError, match=r"1\.0 MiB, but 512\.0 KiB are free"):
            store.stage(2, 2)
        assert [path.name for path in small.checkpoints.glob("*[0-9]*")] == ["000000001"]
        ballast.unlink()
        store.stage(2, 2)


@pytest.mark.parametrize("size", [10**30, -(10**30), float("inf"), "many"])
def test_a_size_that_nobody_verified_holds_no_save_up(tmp_path: Path, size: object) -> None:
    """A digit of it was flipped, of a manifest that had no checksum yet; all else is whole."""
    path = publish(tmp_path, 5, {"a": b"12345", "b": b"67"}).path
    said = json.loads((path / "manifest.json").read_text())
    said.pop("sha256", None)
    said["files"]["a"]["size_bytes"] = size
    (path / "manifest.json").write_text(json.dumps(said))
    store = CheckpointStore(tmp_path)
    assert store.newest() is None
    store.require_quota()
    store.stage(6, 6)


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_training_on_a_disk_that_is_full_goes_on_and_says_so(
    small: RunFolder, world_size: int
) -> None:
    """Nothing is written in vain: of the checkpoints that had no room there is not a trace."""
    with small_disk(small.checkpoints, "8m"):
        first = start(
            small, world_size, HURT="0:15:TERM_ALL", HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS=10
        )
        assert first.exit_codes() == [75] * world_size, first.log()
        saved = small.complete()[-1]
        ballast = fill(small.checkpoints, 4096)
        small.attempt = 2
        second = start(
            small,
            world_size,
            HURT=f"0:{LAST - 5}:raise",
            PATIENT=1,
            HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS=10,
        )
        codes = second.exit_codes_by_themselves()
        assert codes[0] == 1, second.log()
        assert "a mistake in the program" in second.log()
        assert small.complete()[-1] == saved
        assert verify(small.checkpoint(saved)).train_step == saved
        assert not list(small.checkpoints.glob(".*"))
        failed = small.events("checkpoint_failed")
        assert [each["train_step"] for each in failed] == [20, 30]
        for each in failed:
            assert each["why"].startswith(f"[Errno {errno.ENOSPC}] a checkpoint takes ")
        assert second.log().count("training continues: [Errno 28] a checkpoint takes ") == 2

        ballast.unlink()
        small.attempt = 3
        third = start(small, world_size)
        assert third.exit_codes() == [0] * world_size, third.log()
        assert small.complete()[-1] == LAST


def test_a_disk_that_fills_while_a_checkpoint_is_written_costs_that_one(
    small: RunFolder,
) -> None:
    """The first one of a run is tried, for nobody knows how large it will be."""
    with small_disk(small.checkpoints, "8m"):
        ballast = fill(small.checkpoints, 4096)
        training = start(
            small, HURT=f"0:{LAST - 5}:raise", PATIENT=1, HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS=10
        )
        assert training.exit_codes() == [1]
        assert small.complete() == []
        assert not list(small.checkpoints.glob(".*"))
        failed = small.events("checkpoint_failed")
        assert [each["train_step"] for each in failed] == [10, 20, 30]
        assert "No space left on device" in failed[0]["why"]
        ballast.unlink()


def test_an_object_that_saves_itself_on_a_full_disk_ends_no_training(
    small: RunFolder, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """torch.save to a path says RuntimeError then, and others say what they like."""

    class Own:
        size_bytes = 1 << 10

        def save(self, folder: Path) -> None:
            torch.save(torch.zeros(self.size_bytes, dtype=torch.uint8), folder / "own.pt")

        def load(self, folder: Path) -> None:
            raise NotImplementedError

    variables = {**small.environ(), "HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS": "1"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR2)}
    with small_disk(small.checkpoints, "8m"):
        run, own = runtime.start(), Own()
        run.restore(own=own)
        for train_step in run.train_steps(4):
            own.size_bytes = 16 << 20 if train_step in (2, 3) else 1 << 10
            wait_for_write(run)
        run.finish()
        assert small.complete() == [1, 4]
        assert not list(small.checkpoints.glob(".*"))
    for number, handler in handlers.items():
        signal.signal(number, handler)

    assert [each["train_step"] for each in small.events("checkpoint_failed")] == [2, 3]
    assert capfd.readouterr().err.count("training continues: own.save(): RuntimeError: ") == 2


def test_a_program_in_another_language_is_told_before_anything_is_copied(
    small: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in small.environ().items():
        monkeypatch.setenv(name, value)
    state = small.path / "state"
    state.mkdir()
    (state / "weights.bin").write_bytes(bytes(1 << 20))
    with small_disk(small.checkpoints, "8m"):
        fill(small.checkpoints, 512 << 10)
        assert main(["checkpoint", str(state), "--train-step", "5"]) == 1
        assert "a checkpoint takes 1.0 MiB, but 512.0 KiB are free" in capsys.readouterr().err
        (failed,) = small.events("checkpoint_failed")
        assert failed["train_step"] == 5
