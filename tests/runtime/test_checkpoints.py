"""A checkpoint is visible only when it is complete."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from hpcflow.runtime.files import sync
from hpcflow.runtime.manifest import CheckpointError, verify
from hpcflow.runtime.store import CheckpointStore
from tests.runtime.harness import (
    RunFolder,
    context,
    die_at_call,
    start,
)
from tests.runtime.published import FILES, publish, save


def save_and_die(folder: Path, train_step: int, at_call: int) -> None:
    """Make a checkpoint, and be killed at the ``at_call``-th call that touches the disk."""
    die_at_call(at_call)
    save(folder, train_step)


def test_a_checkpoint_says_what_it_is(tmp_path: Path) -> None:
    save(tmp_path, 400)

    newest = CheckpointStore(tmp_path).newest()

    assert newest is not None
    assert (newest.train_step, newest.epoch, newest.metrics) == (400, 1.5, {"loss": 0.5})
    assert newest.path == tmp_path / "000000400"
    assert newest.size_bytes == sum(map(len, FILES.values()))
    manifest = json.loads((newest.path / "manifest.json").read_text())
    assert sorted(manifest["files"]) == sorted(FILES)


def test_a_kill_at_any_moment_leaves_all_of_it_or_nothing(tmp_path: Path) -> None:
    at_call, killed = 1, 0
    while True:
        folder = tmp_path / str(at_call)
        save(folder, 100)
        process = context.Process(target=save_and_die, args=(folder, 200, at_call))
        process.start()
        process.join()

        visible = sorted(path.name for path in folder.iterdir() if path.name[0] != ".")
        assert visible in (["000000100"], ["000000100", "000000200"])
        newest = CheckpointStore(folder).newest()
        assert newest is not None
        assert newest.path.name == visible[-1]
        if process.exitcode == 0:
            break
        killed += 1
        at_call += 1

        save(folder, 300)
        assert not list(folder.glob(".*.tmp")), "what the kill left behind was not cleaned up"
    assert killed > 15


def half_published(folder: Path) -> Path:
    """The checkpoint of train step 40, hidden; it was killed before the last of its renames."""
    save(folder, 30)
    save(folder, 40)
    return (folder / "000000040").rename(folder / ".000000040.00aa.tmp")


def test_one_that_was_killed_between_its_two_renames_is_published_all_the_same(
    tmp_path: Path,
) -> None:
    """What lay there before is hidden already, and this may be the only good one."""
    half_published(tmp_path)
    CheckpointStore(tmp_path).clean()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000000030", "000000040"]
    assert verify(tmp_path / "000000040").train_step == 40


@pytest.mark.parametrize("how", ["torn", "manifest cut", "another train step", "taken"])
def test_what_is_not_all_there_or_was_made_again_is_not(tmp_path: Path, how: str) -> None:
    hidden = half_published(tmp_path)
    if how == "torn":
        (hidden / "model.pt").write_bytes(b"half")
    elif how == "manifest cut":
        os.truncate(hidden / "manifest.json", 200)
    elif how == "another train step":
        hidden.rename(tmp_path / ".000000041.00aa.tmp")
    else:
        (tmp_path / "000000040").symlink_to("elsewhere")
    CheckpointStore(tmp_path).clean()
    there = sorted(path.name for path in tmp_path.iterdir())
    assert there == ["000000030"] + ["000000040"] * (how == "taken")


def test_what_could_not_be_read_is_not_removed_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = half_published(tmp_path)
    opened = os.open

    def fails(path: str, *args: int, **more: int) -> int:
        if str(path).endswith("manifest.json"):
            raise OSError(errno.EIO, "Input/output error", str(path))
        return opened(path, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", fails)
        CheckpointStore(tmp_path).clean()
    assert hidden.exists()
    CheckpointStore(tmp_path).clean()
    assert verify(tmp_path / "000000040").train_step == 40


def test_the_checkpoint_of_a_later_attempt_is_not_replaced(tmp_path: Path) -> None:
    """A listing of its claim may be a minute old on another node, and a slow disk takes seconds."""
    publish(tmp_path, 40, FILES, attempt=3)
    with pytest.raises(OSError, match="attempt 3 made it; attempt 2 should have ended"):
        publish(tmp_path, 40, FILES, attempt=2)
    assert json.loads((tmp_path / "000000040" / "manifest.json").read_text())["attempt"] == 3
    CheckpointStore(tmp_path).clean()
    publish(tmp_path, 40, FILES, attempt=4)
    assert json.loads((tmp_path / "000000040" / "manifest.json").read_text())["attempt"] == 4


def test_the_last_look_for_a_successor_is_right_before_the_rename(tmp_path: Path) -> None:
    def is_succeeded() -> None:
        assert list(tmp_path.glob(".*/manifest.json")), "syncing may take seconds"
        raise OSError("attempt 2 executes this run now")

    store = CheckpointStore(tmp_path)
    staged = store.stage(40, 7)
    with pytest.raises(OSError, match="attempt 2"):
        store.publish(staged, 40, {}, is_succeeded)
    assert list(tmp_path.iterdir()) == [staged]


def test_an_attempt_that_should_be_over_does_not_ask_to_be_sent_again(folder: RunFolder) -> None:
    training = start(folder, 2, HURT="0:15:be_succeeded 0:16:TERM")

    assert training.exit_codes() == [1, 1]

    assert "attempt 2 executes this run now" in training.log()
    assert not folder.resubmit.exists()


def test_a_file_system_that_syncs_no_folders_is_believed() -> None:
    """FUSE may answer EINVAL, as /proc does."""
    with pytest.raises(OSError, match="Invalid argument"), Path("/proc/version").open("rb") as file:
        os.fsync(file.fileno())
    sync(Path("/proc"))
    with pytest.raises(OSError, match="Invalid argument"):
        sync(Path("/proc/version"))


def test_an_empty_folder_has_no_newest(tmp_path: Path) -> None:
    assert CheckpointStore(tmp_path).newest() is None
    assert CheckpointStore(tmp_path / "not there").newest() is None
    with pytest.raises(CheckpointError, match="never complete"):
        verify(tmp_path)


def test_all_of_it_is_on_the_disk_before_anybody_sees_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that loses its power forgets what was only written."""
    happened: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def synced(descriptor: int) -> None:
        happened.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    def renamed(path: Path, target: Path) -> Path:
        happened.append(f"{path.name} -> {target.name}")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "rename", renamed)
    save(tmp_path, 40)
    hidden = happened[-2].partition(" -> ")[0]
    files = [name.rpartition("/")[2] for name in FILES]
    assert happened[: len(files)] == files
    manifest = happened.index("manifest.json")
    assert manifest == len(files)
    assert set(happened[manifest + 1 : -2]) == {"dir", "sub", hidden}
    assert happened[-2:] == [f"{hidden} -> 000000040", tmp_path.name]
