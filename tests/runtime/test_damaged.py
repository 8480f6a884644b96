"""A checkpoint is used only when it is whole; what cannot be read does not make it start over."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hpcflow.runtime.__main__ import main
from hpcflow.runtime.checksum import sha256_of
from hpcflow.runtime.manifest import CheckpointError, Share, manifest_bytes, verify
from hpcflow.runtime.ranks import Alone, OtherRanks
from hpcflow.runtime.restoring import choose
from hpcflow.runtime.store import CheckpointStore
from tests.runtime.conftest import Undisturbed
from tests.runtime.harness import (
    RunFolder,
    differing,
    run,
    start,
    weights,
)
from tests.runtime.program import BATCHES, EPOCHS
from tests.runtime.published import FILES, save

LAST = EPOCHS * BATCHES


def break_truncate(path: Path) -> None:
    with (path / "model.pt").open("rb+") as file:
        file.truncate(100)


def break_flip(path: Path) -> None:
    data = bytearray((path / "model.pt").read_bytes())
    data[len(data) // 2] ^= 1
    (path / "model.pt").write_bytes(data)


def break_remove_file(path: Path) -> None:
    (path / "rank-00000.json").unlink()


def break_remove_manifest(path: Path) -> None:
    (path / "manifest.json").unlink()


def break_manifest(text: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        (path / "manifest.json").write_text(text)

    return change


def break_link(path: Path) -> None:
    real = path.parent / "elsewhere.pt"
    (path / "model.pt").rename(real)
    (path / "model.pt").symlink_to(real)


def break_outside(name: str) -> Callable[[Path], None]:
    """Let the manifest name a file that exists, with its right size and checksum, outside."""

    def change(path: Path) -> None:
        secret = path.parent / "secret"
        secret.write_bytes(b"secret")
        manifest = json.loads((path / "manifest.json").read_text())
        entry = {"size_bytes": 6, "sha256": sha256_of(secret)}
        manifest["files"][name.replace("DIR", str(path.parent))] = entry
        (path / "manifest.json").write_bytes(manifest_bytes(manifest))

    return change


BREAKS: dict[str, Callable[[Path], None]] = {
    "truncated": break_truncate,
    "a bit flipped": break_flip,
    "a file gone": break_remove_file,
    "manifest missing": break_remove_manifest,
    "manifest empty": break_manifest(""),
    "manifest no object": break_manifest("[]"),
    "manifest without files": break_manifest('{"format": 1, "train_step": 40}'),
    "manifest from tomorrow": break_manifest('{"format": 2, "train_step": 40, "files": {}}'),
    "manifest of another": break_manifest('{"format": 1, "train_step": 41, "files": {}}'),
    "manifest nested without end": break_manifest("[" * 100_000),
    "a link": break_link,
    "outside by ..": break_outside("../secret"),
    "outside by root": break_outside("DIR/secret"),
    "outside by NUL": break_outside("a\0b"),
    "a name that no file can have": break_outside("a\ud800b"),
    "manifest cut": lambda path: os.truncate(path / "manifest.json", 200),
}


@pytest.mark.parametrize("how", BREAKS)
def test_a_broken_checkpoint_is_skipped_for_the_one_before(
    tmp_path: Path, how: str, capfd: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, 30)
    save(tmp_path, 40)
    BREAKS[how](tmp_path / "000000040")

    newest = CheckpointStore(tmp_path).newest()

    assert newest is not None
    assert newest.train_step == 30
    assert f"skipped checkpoint {tmp_path / '000000040'}: " in capfd.readouterr().err


@pytest.mark.parametrize("name", FILES)
def test_several_ranks_share_the_reading(tmp_path: Path, name: str) -> None:
    save(tmp_path, 40)
    data = bytearray((tmp_path / "000000040" / name).read_bytes())
    data[0] ^= 1
    (tmp_path / "000000040" / name).write_bytes(data)

    finders = []
    for rank in range(3):
        try:
            verify(tmp_path / "000000040", Share(rank, 3))
        except CheckpointError as error:  # noqa: PERF203 - of three
            finders.append(str(error))

    assert finders == [f"{name} is not what was written: its checksum differs"]


def test_a_broken_checkpoint_is_made_again_and_kept_aside(tmp_path: Path) -> None:
    save(tmp_path, 40)
    break_flip(tmp_path / "000000040")

    save(tmp_path, 40)

    assert verify(tmp_path / "000000040").train_step == 40
    assert len(list(tmp_path.glob(".000000040.*.broken"))) == 1


def test_a_training_resumes_from_the_one_before(
    undisturbed: Undisturbed, folder: RunFolder
) -> None:
    run(folder, 2, HURT="0:35:KILL", PATIENT=1, HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS=10)
    break_truncate(folder.checkpoint(30))

    training = start(folder, 2, HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS=10)

    assert training.exit_codes() == [0, 0]
    assert training.log().count("it is torn") == 1
    assert folder.events("train_started")[-1]["resumed_from"] == "checkpoints/000000020"
    assert differing(weights(folder, LAST), undisturbed(2)) == []
    assert verify(folder.checkpoint(30)).train_step == 30


#: The program of the tests, whose last rank has a disk that fails when it reads.
ON_A_BROKEN_DISK = """
import errno
import os

