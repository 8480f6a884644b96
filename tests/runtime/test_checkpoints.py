"""A checkpoint is visible only when it is complete, and used only when it is whole."""

from __future__ import annotations

import errno
import json
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from hpcflow import runtime
from hpcflow.runtime.__main__ import main
from hpcflow.runtime.checksum import sha256_of
from hpcflow.runtime.files import NewFile, sync
from hpcflow.runtime.manifest import CheckpointError, Share, manifest_bytes, verify
from hpcflow.runtime.objects import check_object
from hpcflow.runtime.program_state import ProgramState
from hpcflow.runtime.ranks import Alone, OtherRanks, TorchRanks
from hpcflow.runtime.restoring import choose
from hpcflow.runtime.store import CheckpointStore
from tests.runtime.conftest import Undisturbed
from tests.runtime.harness import (
    RunFolder,
    context,
    die_at_call,
    differing,
    rewritten,
    run,
    start,
    weights,
)
from tests.runtime.program import BATCHES, EPOCHS
from tests.runtime.published import publish

LAST = EPOCHS * BATCHES
FILES = {"model.pt": b"weights " * 1000, "rank-00000.json": b"{}", "sub/dir/data.bin": b"\0" * 10}


def save(folder: Path, train_step: int) -> None:
    """Make a checkpoint as rank 0 does, without a training around it."""
    CheckpointStore(folder).clean()
    publish(folder, train_step, FILES, metrics={"loss": 0.5}, epoch=1.5)


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
    assert killed > 20


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
    read = Path.read_bytes

    def fails(path: Path) -> bytes:
        if path.name == "manifest.json":
            raise OSError(errno.EIO, "Input/output error", str(path))
        return read(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", fails)
        CheckpointStore(tmp_path).clean()
    assert hidden.exists()
    CheckpointStore(tmp_path).clean()
    assert verify(tmp_path / "000000040").train_step == 40


def test_the_checkpoint_of_a_later_attempt_is_not_replaced(tmp_path: Path) -> None:
    """A listing of its claim may be a minute old on another node, and a slow disk takes seconds."""
    publish(tmp_path, 40, FILES, attempt=3)
    with pytest.raises(OSError, match="attempt 3 has made it, and attempt 2 should be over"):
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
    assert "no checkpoint to go on from, but there may be: " in training.log()
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
    with pytest.raises(CheckpointError, match=r"there may be: .*000000030: .*not seen here"):
        choose(CheckpointStore(here), here / "000000030", Alone())
    monkeypatch.setenv("HPCFLOW_CHECKPOINT_DIR", str(here))
    monkeypatch.setenv("HPCFLOW_RESUME_FROM", str(here / "000000030"))
    assert main(["resume-path"]) == 4


def chosen_by_each(*folders: Path) -> list[Path | str | None]:
    """What ranks go on from that see one of ``folders`` each; or why they do not."""
    barrier = threading.Barrier(len(folders), timeout=20)
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
    assert "not seen here" in str(not_mounted)
    (tmp_path / "seen" / "000000030" / "model.pt").unlink()
    assert chosen_by_each(tmp_path / "seen", tmp_path / "seen") == [None, None], "that is torn"


def test_a_fresh_run_can_begin_from_a_checkpoint_of_another(folder: RunFolder) -> None:
    run(folder, HURT="0:15:KILL", PATIENT=1, HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS=10)
    other = RunFolder(folder.path / "other")

    assert run(other, HPCFLOW_RESUME_FROM=folder.checkpoint(10)) == [0]

    assert other.events("train_started")[0]["train_step"] == 10


def test_what_was_submitted_to_resume_from_gives_way_to_what_is_newer(folder: RunFolder) -> None:
    run(folder, HURT="0:25:KILL", PATIENT=1, HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS=10)

    run(folder, HPCFLOW_RESUME_FROM=folder.checkpoint(10))

    assert folder.events("train_started")[-1]["train_step"] == 20


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
    assert "CheckpointError: its random numbers make no sense" in training.log()


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_full_disk_does_not_end_a_training(
    undisturbed: Undisturbed, folder: RunFolder, world_size: int
) -> None:
    hurts = f"0:15:disk_full 0:{LAST - 1}:disk_free"
    training = start(
        folder, world_size, HURT=hurts, PATIENT=1, HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS=10
    )

    assert training.exit_codes() == [0] * world_size, training.log()

    assert training.log().count("training goes on") == 2
    assert folder.complete() == [10, LAST]
    assert verify(folder.checkpoint(10)).train_step == 10
    assert not list(folder.checkpoints.glob(".*")), "half checkpoints fill the disk even more"
    assert differing(weights(folder, LAST), undisturbed(world_size)) == []


def test_a_full_disk_on_notice_costs_the_save_and_not_the_run(folder: RunFolder) -> None:
    """The job asks to be sent again, and goes on from the checkpoint before."""
    hurts = "0:15:disk_full 0:16:TERM"
    training = start(folder, 2, HURT=hurts, PATIENT=1, HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS=10)

    assert training.exit_codes() == [75, 75], training.log()

    assert folder.resubmit.exists()
    (failed,) = folder.events("checkpoint_failed")
    told = f"no checkpoint at train step {failed['train_step']}, leaving all the same: "
    assert training.log().count(told) == 1
    assert folder.complete() == [10]
    assert not list(folder.checkpoints.glob(".*"))
    assert run(folder, 2) == [0, 0]
    assert folder.events("train_started")[-1]["train_step"] == 10


def test_an_attempt_that_should_be_over_does_not_ask_to_be_sent_again(folder: RunFolder) -> None:
    training = start(folder, 2, HURT="0:15:be_succeeded 0:16:TERM")

    assert training.exit_codes() == [1, 1]

    assert "attempt 2 executes this run now" in training.log()
    assert not folder.resubmit.exists()


def test_a_disk_that_is_full_on_another_node_fails_the_save_on_all(folder: RunFolder) -> None:
    training = start(
        folder, 2, HURT="1:15:disk_full", PATIENT=1, HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS=10
    )

    assert training.exit_codes() == [1, 1]

    assert folder.complete() == [10]
    assert "another rank could not write" in training.log()


def test_a_checkpoint_of_other_objects_is_refused(folder: RunFolder) -> None:
    run(folder, HURT="0:15:KILL", PATIENT=1, HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS=10)
    manifest = json.loads((folder.checkpoint(10) / "manifest.json").read_text())
    del manifest["files"]["scheduler.pt"]
    (folder.checkpoint(10) / "manifest.json").write_bytes(manifest_bytes(manifest))
    (folder.checkpoint(10) / "scheduler.pt").unlink()

    training = start(folder)

    assert training.exit_codes() == [1]
    assert "has no scheduler.pt; it has count.json, manifest.json, model.pt" in training.log()


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


def test_batches_that_are_given_out_twice_are_an_error() -> None:
    """Nothing of them would be trained, and the training would seem to succeed."""
    run = runtime.start()
    run.restore()
    for _ in run.batches([1, 2]):
        pass
    with pytest.raises(RuntimeError, match=r"run\.epochs"):
        list(run.batches([1, 2]))


def test_a_stream_that_does_not_know_its_length_gives_its_batches() -> None:
    """torch's DataLoader has a length, and raises when it is asked for that of a stream."""

    class Stream(torch.utils.data.IterableDataset[int]):  # type: ignore[misc]
        def __iter__(self) -> Iterator[int]:
            return iter(range(5))

    run = runtime.start()
    run.restore()
    seen = [batch.tolist() for batch in run.batches(DataLoader(Stream(), batch_size=2))]
    assert seen == [[0, 1], [2, 3], [4]]


def test_an_epoch_gives_its_batches_out_once() -> None:
    run = runtime.start()
    run.restore()
    seen = []
    for _ in run.epochs(2):
        seen += list(run.batches([1, 2]))
        with pytest.raises(RuntimeError, match="from its loader itself"):
            list(run.batches([3]))
    assert seen == [1, 2, 1, 2]
