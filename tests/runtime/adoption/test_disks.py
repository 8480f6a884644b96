"""Disks that are full, and disks on which a copy costs nothing."""

from __future__ import annotations

import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hpcflow.errors import InputError
from hpcflow.testing.cluster.packages import find_program
from tests.cluster_fixture import need, small_disk
from tests.runtime.adoption.bench import Bench
from tests.runtime.harness import RunFolder


def test_a_quota_that_is_exceeded_in_the_middle_leaves_nothing_behind(bench: Bench) -> None:
    adopter = bench.watching()
    bench.write("step-1", b"x")
    bench.pass_by(adopter, 10)
    bench.write("step-2", {"first": b"y" * 10_000, "second": b"y" * 100_000})
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limit[1]))
    try:
        bench.pass_by(adopter, 10)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert bench.adopted() == {1: b"x"}
    assert [each.name for each in bench.folder.checkpoints.iterdir()] == ["000000001"]
    assert [each["train_step"] for each in bench.folder.events("checkpoint_failed")] == [2]


def fill(disk: Path) -> None:
    """Leave no byte."""
    with pytest.raises(OSError, match="No space left"), (disk / "ballast").open("wb") as file:
        while True:
            file.write(bytes(4096))
            file.flush()


def test_a_full_disk_leaves_the_one_before_and_the_training_goes_on(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.folder.path.mkdir()
    with small_disk(bench.folder.path, "1m"):
        adopter = bench.watching()
        bench.write("step-1", b"x" * 300_000)
        bench.pass_by(adopter, 10)
        bench.write("step-2", b"y" * 900_000)
        for _ in range(4):
            bench.pass_by(adopter, 10)
        said = capsys.readouterr().err
        assert said.count("'step-2' is not adopted, the training continues:") == 1, said
        assert "a checkpoint takes" in said
        (failed,) = bench.folder.events("checkpoint_failed")
        assert failed["train_step"] == 2, "this is what `hpcflow show` warns of"
        assert list(bench.adopted()) == [1]
        assert [each.name for each in bench.folder.checkpoints.iterdir()] == ["000000001"]

        shutil.rmtree(bench.folder.checkpoint(1))
        bench.pass_by(adopter, 60)
        assert list(bench.adopted()) == [2], "it is tried again"


def test_a_newer_one_that_does_not_fit_is_not_put_back_over(bench: Bench) -> None:
    """It is complete; the program goes on from it, though there is no copy."""
    bench.rule = {"pattern": "ckpt.pt", "train_step": "count", "put_back": True}
    bench.folder.path.mkdir()
    with small_disk(bench.folder.path, "1m"):
        adopter = bench.watching()
        path = bench.write("ckpt.pt", b"x" * 300_000)
        bench.pass_by(adopter, 10)
        path.write_bytes(b"y" * 900_000)
        bench.program_ended(0)
        bench.next_attempt()
        assert bench.begin() == bench.folder.checkpoint(1)
        assert path.read_bytes() == b"y" * 900_000


@pytest.mark.parametrize("rule", [{}, {"pattern": "ckpt.pt", "train_step": "count"}])
def test_an_attempt_begins_on_a_full_disk_from_what_there_is(
    bench: Bench, rule: dict[str, object]
) -> None:
    """The one before saved on notice, and its script had no room for a copy."""
    bench.rule = rule
    older, newer = ("ckpt.pt", "ckpt.pt") if rule else ("step-1", "step-2")
    bench.folder.path.mkdir()
    with small_disk(bench.folder.path, "1m"):
        adopter = bench.watching()
        bench.write(older, b"x" * 300_000)
        bench.pass_by(adopter, 10)
        bench.write(newer, b"y" * 900_000)
        fill(bench.folder.path)
        bench.end(75)
        assert bench.folder.complete() == [1]
        bench.folder.attempt += 1
        assert bench.adopter().begin() == bench.folder.checkpoint(1)

        (bench.folder.path / "ballast").unlink()
        bench.write(newer, b"y" * 600_000)
        assert bench.adopter().begin() == bench.folder.checkpoint(2), "there is room again"


@contextmanager
def xfs(folder: Path) -> Iterator[None]:
    """For the length of the block ``folder`` is a disk that can clone; this needs root."""
    image = folder.with_name("image")

    def mount() -> None:
        program = find_program("mkfs.xfs")
        if program is None:
            raise InputError("there is no mkfs.xfs", next_action="apt-get install xfsprogs")
        with image.open("wb") as file:
            file.truncate(320 << 20)  # it takes no smaller one
        subprocess.run([program, "-q", str(image)], check=True)
        argv = ["mount", "-o", "loop", str(image), str(folder)]
        done = subprocess.run(argv, capture_output=True, text=True)
        if done.returncode != 0:
            raise InputError(f"no image can be mounted here; be root: {done.stderr.strip()}")

    need(mount)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        image.unlink()


def test_where_blocks_can_be_shared_a_copy_takes_no_space(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    with xfs(disk):
        bench = Bench(RunFolder(disk / "run"), disk / "out")
        adopter = bench.watching()
        path = bench.write("step-1", b"x" * 20_000_000)
        subprocess.run(["sync", "--file-system", str(path)], check=True)
        free_bytes = shutil.disk_usage(disk).free
        bench.pass_by(adopter, 10)
        assert len(bench.adopted()[1]) == 20_000_000
        assert free_bytes - shutil.disk_usage(disk).free < 1_000_000
        with path.open("r+b") as file:
            file.write(b"overwritten")
        assert bench.adopted()[1] == b"x" * 20_000_000
