"""Beside a program that writes: what is complete becomes a checkpoint, and nothing else does."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hpcflow.runtime.adoption import copying
from tests.runtime.adoption.bench import Bench, archive


def test_what_does_not_change_any_more_is_adopted_once(bench: Bench) -> None:
    adopter = bench.watching()
    bench.write("step-100", {"model.bin": b"half"})
    bench.pass_by(adopter, 9)
    bench.write("step-100", {"model.bin": b"all of it", "sub/more": b"x"})
    bench.pass_by(adopter, 9)
    assert bench.adopted() == {}, "it was changed a moment ago"

    bench.pass_by(adopter, 1)

    assert bench.adopted() == {100: {"model.bin": b"all of it", "sub/more": b"x"}}
    (event,) = bench.folder.events("checkpoint")
    assert (event["train_step"], event["size_bytes"]) == (100, 10)
    assert event["path"] == "checkpoints/000000100"
    for _ in range(3):
        bench.pass_by(adopter, 100)
    assert len(bench.folder.events("checkpoint")) == 1
    assert (bench.out / "step-100" / "model.bin").read_bytes() == b"all of it"


def test_a_marker_and_then_nothing_that_changes(bench: Bench) -> None:
    """transformers: rank 0 writes trainer_state.json, another rank its random numbers still."""
    bench.rule = {"pattern": "checkpoint-*", "marker": "trainer_state.json"}
    adopter = bench.watching()
    bench.write("checkpoint-500", {"model.safetensors": b"weights"})
    bench.pass_by(adopter, 1000)
    bench.write("checkpoint-500/trainer_state.json", b'{"global_step": ')
    bench.pass_by(adopter, 1000)
    assert bench.adopted() == {}, "without its marker, or half of that"

    bench.write("checkpoint-500/trainer_state.json", b'{"global_step": 500}')
    bench.pass_by(adopter, 9)
    bench.write("checkpoint-500/rng_state_1.pth", b"late")
    bench.pass_by(adopter, 9)
    assert bench.adopted() == {}
    bench.pass_by(adopter, 1)
    (files,) = bench.adopted().values()
    assert set(files) == {"model.safetensors", "trainer_state.json", "rng_state_1.pth"}


def test_a_file_and_a_marker_beside_it(bench: Bench) -> None:
    bench.rule = {"pattern": "step-*.pt", "marker": ".done"}
    adopter = bench.watching()
    bench.write("step-3.pt", b"weights")
    bench.pass_by(adopter, 1000)
    assert bench.adopted() == {}
    bench.write("step-3.pt.done", b"")
    bench.pass_by(adopter, 1000)
    assert bench.adopted() == {3: b"weights"}


def test_what_is_renamed_is_complete_at_once_and_needs_no_second_copy(bench: Bench) -> None:
    bench.rule = {"renamed": True}
    adopter = bench.watching()
    bench.write("step-7.tmp", {"model.bin": b"half"})
    bench.write(".step-8", {"model.bin": b"half"})
    adopter.look()
    assert bench.adopted() == {}

    written = (bench.out / "step-7.tmp").rename(bench.out / "step-7")
    adopter.look()

    assert bench.adopted() == {7: {"model.bin": b"half"}}
    own = bench.folder.checkpoint(7) / "adopted" / "step-7" / "model.bin"
    assert own.samefile(written / "model.bin")
    adopter.look()
    assert len(bench.folder.events("checkpoint")) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to a group")
@pytest.mark.parametrize("mode", [0o664, 0o602])
def test_a_renamed_file_that_others_can_write_to_is_copied(bench: Bench, mode: int) -> None:
    """A second name in the private run directory would stay the file of the shared folder."""
    bench.rule = {"renamed": True}
    adopter = bench.watching()
    written = bench.write("step-7.tmp", {"model.bin": b"ours"})
    os.chown(written / "model.bin", 0, 4711)
    (written / "model.bin").chmod(mode)
    written = written.rename(bench.out / "step-7")
    adopter.look()
    (written / "model.bin").write_bytes(b"them")
    assert bench.adopted() == {7: {"model.bin": b"ours"}}


def test_one_file_that_is_overwritten_is_copied_each_time(bench: Bench) -> None:
    """nanoGPT: nothing says which train step it is, so they are counted."""
    bench.rule = {"pattern": "ckpt.pt", "train_step": "count"}
    adopter = bench.watching()
    first, second = archive("first"), archive("second")
    path = bench.write("ckpt.pt", first)
    bench.pass_by(adopter, 10)
    path.write_bytes(second)
    bench.pass_by(adopter, 10)
    bench.pass_by(adopter, 10)

    assert bench.adopted() == {1: first, 2: second}


def test_an_archive_without_its_end_is_not_adopted_however_long_it_lies_there(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.rule = {"pattern": "ckpt.pt", "train_step": "count"}
    adopter = bench.watching()
    whole = archive("weights")
    for size in (5, 100, len(whole) - 1):
        bench.write("ckpt.pt", whole[:size])
        bench.pass_by(adopter, 1000)
        assert bench.adopted() == {}
    assert "is an incomplete zip archive: not adopted" in capsys.readouterr().err
    bench.write("ckpt.pt", whole)
    bench.pass_by(adopter, 10)
    assert bench.adopted() == {1: whole}


def test_what_changes_while_it_is_copied_is_thrown_away_and_tried_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    adopter = bench.watching()
    path = bench.write("step-1", b"0000")
    original, contents = copying.copy_file, [b"1111", b"2222", b"3333"]

    def disturbed(*given: Any) -> object:
        written = original(*given)
        if contents:
            path.write_bytes(contents.pop(0))
        return written

    monkeypatch.setattr(copying, "copy_file", disturbed)
    for _ in range(3):
        bench.pass_by(adopter, 10)
        assert bench.adopted() == {}
        assert list(bench.folder.checkpoints.iterdir()) == []
    assert "was changed 3 times" in capsys.readouterr().err
    bench.pass_by(adopter, 10)
    assert bench.adopted() == {1: b"3333"}


def test_what_was_there_before_the_run_is_not_the_runs(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.write("step-900", b"of somebody else", age_s=5000)
    adopter = bench.watching()
    assert "not adopted, because older than this run" in capsys.readouterr().err
    bench.pass_by(adopter, 1000)
    assert bench.adopted() == {}

    bench.write("step-10", b"own")
    bench.pass_by(adopter, 10)
    bench.next_attempt()
    assert bench.begin() == bench.folder.checkpoint(10)
    bench.write("step-900", b"now it is ours")
    adopter = bench.adopter()
    adopter.watch()
    bench.pass_by(adopter, 10)
    assert bench.adopted() == {10: b"own", 900: b"now it is ours"}


def test_links_are_passed_over(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.rule = {"pattern": "*.ckpt"}
    adopter = bench.watching()
    bench.write("epoch=1-step=20.ckpt", b"weights")
    (bench.out / "last.ckpt").symlink_to("epoch=1-step=20.ckpt")
    (bench.out / "step=21.ckpt").symlink_to("/etc/passwd")
    folder = bench.write("step=22.ckpt", {"a": b"x"})
    (folder / "b").symlink_to("/etc/passwd")
    os.mkfifo(bench.out / "step=23.ckpt")
    bench.pass_by(adopter, 10)
    assert bench.adopted() == {20: b"weights"}
    assert "neither a plain file nor a folder" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_what_another_user_put_there_is_not_adopted(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program would load it, and with it whatever code it brings along. The owner of a folder
    removes any file in it."""
    bench.rule = {"pattern": "*.ckpt"}
    adopter = bench.watching()
    bench.write("step=20.ckpt", b"weights")
    os.chown(bench.write("step=21.ckpt", b"code"), 4711, 4711)
    os.chown(bench.write("step=22.ckpt", {"a": b"x", "b": b"code"}) / "b", 4711, 4711)
    os.chown(bench.write("step=23.ckpt", {"half": b"x"}), 4711, 4711)
    os.chown(bench.write("step=24.ckpt", {"a": b"x", "sub/half": b"x"}) / "sub", 4711, 4711)
    bench.pass_by(adopter, 10)
    assert bench.adopted() == {20: b"weights"}
    assert "belongs to another user" in capsys.readouterr().err


