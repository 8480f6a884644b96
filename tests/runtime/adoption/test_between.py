"""After the program has ended, and before the next attempt's starts: what is adopted then."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcflow.runtime.manifest import CheckpointError, manifest_bytes
from tests.cluster_fixture import small_disk
from tests.owners import give_all_files_below
from tests.runtime.adoption.bench import Bench, archive


@pytest.mark.parametrize("code", [0, 75])
def test_a_program_that_left_by_itself_has_finished_what_it_wrote(bench: Bench, code: int) -> None:
    bench.watching()
    bench.write("step-1", b"x")
    bench.write("step-2", b"y")
    bench.end(code)
    assert bench.adopted() == {2: b"y"}, "the newest is what the run goes on from"


@pytest.mark.parametrize("code", [1, 137, 143])
def test_what_a_killed_program_wrote_last_may_be_half(
    bench: Bench, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.watching()
    bench.write("step-1", b"whole", age_s=60)
    bench.write("step-2", b"ha")
    bench.end(code)
    assert bench.adopted() == {1: b"whole"}
    assert "'step-2' is not adopted: it may be incomplete" in capsys.readouterr().err


@pytest.mark.parametrize("is_watched", [True, False])
def test_half_a_file_is_not_adopted_later_because_nobody_changes_it(
    bench: Bench, is_watched: bool
) -> None:
    bench.watching()
    bench.write("step-1", b"ha", age_s=5)
    bench.program_ended(143 if is_watched else None)
    if is_watched:
        bench.adopter().end(is_well=False)
    for _ in range(3):
        bench.next_attempt()
        adopter = bench.watching()
        bench.pass_by(adopter, 1000)
        bench.program_ended(None)
        assert bench.adopted() == {}

    bench.next_attempt()
    adopter = bench.watching()
    bench.write("step-1", b"half")
    bench.pass_by(adopter, 10)
    assert bench.adopted() == {1: b"half"}


def test_what_proves_itself_is_adopted_whoever_was_killed(bench: Bench) -> None:
    """The end of an archive is written last, as a marker is; and a name is given last."""
    whole = archive("weights")
    bench.rule = {"pattern": "*.ckpt"}
    bench.watching()
    bench.write("step=1.ckpt", whole)
    bench.write("step=2.ckpt", whole[:-1])
    bench.end(137)
    assert bench.adopted() == {1: whole}

    bench.next_attempt()
    bench.begin()
    bench.write("step=3.ckpt", whole)
    bench.write("step=4.ckpt", whole[:-1])
    bench.program_ended(None)
    bench.next_attempt()
    assert bench.begin() == bench.folder.checkpoint(3)


@pytest.mark.parametrize("rule", [{"marker": "done"}, {"renamed": True}])
def test_so_do_a_marker_and_a_new_name(bench: Bench, rule: dict[str, object]) -> None:
    bench.rule = rule
    bench.watching()
    bench.write("step-1", {"model": b"x", "done": b""})
    bench.program_ended(None)
    bench.next_attempt()
    assert bench.begin() == bench.folder.checkpoint(1)


def test_what_each_node_has_seen_says_how_long_the_program_had_lived_on(bench: Bench) -> None:
    """Everybody was killed at once, the watcher with them, or before them."""
    bench.begin()
    bench.write("step-1", b"whole", age_s=100)
    bench.write("step-2", b"ha", age_s=65)
    bench.program_ended(None, ago_s=60)
    bench.seen("0", ago_s=60)
    bench.next_attempt()
    assert bench.begin() == bench.folder.checkpoint(1)
    assert bench.adopted() == {1: b"whole"}


@pytest.mark.parametrize("name", ["program", "out.log", "events.jsonl", "claim", ".usage/event"])
def test_what_others_write_later_is_no_sign_of_life(bench: Bench, name: str) -> None:
    """srun, another rank and the script have printed something since the writer was killed."""
    bench.begin()
    bench.write("step-1", b"whole", age_s=100)
    bench.write("step-2", b"ha", age_s=65)
    bench.program_ended(None, ago_s=60)
    bench.seen("0", ago_s=60)
    late = bench.folder.attempt_dir / name
    late.write_text(late.read_text() if late.exists() else "srun: error: n2: task 1: Killed\n")
    bench.next_attempt()
    assert bench.begin() == bench.folder.checkpoint(1)


@pytest.mark.parametrize("code", [None, 1, 137])
def test_the_node_that_was_lost_first_says_when_the_program_may_have_died(
    bench: Bench, code: int | None
) -> None:
    """It may have been the one that wrote; srun and the other node learned of it much later."""
    bench.begin()
    bench.write("step-1", b"whole", age_s=100)
    bench.write("step-2", b"ha", age_s=65)
    bench.seen("0", ago_s=0)
    bench.seen("1", ago_s=60)
    bench.program_ended(code)
    if code is not None:
        bench.adopter().end(is_well=False)
    bench.next_attempt()
    assert bench.begin() == bench.folder.checkpoint(1)
    assert bench.adopted() == {1: b"whole"}


@pytest.mark.parametrize("mark", ["failed", "terminated"])
@pytest.mark.parametrize("code", [None, 0, 75, 1, 143])
@pytest.mark.parametrize("is_watched", [True, False])
def test_the_first_rank_that_fails_ends_the_wait_for_what_is_being_saved(
    bench: Bench, mark: str, code: int | None, is_watched: bool
) -> None:
    """Rank 0 failed in the middle of a save; the others waited for it for a while."""
    bench.begin()
    bench.write("step-1", b"whole", age_s=100)
    bench.write("step-2", b"ha", age_s=65)
    bench.seen("0", ago_s=0)
    bench.program_ended(code)
    bench.failed(mark, ago_s=60)
    if is_watched:
        bench.adopter().end(is_well=code in (0, 75))
    bench.next_attempt()
    assert bench.begin() == bench.folder.checkpoint(1)
    assert bench.adopted() == {1: b"whole"}


@pytest.fixture
def other_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on another disk than that of the run directory."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with small_disk(folder, "8m"):
        yield folder


def test_the_clocks_of_two_disks_say_nothing_of_each_other(bench: Bench, other_disk: Path) -> None:
    """A server that is late by a minute made what was half look as if nobody wrote to it."""
    bench.out, whole = other_disk, archive("weights")
    bench.begin()
    bench.write("step-1", whole, age_s=200)
    bench.write("step-2", b"ha", age_s=100)
    bench.program_ended(None)
    bench.next_attempt()
    assert bench.begin() == bench.folder.checkpoint(1), "it proves itself"
    bench.write("step-3", b"ha", age_s=100)
    bench.end(137)
    assert bench.adopted() == {1: whole}


def test_a_program_that_left_by_itself_and_nobody_looked(bench: Bench) -> None:
    bench.begin()
    bench.write("step-1", b"whole")
    bench.program_ended(0)
    bench.next_attempt()
    assert bench.begin() == bench.folder.checkpoint(1)


@pytest.mark.parametrize("is_watched", [True, False])
@pytest.mark.parametrize("code", [None, 1, 137, 143])
def test_the_word_of_one_rank_does_not_say_that_the_others_have_finished(
    bench: Bench, code: int | None, is_watched: bool
) -> None:
    """Rank 1 left with 75; rank 0, which writes, was killed when its time was over."""
    bench.watching()
    bench.write("step-1", b"ha")
    bench.folder.resubmit.touch()
    bench.program_ended(code)
    if is_watched:
        bench.adopter().end(is_well=True)  # the script leaves with 75 because of that word
    bench.next_attempt()
    assert bench.begin() is None
    assert bench.adopted() == {}


def test_what_a_failed_rank_wrote_may_be_half_whatever_its_launcher_says(bench: Bench) -> None:
    bench.watching()
    bench.write("step-1", b"ha")
    bench.failed("failed")
    bench.program_ended(0)
    bench.next_attempt()
    assert bench.begin() is None


def test_the_script_knows_that_srun_has_lost_the_program(bench: Bench) -> None:
    """srun leaves with 0 then; so the next attempt must not ask that code again."""
    bench.watching()
    bench.write("step-1", b"ha")
    bench.program_ended(0)
    bench.adopter().end(is_well=False)
    bench.next_attempt()
    assert bench.begin() is None
    assert bench.adopted() == {}


def test_a_damaged_one_is_made_again(bench: Bench) -> None:
    adopter = bench.watching()
    for step in (1, 2):
        bench.write(f"step-{step}", b"x")
        bench.pass_by(adopter, 10)
    own = bench.folder.checkpoint(2) / "adopted" / "step-2"
    own.write_bytes(b"y")
    bench.program_ended(None)

    bench.next_attempt()
    adopter = bench.watching()
    assert bench.resumed == bench.folder.checkpoint(1)
    bench.write("step-2", b"again")
    bench.pass_by(adopter, 10)

    assert bench.adopted() == {1: b"x", 2: b"again"}


@pytest.mark.parametrize("how", ["name", "count"])
def test_a_damaged_one_costs_no_good_one(bench: Bench, how: str) -> None:
    """Its sizes are right, and a bit of it is not; the program goes on from the one before."""
    bench.rule = {"train_step": how}
    adopter = bench.watching()
    for step in (1, 3):
        bench.write(f"step-{step}", b"x%d" % step)
        bench.pass_by(adopter, 10)
    damaged = max(bench.folder.complete())
    (bench.folder.checkpoint(damaged) / "adopted" / "step-3").write_bytes(b"y3")
    bench.program_ended(None)

    bench.next_attempt()
    bench.folder.variables = {"HPCFLOW_CHECKPOINT_KEEP": '{"last": 1}'}
    adopter = bench.watching()
    assert bench.resumed == bench.folder.checkpoint(1)
    assert bench.folder.complete() == [1]
    bench.write("step-2", b"x")
    bench.pass_by(adopter, 10)
    bench.program_ended(None)

    bench.next_attempt()
    resumed = bench.begin()
    assert resumed == bench.folder.checkpoint(2 if how == "name" else damaged + 1)


def test_where_a_file_system_does_not_answer_no_training_begins_anew(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    adopter = bench.watching()
    bench.write("step-1", b"x")
    bench.pass_by(adopter, 10)
    (bench.folder.checkpoints / "000000002").touch()  # no checkpoint, and no reason
    bench.program_ended(None)
    bench.next_attempt()

    def broken(path: Path, *_how: object) -> str:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    with monkeypatch.context() as patch:
        patch.setattr("hpcflow.runtime.manifest.sha256_of", broken)
        with pytest.raises(CheckpointError, match="a checkpoint may be intact, but cannot be read"):
            bench.begin()
    assert "Input/output error" in capsys.readouterr().err
    assert bench.begin() == bench.folder.checkpoint(1)
    (bench.folder.checkpoint(1) / "adopted" / "step-1").write_bytes(b"y")
    assert bench.begin() is None, "what is damaged is no reason"


def test_nor_where_the_checkpoints_cannot_be_listed(bench: Bench) -> None:
    bench.folder.environ()
    bench.folder.checkpoints.touch()
    with pytest.raises(NotADirectoryError):
        bench.begin()


def test_a_memory_that_was_lost_costs_nothing(bench: Bench) -> None:
    bench.rule = {"pattern": "ckpt.pt", "train_step": "count"}
    adopter = bench.watching()
    bench.write("ckpt.pt", b"first", age_s=50)
    bench.pass_by(adopter, 10)
    (bench.folder.path / "adoption.json").unlink()
    bench.program_ended(0)

    bench.next_attempt()
    bench.begin()
    assert bench.adopted() == {1: b"first"}, "it is the same, and no second one"

    bench.program_ended(0)
    (bench.folder.path / "adoption.json").write_text("[")
    bench.write("ckpt.pt", b"half, or not", age_s=40)
    bench.next_attempt()
    bench.begin()
    assert bench.adopted() == {1: b"first"}, "the times are those of a copy, maybe"

    bench.program_ended(0)
    (bench.folder.path / "adoption.json").unlink()
    second = archive("second")
    bench.write("ckpt.pt", second, age_s=30)
    bench.next_attempt()
    bench.begin()
    assert bench.adopted() == {1: b"first", 2: second}


def test_the_same_bytes_are_not_counted_twice(bench: Bench) -> None:
    """Killed between the publishing and the writing down."""
    bench.rule = {"pattern": "ckpt.pt", "train_step": "count"}
    adopter = bench.watching()
    bench.write("ckpt.pt", b"first")
    bench.pass_by(adopter, 10)
    memory = bench.folder.path / "adoption.json"
    memory.write_text(json.dumps({"format": 1, "known": {}}))
    bench.end(0)
    assert bench.adopted() == {1: b"first"}
    assert "first" not in memory.read_text()
    assert json.loads(memory.read_text())["known"]["ckpt.pt"]["train_step"] == 1


# Put back


@pytest.fixture
def nanogpt(bench: Bench) -> Bench:
    bench.rule = {"pattern": "ckpt.pt", "train_step": "count", "put_back": True}
    return bench


def saved(bench: Bench, content: bytes) -> Path:
    adopter = bench.watching()
    path = bench.write("ckpt.pt", content)
    bench.pass_by(adopter, 10)
    assert content in bench.adopted().values()
    return path


def test_what_is_whole_and_known_stays_as_it_is(nanogpt: Bench) -> None:
    path = saved(nanogpt, archive("first"))
    inode = path.stat().st_ino
    nanogpt.program_ended(137)
    nanogpt.next_attempt()
    nanogpt.begin()
    assert path.stat().st_ino == inode
    assert len(nanogpt.adopted()) == 1


@pytest.mark.parametrize("torn", [None, b"", b"PK\x03\x04 half"])
def test_what_is_gone_or_torn_is_put_back(
    nanogpt: Bench, torn: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = archive("first")
    path = saved(nanogpt, whole)
    if torn is None:
        path.unlink()
        path.parent.rmdir()
    else:
        path.write_bytes(torn)
    nanogpt.program_ended(137)

    nanogpt.next_attempt()
    assert nanogpt.begin() == nanogpt.folder.checkpoint(1)

    assert path.read_bytes() == whole
    assert [each.name for each in path.parent.iterdir()] == ["ckpt.pt"]
    assert "was replaced by the checkpoint of train step 1" in capsys.readouterr().err
    adopter = nanogpt.adopter()
    adopter.watch()
    nanogpt.pass_by(adopter, 10)
    assert list(nanogpt.adopted()) == [1], "what was put back is no new one"
    own = nanogpt.folder.checkpoint(1) / "adopted" / "ckpt.pt"
    assert not own.samefile(path), "the program writes over it"


def test_a_newer_one_that_is_whole_is_adopted_and_stays(nanogpt: Bench) -> None:
    first, second = archive("first"), archive("second")
    path = saved(nanogpt, first)
    path.write_bytes(second)
    nanogpt.program_ended(137)
    nanogpt.next_attempt()
    assert nanogpt.begin() == nanogpt.folder.checkpoint(2)
    assert path.read_bytes() == second
    assert nanogpt.adopted() == {1: first, 2: second}


def test_a_folder_is_put_back_too(bench: Bench) -> None:
    bench.rule = {"put_back": True}
    adopter = bench.watching()
    path = bench.write("step-1", {"model": b"x", "sub/more": b"y"})
    bench.pass_by(adopter, 10)
    (path / "model").write_bytes(b"ha")
    (path / "sub" / "more").unlink()
    bench.program_ended(137)
    bench.next_attempt()
    bench.begin()
    assert (path / "model").read_bytes() == b"x"
    assert (path / "sub" / "more").read_bytes() == b"y"
    assert [each.name for each in bench.out.iterdir()] == ["step-1"]


def test_a_folder_is_put_back_where_all_files_have_one_owner(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a CIFS mount with `uid=`, and an NFS export with `all_squash`."""
    bench.rule = {"put_back": True}
    adopter = bench.watching()
    path = bench.write("step-1", {"model": b"x", "sub/more": b"y"})
    bench.pass_by(adopter, 10)
    (path / "model").write_bytes(b"ha")
    bench.program_ended(137)
    bench.next_attempt()
    give_all_files_below(bench.out, 65534, monkeypatch)
    bench.begin()
    assert (path / "model").read_bytes() == b"x"
    assert [each.name for each in bench.out.iterdir()] == ["step-1"]


