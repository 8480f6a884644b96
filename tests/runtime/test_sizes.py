"""Folders of very many files under any names, or with a very large one, become checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcflow import runtime
from hpcflow.runtime.__main__ import main
from hpcflow.runtime.manifest import verify
from tests.runtime.harness import RunFolder
from tests.runtime.sizes import BEYOND_2_GIB, MANY, end_of, sizes_of, write_large, write_many


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """A run directory in memory, and this process in its job."""
    folder = RunFolder(tmp_path / "run")
    _enter(folder, monkeypatch)
    return folder


def _enter(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in folder.environ().items():
        monkeypatch.setenv(name, value)


class ManyFiles:
    """An object that saves and loads itself, in a format of its own."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.found: dict[str, int] = {}

    def save(self, folder: Path) -> None:
        write_many(folder, self.count)
        self.found = sizes_of(folder)

    def load(self, folder: Path) -> None:
        self.found = sizes_of(folder)


@pytest.mark.usefixtures("inside")
@pytest.mark.parametrize("count", MANY)
def test_thousands_of_files_that_an_object_writes(count: int) -> None:
    first = ManyFiles(count)
    run = runtime.start()
    run.restore(files=first)
    for _ in run.train_steps(1):
        pass
    run.finish()
    assert len(first.found) == count

    again = ManyFiles(count)
    assert runtime.start().restore(files=again) == 1
    assert again.found == first.found


@pytest.mark.parametrize("count", MANY)
def test_thousands_of_files_of_a_program_in_another_language(
    inside: RunFolder, tmp_path: Path, count: int
) -> None:
    state = tmp_path / "state of it"
    write_many(state, count)
    assert main(["checkpoint", str(state), "--train-step", "5"]) == 0
    checkpoint = verify(inside.checkpoint(5))
    sizes = sizes_of(checkpoint.path)
    del sizes["manifest.json"]
    assert sizes == sizes_of(state)
    assert checkpoint.size_bytes == sum(sizes.values())
    assert main(["resume-path"]) == 0


def test_a_file_larger_than_31_bits_can_count(
    folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk, for its copy takes the room that it does not."""
    _enter(folder, monkeypatch)
    state = tmp_path / "state"
    state.mkdir()
    write_large(state / "weights", BEYOND_2_GIB)
    assert main(["checkpoint", str(state), "--train-step", "5"]) == 0
    checkpoint = verify(folder.checkpoint(5))
    assert checkpoint.size_bytes == BEYOND_2_GIB
    assert end_of(checkpoint.path / "weights") == (BEYOND_2_GIB, b"!")
