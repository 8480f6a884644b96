"""What changed behind our back is found, and sent again."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from hpcflow.clock import SystemClock
from hpcflow.mirror.verify import verify_mirror, verify_small_files
from hpcflow.storage.dirty_marks import dirty_runs
from tests.mirror.runs import Desk, desk_in, said, save


@pytest.fixture
def desk(bucket_url: str, tmp_path: Path) -> Desk:
    return desk_in(tmp_path, bucket_url)


@pytest.mark.parametrize("kind", ["another", "shorter", "gone", "manifest gone", "manifest other"])
def test_an_object_changed_behind_our_back(desk: Desk, kind: str) -> None:
    run_dir = desk.make()
    path = save(run_dir, 400)
    desk.mirror()
    assert [
        each.why for each in verify_mirror(desk.home, run_dir, clock=SystemClock(), reads=False)
    ] == [None]
    (desk.home.unread / run_dir.path.name).unlink()  # the ledger has read it

    folder = f"{run_dir.path.name}/checkpoints/000000400/"
    if kind == "another":
        desk.remote.put_bytes(b"\0" * 70_000, f"{folder}model.pt")
        why = "model.pt has the right size but another checksum"
    elif kind == "shorter":
        desk.remote.put_bytes(b"\0", f"{folder}model.pt")
        why = "model.pt has 1 bytes, not 70000"
    elif kind == "gone":
        desk.remote.delete([f"{folder}empty"])
        why = "empty is missing"
    elif kind == "manifest gone":
        desk.remote.delete([f"{folder}manifest.json"])
        why = "its manifest is missing"
    else:
        desk.remote.put_bytes(b"{}", f"{folder}manifest.json")
        why = "its manifest was replaced"
    assert [
        each.why for each in verify_mirror(desk.home, run_dir, clock=SystemClock(), reads=False)
    ] == [why]
    assert said(run_dir)[-1] == ("failed", 400)
    assert dirty_runs(desk.home) == [run_dir.path.name]  # the ledger hears of it

    assert [done.train_step for done in desk.mirror().mirrored] == [400]
    assert [
        each.why for each in verify_mirror(desk.home, run_dir, clock=SystemClock(), reads=True)
    ] == [None]
    assert desk.remote.read(f"{folder}model.pt") == (path / "model.pt").read_bytes()


def test_what_has_rotted_is_sent_again_though_its_checksum_there_is_right(desk: Desk) -> None:
    run_dir = desk.make()
    path = save(run_dir, 400)
    desk.mirror()
    name = f"{run_dir.path.name}/checkpoints/000000400/model.pt"
    good = (path / "model.pt").read_bytes()
    desk.remote.put_bytes(b"\0" * len(good), name, sha256=hashlib.sha256(good).hexdigest())
    (found,) = verify_mirror(desk.home, run_dir, clock=SystemClock(), reads=True)
    assert found.why == "model.pt has the right size but another checksum"
    desk.mirror()
    assert desk.remote.read(name) == good
    assert [
        each.why for each in verify_mirror(desk.home, run_dir, clock=SystemClock(), reads=True)
    ] == [None]


@pytest.mark.parametrize("said", [5, None, "f" * 63])
def test_what_is_no_checksum_is_the_checksum_of_no_file(desk: Desk, said: object) -> None:
    """A bucket that others may write to."""
    run_dir = desk.make()
    save(run_dir, 400)
    desk.mirror()
    name = f"{run_dir.path.name}/checkpoints/000000400/manifest.json"
    manifest = json.loads(desk.remote.read(name))
    manifest["files"]["model.pt"]["sha256"] = said
    del manifest["sha256"]  # who forges the one can forge the other
    text = json.dumps(manifest).encode()
    desk.remote.put_bytes(text, name)
    lines = run_dir.mirror.read_text()
    sent = json.loads(lines.splitlines()[-1])["manifest_sha256"]
    run_dir.mirror.write_text(lines.replace(sent, hashlib.sha256(text).hexdigest()))
    (found,) = verify_mirror(desk.home, run_dir, clock=SystemClock(), reads=True)
    assert found.why is not None
    assert f"{said!r} is not a checksum" in found.why


def test_a_small_file_that_the_store_has_lost_is_found_and_sent_again(desk: Desk) -> None:
    run_dir = desk.make()
    run_dir.artifacts.mkdir()
    (run_dir.artifacts / "plot.png").write_bytes(b"png")
    desk.mirror()
    clock = SystemClock()
    assert verify_small_files(run_dir, clock=clock) == []
    run_id = run_dir.path.name
    desk.remote.delete([f"{run_id}/params.json"])
    desk.remote.put_bytes(b"p", f"{run_id}/artifacts/plot.png")
    assert verify_small_files(run_dir, clock=clock) == ["artifacts/plot.png", "params.json"]
    assert desk.mirror().small_files == 2
    assert verify_small_files(run_dir, clock=clock) == []


def test_what_is_read_for_it_is_written_down_for_stores_charge_for_it(desk: Desk) -> None:
    run_dir = desk.make()
    save(run_dir, 400)
    desk.mirror()
    before = len(said(run_dir))
    verify_mirror(desk.home, run_dir, clock=SystemClock(), reads=True)
    assert said(run_dir)[before:] == [("read", 400)]
    last = json.loads(run_dir.mirror.read_text().splitlines()[-1])
    assert last["size_bytes"] == 100_000
    assert desk.mirror().mirrored == [], "it is still there, and known to be"