def test_what_is_put_back_is_for_whom_it_was(nanogpt: Bench) -> None:
    """The job script has a umask of its own."""
    path = saved(nanogpt, archive("first"))
    path.write_bytes(b"")
    path.chmod(0o664)
    nanogpt.program_ended(137)
    nanogpt.next_attempt()
    umask = os.umask(0o077)
    try:
        nanogpt.begin()
    finally:
        os.umask(umask)
    assert path.read_bytes() != b""
    assert path.stat().st_mode & 0o777 == 0o664


def test_so_is_a_folder(bench: Bench) -> None:
    bench.rule = {"put_back": True}
    adopter = bench.watching()
    path = bench.write("step-1", {"model": b"x", "sub/more": b"y"})
    modes = {path: 0o750, path / "model": 0o640, path / "sub": 0o755, path / "sub/more": 0o444}
    for each, mode in modes.items():
        each.chmod(mode)
    bench.pass_by(adopter, 10)
    (path / "model").write_bytes(b"ha")
    bench.program_ended(137)
    bench.next_attempt()
    umask = os.umask(0o077)
    try:
        bench.begin()
    finally:
        os.umask(umask)
    assert (path / "model").read_bytes() == b"x"
    assert {each: each.stat().st_mode & 0o777 for each in modes} == modes


def test_a_manifest_does_not_say_where_else_to_write(nanogpt: Bench, tmp_path: Path) -> None:
    saved(nanogpt, b"x").unlink()
    manifest = nanogpt.folder.checkpoint(1) / "manifest.json"
    said = json.loads(manifest.read_text())
    code = nanogpt.write("train.py", b"the user's code")
    own = nanogpt.folder.checkpoint(1) / "adopted"
    (own / "ckpt.pt").rename(own / "train.py")
    said["files"]["adopted/train.py"] = said["files"].pop("adopted/ckpt.pt")
    names = (
        "../owned",
        str(tmp_path / "owned"),
        "a/../../owned",
        "",
        7,
        "train.py",
        "owned/ckpt.pt",
    )
    for name in names:
        said["adopted"]["name"] = name
        manifest.write_bytes(manifest_bytes(said))
        nanogpt.next_attempt()
        nanogpt.begin()
        assert not list(tmp_path.rglob("owned"))
        assert code.read_bytes() == b"the user's code"