from hpcflow.runtime import manifest
from tests.runtime import program

def broken(path, *how):
    raise OSError(errno.EIO, "Input/output error", str(path))

if os.environ.get("RANK", "0") == os.environ["BROKEN"]:
    manifest.sha256_of = broken
program.train()
"""


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_disk_that_cannot_be_read_does_not_make_a_training_begin_anew(
    folder: RunFolder, tmp_path: Path, world_size: int
) -> None:
    training = start(folder, world_size, HURT="0:15:TERM_ALL")
    assert training.exit_codes() == [75] * world_size
    saved = folder.complete()
    script = tmp_path / "broken.py"
    script.write_text(ON_A_BROKEN_DISK)

    training = start(folder, world_size, PROGRAM=script, BROKEN=world_size - 1)

    assert training.exit_codes_by_themselves() == [1] * world_size
    assert "no checkpoint to continue from, but there may be one: " in training.log()
    assert "Input/output error" in training.log()
    assert folder.complete() == saved


def test_nor_does_a_program_in_another_language(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: Path, *_how: object) -> str:
        raise OSError(errno.EIO, "Input/output error", str(path))

    save(tmp_path, 40)
    monkeypatch.setattr("hpcflow.runtime.manifest.sha256_of", broken)
    monkeypatch.setenv("HPCFLOW_CHECKPOINT_DIR", str(tmp_path))
    assert main(["resume-path"]) == 4
    monkeypatch.setenv("HPCFLOW_RESUME_FROM", str(tmp_path / "000000040"))
    monkeypatch.setenv("HPCFLOW_CHECKPOINT_DIR", str(tmp_path / "empty"))
    assert main(["resume-path"]) == 4
    monkeypatch.setenv("HPCFLOW_CHECKPOINT_DIR", "/proc/self/mem/not/a/folder")
    assert main(["resume-path"]) == 4
    save(tmp_path, 50)
    monkeypatch.undo()
    break_flip(tmp_path / "000000050")
    monkeypatch.setenv("HPCFLOW_CHECKPOINT_DIR", str(tmp_path))
    assert main(["resume-path"]) == 0


def test_what_a_job_was_named_to_go_on_from_is_not_given_up_because_it_is_not_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The login node has seen it; a file system that was not mounted here costs no training."""
    here = tmp_path / "not mounted"
    with pytest.raises(
        CheckpointError, match=r"there may be one: .*000000030: .*not visible on this node"
    ):
        choose(CheckpointStore(here), here / "000000030", Alone())
    monkeypatch.setenv("HPCFLOW_CHECKPOINT_DIR", str(here))
    monkeypatch.setenv("HPCFLOW_RESUME_FROM", str(here / "000000030"))
    assert main(["resume-path"]) == 4


def chosen_by_each(*folders: Path) -> list[Path | str | None]:
    """What ranks go on from that see one of ``folders`` each; or why they do not."""
    barrier = threading.Barrier(len(folders), timeout=120)
    values = [0] * len(folders)

    def one(rank: int) -> Path | str | None:
        def maximum(value: int) -> int:
            values[rank] = value
            barrier.wait()
            agreed = max(values)
            barrier.wait()
            return agreed

        ranks = OtherRanks(rank, len(folders), maximum)
        try:
            return choose(CheckpointStore(folders[rank]), None, ranks)
        except CheckpointError as error:
            return str(error)

    with ThreadPoolExecutor(len(folders)) as threads:
        return list(threads.map(one, range(len(folders))))


def test_a_rank_that_sees_nothing_does_not_decide_that_there_is_nothing(tmp_path: Path) -> None:
    save(tmp_path / "seen", 30)
    seen, not_mounted = chosen_by_each(tmp_path / "seen", tmp_path / "not mounted")
    assert "another rank could not read one" in str(seen)
    assert "000000030: " in str(not_mounted)
    assert "not visible on this node" in str(not_mounted)
    (tmp_path / "seen" / "000000030" / "model.pt").unlink()
    assert chosen_by_each(tmp_path / "seen", tmp_path / "seen") == [None, None], "that is torn"


