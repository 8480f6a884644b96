"""A run with very many checkpoints: what is opened for each, counted and not timed."""

from __future__ import annotations

import os
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hpcflow.runtime.files import Written
from hpcflow.runtime.manifest import CheckpointError, read_manifest, write_manifest
from hpcflow.runtime.reading import MAX_JSON_BYTES
from hpcflow.runtime.retention import find
from hpcflow.runtime.store import CheckpointStore
from hpcflow.storage.checkpoints import newest_complete
from hpcflow.storage.layout import RunDir
from tests.runtime.kept import RUN_ID, save

_MANY = 50


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run directory with many checkpoints, and room for others among them."""
    first = save(tmp_path, 1)
    for train_step in range(2, _MANY + 1):
        path = first.with_name(f"{train_step:09d}")
        (path / "sub").mkdir(parents=True)
        for name in ("model.pt", "sub/optimizer.pt"):
            os.link(first / name, path / name)
        text = (first / "manifest.json").read_text()
        (path / "manifest.json").write_text(text)  # of another train step, so not complete
    return tmp_path


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often files of each name were opened, and folders listed."""
    counted: Counter[str] = Counter()
    really_open, really_list = os.open, os.scandir

    def opens(path: Any, *args: Any, **more: Any) -> int:
        counted[Path(str(path)).name] += 1
        return really_open(path, *args, **more)

    def lists(path: Any) -> Any:
        counted["a folder"] += 1
        return really_list(path)

    monkeypatch.setattr(os, "open", opens)
    monkeypatch.setattr(os, "scandir", lists)
    return counted


def test_to_look_at_all_opens_each_manifest_once_and_no_other_file(
    tmp_path: Path, opened: Counter[str]
) -> None:
    for train_step in range(1, 6):
        save(tmp_path, train_step)
    opened.clear()
    assert [each.state for each in find(tmp_path / "checkpoints", RUN_ID)] == ["complete"] * 5
    assert opened == {"manifest.json": 5, "a folder": 1 + 2 * 5}


def test_the_newest_is_found_without_a_look_at_the_others(
    run_dir: Path, opened: Counter[str]
) -> None:
    last = run_dir / "checkpoints" / f"{_MANY + 1:09d}"
    save(run_dir, _MANY + 1)
    opened.clear()
    newest = CheckpointStore(run_dir / "checkpoints").newest()
    assert newest is not None
    assert newest.path == last
    assert opened == {"manifest.json": 1, "model.pt": 1, "optimizer.pt": 1, "a folder": 1}
    opened.clear()
    assert newest_complete(RunDir(run_dir)) == f"checkpoints/{last.name}"
    assert opened == {"a folder": 1}


def test_a_manifest_that_nobody_could_read_again_is_not_written(tmp_path: Path) -> None:
    facts = {"note": "x" * MAX_JSON_BYTES}
    with pytest.raises(OSError, match="too many for a checkpoint"):
        write_manifest(tmp_path, {}, **facts)
    with pytest.raises(CheckpointError, match="never complete"):
        read_manifest(tmp_path)


def test_a_manifest_of_millions_of_names_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    save(tmp_path, 1)
    folder = save(tmp_path, 2)
    names = b",".join(b'"%d":0' % number for number in range(1_000_000))
    (folder / "manifest.json").write_bytes(b'{"format":1,"train_step":2,"files":{' + names + b"}}")
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match="more than 500,000 keys"):
            read_manifest(folder)
        assert tracemalloc.get_traced_memory()[1] < 3 * MAX_JSON_BYTES
    finally:
        tracemalloc.stop()
    newest = CheckpointStore(tmp_path / "checkpoints").newest()
    assert newest is not None
    assert newest.train_step == 1


def test_a_manifest_of_as_many_files_as_can_be_written_is_read(tmp_path: Path) -> None:
    files = {str(number): Written(1, "0" * 64) for number in range(130_000)}
    write_manifest(tmp_path, files, train_step=1)
    assert len(read_manifest(tmp_path)["files"]) == len(files)