def test_a_folder_deeper_than_pythons_stack_hides_no_checkpoint(bench: Bench) -> None:
    deep = bench.out / "step-9"
    subprocess.run(["mkdir", "-p", f"{deep}/{'a/' * 1200}"], check=True)
    try:
        adopter = bench.watching()
        bench.write("step-1", b"x")
        bench.pass_by(adopter, 10)
    finally:  # pytest cannot
        subprocess.run(["rm", "-r", str(deep)], check=True)
    assert bench.adopted() == {1: b"x"}


def test_a_checkpoint_deeper_than_pythons_stack_is_not_adopted(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    adopter = bench.watching()
    deep = bench.out / "step-9"
    bottom = Path(f"{deep}/{'a/' * 1500}")
    subprocess.run(["mkdir", "-p", str(bottom)], check=True)
    try:
        (bottom / "model.pt").write_bytes(b"x")
        bench.write("step-1", b"x")
        bench.pass_by(adopter, 10)
        bench.watching()
    finally:  # pytest cannot
        subprocess.run(["rm", "-r", str(deep)], check=True)
    assert bench.adopted() == {1: b"x"}
    assert "100 folders deep" in capsys.readouterr().err


def test_the_train_step_of_a_file_in_it(bench: Bench) -> None:
    bench.rule = {"pattern": "last", "train_step": "state.json:step"}
    adopter = bench.watching()
    for state in (b"", b"[]", b'{"step": "7"}', b'{"step": -1}', b'{"step": true}'):
        bench.write("last", {"model": b"x", "state.json": state})
        bench.pass_by(adopter, 10)
        assert bench.adopted() == {}, state
    for step in (7, 9):
        bench.write("last", {"model": b"x", "state.json": b'{"step": %d}' % step})
        bench.pass_by(adopter, 10)
    assert list(bench.adopted()) == [7, 9]


def test_old_ones_go_by_the_rule_of_the_run(bench: Bench) -> None:
    bench.folder.variables = {"HPCFLOW_CHECKPOINT_KEEP": '{"last": 2}'}
    adopter = bench.watching()
    for step in (1, 2, 3):
        bench.write(f"step-{step}", b"x")
        bench.pass_by(adopter, 10)
    assert list(bench.adopted()) == [2, 3]
    bench.next_attempt()
    bench.begin()
    assert list(bench.adopted()) == [2, 3], "step-1 is still there, and older"


def test_a_hostile_name_is_a_name(bench: Bench) -> None:
    name = "step-5 it's\n$(x) ü 💩"
    bench.rule = {"pattern": "step-*"}
    adopter = bench.watching()
    bench.write(name, {"a\nb": b"x"})
    bytes_name = os.fsencode(bench.out) + b"/step-6\xff"
    Path(os.fsdecode(bytes_name)).write_bytes(b"y")
    bench.pass_by(adopter, 10)
    assert bench.adopted() == {5: {"a\nb": b"x"}, 6: b"y"}
    assert (bench.folder.checkpoint(5) / "adopted" / name).is_dir()


def test_a_checkpoint_that_the_program_removes_meanwhile_is_nobodys_loss(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    adopter = bench.watching()
    path = bench.write("step-1", b"x")
    monkeypatch.setattr("hpcflow.runtime.adoption.copying.take", _removed(path))
    bench.pass_by(adopter, 10)
    assert bench.adopted() == {}
    assert list(bench.folder.checkpoints.iterdir()) == []
    assert capsys.readouterr().err == ""


def _removed(path: Path) -> object:
    def take(*_: object, **__: object) -> object:
        path.unlink()
        raise FileNotFoundError(str(path))

    return take


def test_without_a_folder_or_a_run_directory_nothing_happens(bench: Bench) -> None:
    bench.out.rmdir()
    adopter = bench.watching()
    bench.pass_by(adopter, 10)
    bench.out.mkdir()
    bench.write("step-1", b"x")
    bench.folder.path.rename(bench.folder.path.with_name("gone"))
    bench.pass_by(adopter, 10)
    assert not bench.folder.path.exists(), "a deleted run directory came back"


def test_an_attempt_that_is_not_the_newest_any_more_adopts_nothing(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its node was given up, and lives on; the run goes on elsewhere."""
    adopter = bench.watching()
    bench.write("step-1", b"x")
    bench.folder.attempt = 2
    bench.folder.environ()
    (bench.folder.attempt_dir / "claim").write_text("8\n")
    bench.pass_by(adopter, 10)
    assert bench.adopted() == {}
    assert "attempt 2 executes this run now" in capsys.readouterr().err


def test_nor_does_it_clean_up_what_the_newest_is_writing(bench: Bench) -> None:
    """It was stopped before it began, and now goes on."""
    bench.folder.checkpoints.mkdir(parents=True)
    staged = bench.folder.checkpoints / ".000000001.00ff.tmp"
    staged.mkdir()
    bench.folder.attempt = 2
    bench.folder.environ()
    (bench.folder.attempt_dir / "claim").write_text("8\n")
    bench.folder.attempt = 1
    with pytest.raises(OSError, match="attempt 2 executes this run now"):
        bench.begin()
    assert staged.is_dir()


def test_the_marker_of_the_save_before_is_none(bench: Bench) -> None:
    """One folder, written over; nobody removes its marker first."""
    bench.rule = {"pattern": "last", "marker": "done", "train_step": "count"}
    adopter = bench.watching()
    bench.write("last", {"model": b"first", "done": b""}, age_s=500)
    bench.pass_by(adopter, 10)
    assert len(bench.adopted()) == 1
    bench.write("last", {"model": b"sec"})
    bench.pass_by(adopter, 1000)
    bench.end(137)
    assert len(bench.adopted()) == 1
    bench.write("last", {"model": b"second", "done": b""})
    bench.end(137)
    assert bench.adopted()[2]["model"] == b"second"


@pytest.mark.parametrize("mark", ["failed", "terminated"])
def test_once_a_rank_has_failed_nothing_is_complete_because_it_does_not_change(
    bench: Bench, mark: str
) -> None:
    """Rank 0 failed in the middle of a save, and the others wait for it for a while."""
    adopter = bench.watching()
    bench.write("step-1", b"whole", age_s=100)
    bench.write("step-2", b"ha", age_s=65)
    adopter.look()
    bench.failed(mark, ago_s=60)
    bench.pass_by(adopter, 1000)
    assert bench.adopted() == {1: b"whole"}, "that was complete before"
    bench.write("step-3", archive("weights"))
    bench.pass_by(adopter, 1)
    assert max(bench.adopted()) == 3, "it proves itself"
