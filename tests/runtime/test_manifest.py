"""A manifest says what was written, or it is no manifest."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from hpcflow.runtime.manifest import CheckpointError, parse_manifest, read_manifest, verify
from tests.runtime.published import publish

FACTS = {"epoch": 1.5, "metrics": {"loss": 0.1 + 0.2, "großartig": -0.0}, "run_id": "r"}


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """Of a checkpoint with files under names as people, and other programs, give them."""
    files = {"model.pt": b"weights", "a b/schwarz-weiß 💩.bin": b"x", os.fsdecode(b"\xff"): b"y"}
    return publish(tmp_path, 400, files, **FACTS).path / "manifest.json"


def test_it_is_read_as_it_was_written(manifest: Path) -> None:
    said = read_manifest(manifest.parent)
    assert {name: said[name] for name in FACTS} == FACTS
    assert len(said["files"]) == 3
    assert verify(manifest.parent).metrics == FACTS["metrics"]


def test_no_bit_of_it_can_be_flipped_unnoticed(manifest: Path) -> None:
    """Where it is read all the same, it says the same: of a blank, and of its checksum's name."""
    data, said = manifest.read_bytes(), read_manifest(manifest.parent)
    unnoticed = []
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            found = parse_manifest(bytes(flipped))
        except CheckpointError:
            continue
        if {name: found.get(name) for name in said} != said:
            unnoticed.append(bytes(flipped))
    assert unnoticed == []


def test_another_metric_or_size_is_noticed(manifest: Path) -> None:
    text = manifest.read_text()
    for old, new in (("-0.0", "-0.5"), ('"size_bytes": 7', '"size_bytes": 6'), ("400", "401")):
        assert old in text
        manifest.write_text(text.replace(old, new, 1))
        with pytest.raises(CheckpointError, match=r"its manifest\.json is not what was written"):
            verify(manifest.parent)


def test_one_of_an_older_version_is_read_though_it_has_no_checksum(manifest: Path) -> None:
    said = json.loads(manifest.read_text())
    del said["sha256"]
    manifest.write_text(json.dumps(said))
    assert read_manifest(manifest.parent) == said
    assert verify(manifest.parent).train_step == 400


@pytest.mark.parametrize(
    "epoch", ["1e999", "9" * 400, "NaN", '"many"', "[]"], ids=lambda text: text[:6]
)
def test_an_epoch_that_is_no_number_is_none(manifest: Path, epoch: str) -> None:
    said = json.loads(manifest.read_text())
    del said["sha256"]
    manifest.write_text(json.dumps(said).replace('"epoch": 1.5', f'"epoch": {epoch}'))
    assert verify(manifest.parent).epoch is None


@pytest.mark.parametrize("left", [0, 1])
def test_where_no_more_threads_can_be_had_one_reads_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    """A limit on processes counts threads, and those of all that a user has on the node."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        nonlocal left
        if left == 0:
            raise RuntimeError("can't start new thread")
        left -= 1
        start(thread)

    made = publish(tmp_path, 400, {name: bytes(3 << 20) for name in "abc"})
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert verify(made.path).train_step == 400
    with (made.path / "c").open("r+b") as file:
        file.write(b"x")
    with pytest.raises(CheckpointError, match="c is not what was written"):
        verify(made.path)


def test_a_link_in_the_place_of_a_checkpoint_leads_to_no_manifest(manifest: Path) -> None:
    link = manifest.parent.with_name("000000500")
    link.symlink_to(manifest.parent)
    for read in (read_manifest, verify):
        with pytest.raises(CheckpointError, match="it is a link"):
            read(link)