def test_a_fresh_run_can_begin_from_a_checkpoint_of_another(folder: RunFolder) -> None:
    run(folder, HURT="0:15:KILL", PATIENT=1, HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS=10)
    other = RunFolder(folder.path / "other")

    assert run(other, HPCFLOW_RESUME_FROM=folder.checkpoint(10)) == [0]

    assert other.events("train_started")[0]["train_step"] == 10


def test_a_run_whose_own_checkpoints_are_all_damaged_begins_from_that_of_another(
    tmp_path: Path,
) -> None:
    store, other = CheckpointStore(tmp_path / "own"), CheckpointStore(tmp_path / "other")
    save(other.folder, 10)
    begin = other.path(10)
    for hint in (None, begin):
        assert choose(store, hint, Alone(), begin=begin) == begin
    for at in (30, 40):
        save(store.folder, at)
    assert choose(store, begin, Alone(), begin=begin) == store.path(40)
    verified = sha256_of(store.path(40) / "manifest.json")
    break_truncate(store.path(40))
    assert choose(store, store.path(40), Alone(), verified, begin=begin) == store.path(30)
    break_flip(store.path(30))
    for hint in (store.path(40), begin):
        assert choose(store, hint, Alone(), verified, begin=begin) == begin
    break_flip(begin)
    with pytest.raises(CheckpointError, match="which this run starts from, is not intact"):
        choose(store, begin, Alone(), begin=begin)


def test_a_run_does_not_begin_anew_because_its_own_checkpoint_is_not_seen(tmp_path: Path) -> None:
    save(tmp_path / "other", 10)
    store, begin = CheckpointStore(tmp_path / "not mounted"), tmp_path / "other" / "000000010"
    with pytest.raises(CheckpointError, match="not visible on this node"):
        choose(store, store.path(30), Alone(), begin=begin)


@pytest.mark.parametrize("hurt", ["own", "none"])
def test_a_training_is_told_of_the_checkpoint_that_it_begins_from(
    folder: RunFolder, hurt: str
) -> None:
    run(folder, HURT="0:15:KILL", PATIENT=1, HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS=10)
    other = RunFolder(folder.path / "other")
    begin = folder.checkpoint(10)
    given: dict[str, Any] = {"HPCFLOW_BEGIN_FROM": begin, "HPCFLOW_RESUME_FROM": begin}
    run(other, HURT="0:25:KILL", PATIENT=1, HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS=10, **given)
    if hurt == "own":
        break_truncate(other.checkpoint(20))
    given["HPCFLOW_RESUME_FROM"] = other.checkpoint(20)
    assert run(other, **given) == [0]
    began = [each["train_step"] for each in other.events("train_started")]
    assert began == [10, 10 if hurt == "own" else 20]


def test_what_was_submitted_to_resume_from_gives_way_to_what_is_newer(folder: RunFolder) -> None:
    run(folder, HURT="0:25:KILL", PATIENT=1, HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS=10)

    run(folder, HPCFLOW_RESUME_FROM=folder.checkpoint(10))

    assert folder.events("train_started")[-1]["train_step"] == 20


def test_what_the_job_script_has_read_the_ranks_do_not_read_once_more(tmp_path: Path) -> None:
    """A rank that hashed would see the damage; it looks at every other checkpoint, as before."""
    store = CheckpointStore(tmp_path)
    sums = {}
    for at in (30, 40):
        save(tmp_path, at)
        sums[at] = sha256_of(store.path(at) / "manifest.json")
        break_flip(store.path(at))
    assert choose(store, None, Alone(), verified=sums[40]) == store.path(40)
    assert choose(store, None, Alone(), verified=sums[30]) == store.path(30)
    assert choose(store, None, Alone()) is None
    assert choose(store, store.path(30), Alone(), verified=None) is None


def test_what_is_another_one_since_is_read(tmp_path: Path) -> None:
    """The word of the job script is as old as the job, and every process in it has it."""
    store = CheckpointStore(tmp_path)
    save(tmp_path, 40)
    verified = sha256_of(store.path(40) / "manifest.json")
    break_truncate(store.path(40))
    assert choose(store, None, Alone(), verified=verified) is None
    save(tmp_path, 40)
    assert choose(store, None, Alone(), verified=verified) == store.path(40)
    break_flip(store.path(40))
    assert choose(store, None, Alone(), verified=verified) is None, "it was made again meanwhile"
