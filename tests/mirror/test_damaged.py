"""What is damaged here is told, and never sent."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from hpcflow.clock import SystemClock
from hpcflow.errors import DamagedError
from hpcflow.mirror.status import status_of
from hpcflow.storage.dirty_marks import dirty_runs
from tests.mirror.runs import Desk, desk_in, said, save


@pytest.fixture
def desk(bucket_url: str, tmp_path: Path) -> Desk:
    return desk_in(tmp_path, bucket_url)


def test_what_is_not_complete_is_not_sent(desk: Desk) -> None:
    run_dir = desk.make()
    path = save(run_dir, 400)
    (path / "manifest.json").unlink()
    (run_dir.checkpoints / ".000000500.0123456789abcdef.tmp").mkdir()
    desk.mirror()
    assert not any(name.startswith("checkpoints/") for name in desk.there(run_dir))


@pytest.mark.parametrize("name", ["model.pt", "sub folder/optimizer ü.pt"])
def test_a_damaged_one_is_reported_and_never_sent(desk: Desk, name: str) -> None:
    run_dir = desk.make()
    save(run_dir, 300)
    path = save(run_dir, 400)
    data = bytearray((path / name).read_bytes())
    data[len(data) // 2] ^= 1
    (path / name).write_bytes(data)
    report = desk.mirror()
    assert [done.train_step for done in report.mirrored] == [300]
    error = report.problems[run_dir.path.name]
    assert isinstance(error, DamagedError)
    assert f"{path / name} is not what was written: its checksum differs" in error.message
    assert list(desk.stored(run_dir)) == [300]

    assert desk.mirror().mirrored == []
    assert [what for what, step in said(run_dir) if step == 400] == ["began", "failed"]


def test_what_should_be_a_manifest_and_is_none_is_reported_once(desk: Desk) -> None:
    run_dir = desk.make()
    save(run_dir, 300)
    manifest = save(run_dir, 400) / "manifest.json"
    manifest.write_bytes(b"\0garbage")
    report = desk.mirror()
    error = report.problems[run_dir.path.name]
    assert isinstance(error, DamagedError)
    assert f"checkpoint 400: {manifest} is not a valid manifest" in error.message
    assert [done.train_step for done in report.mirrored] == [300]
    assert dirty_runs(desk.home) == [run_dir.path.name]  # the ledger hears of it

    assert desk.mirror().problems == {}
    assert [what for what, step in said(run_dir) if step == 400] == ["failed"]
    status = status_of(run_dir, SystemClock().now(), {})
    assert status is not None and status.problem is not None
    assert f"train step 400: {manifest} is not a valid manifest" in status.problem

    manifest.write_bytes(b"other garbage")
    assert list(desk.mirror().problems) == [run_dir.path.name]
    shutil.rmtree(manifest.parent)
    save(run_dir, 400)
    assert [done.train_step for done in desk.mirror().mirrored] == [400]


def test_a_manifest_that_became_garbage_takes_nothing_from_what_is_mirrored(desk: Desk) -> None:
    run_dir = desk.make()
    manifest = save(run_dir, 400) / "manifest.json"
    desk.mirror()
    manifest.write_bytes(b"garbage")
    assert desk.mirror().problems == {}
    status = status_of(run_dir, SystemClock().now(), {})
    assert status is not None and status.problem is not None
    assert status.mirrored == 400
    assert "is not a valid manifest" in status.problem
    assert said(run_dir) == [("began", 400), ("mirrored", 400)]


def test_a_run_whose_run_json_is_damaged_is_a_problem(desk: Desk) -> None:
    bad, good = desk.make("bad"), desk.make("good")
    for run_dir in (bad, good):
        save(run_dir, 400)
    bad.run_json.write_bytes(bad.run_json.read_bytes()[:100])
    report = desk.mirror()
    assert [done.run_id for done in report.mirrored] == [good.path.name]
    (error,) = report.problems.values()
    assert f"{bad.run_json} is damaged, so nothing of the run is mirrored" in error.message
    assert error.next_action is not None and f"hpcflow restore {bad.path.name}" in error.next_action
    shutil.rmtree(bad.path)  # a purge takes the problem with it
    assert desk.mirror().problems == {}


def test_a_torn_one_is_reported(desk: Desk) -> None:
    run_dir = desk.make()
    path = save(run_dir, 400)
    (path / "model.pt").write_bytes(b"short")
    report = desk.mirror()
    assert "is shorter than expected" in str(report.problems[run_dir.path.name])


def test_one_that_cannot_be_read_is_tried_again_in_the_next_pass(desk: Desk) -> None:
    run_dir = desk.make()
    save(run_dir, 300)
    path = save(run_dir, 400)
    data = (path / "model.pt").read_bytes()
    (path / "model.pt").unlink()
    os.mkfifo(path / "model.pt")  # whoever opens it as a file waits for ever
    report = desk.mirror()
    assert "it is not a regular file" in str(report.problems[run_dir.path.name])
    assert [done.train_step for done in report.mirrored] == [300]  # it keeps no older one back
    (path / "model.pt").unlink()
    (path / "model.pt").write_bytes(data)
    assert [done.train_step for done in desk.mirror().mirrored] == [400]


def test_no_parts_stay_of_a_damaged_one(desk: Desk) -> None:
    run_dir = desk.make()
    torn, other = save(run_dir, 300, {"a.pt": 20 << 20}), save(run_dir, 400, {"b.pt": 20 << 20})
    with (torn / "a.pt").open("r+b") as file:
        file.truncate(18 << 20)
    with (other / "b.pt").open("r+b") as file:
        file.write(b"another beginning")
    report = desk.mirror()
    assert report.mirrored == []
    assert desk.remote.parts is not None
    assert desk.remote.parts.unfinished(run_dir.path.name) == []
    assert [name for name in desk.there(run_dir) if name.startswith("checkpoints/")] == []
