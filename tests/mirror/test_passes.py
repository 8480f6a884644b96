"""What one pass of the mirror does, with a real S3 server."""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from hpcflow.mirror import layout, passes
from hpcflow.mirror.checkpoint import send_checkpoint
from hpcflow.mirror.download import Wanted, download
from hpcflow.mirror.passes import Pass
from hpcflow.mirror.stores import Stores
from hpcflow.mirror.survey import Survey, survey
from hpcflow.mirror.upload import Uploader
from hpcflow.runtime.manifest import verify
from hpcflow.storage.dirty_marks import dirty_runs
from hpcflow.storage.layout import RunDir
from hpcflow.storage.locks import try_lock
from hpcflow.storage.runs import list_runs
from tests.mirror.runs import Desk, checkpoint_names, desk_in, said, save


@pytest.fixture
def desk(bucket_url: str, tmp_path: Path) -> Desk:
    return desk_in(tmp_path, bucket_url)


def test_a_checkpoint_is_there_as_it_was_made(desk: Desk, tmp_path: Path) -> None:
    run_dir = desk.make()
    path = save(run_dir, 400)
    report = desk.mirror()
    assert [done.train_step for done in report.mirrored] == [400]
    assert report.problems == {}

    ((step, files),) = desk.stored(run_dir).items()
    back = tmp_path / "back" / path.name
    download(
        desk.remote,
        [
            Wanted(
                f"{layout.checkpoint_folder(run_dir.path.name, step)}{name}",
                back / name,
                entry.size_bytes,
            )
            for name, entry in files.items()
        ],
    )
    assert verify(back).train_step == 400
    assert said(run_dir) == [("began", 400), ("mirrored", 400)]


def test_the_small_files_of_a_run_are_there(desk: Desk) -> None:
    run_dir = desk.make()
    (run_dir.artifacts / "plots").mkdir(parents=True)
    run_dir.tensorboard.mkdir()
    (run_dir.artifacts / "plots" / "größe 1.png").write_bytes(b"png")
    (run_dir.tensorboard / "events.out.tfevents.1").write_bytes(b"tb")
    attempt = run_dir.attempt(1)
    attempt.path.mkdir(parents=True)
    attempt.events.write_text('{"event": "started"}\n')
    run_dir.submit_lock.touch()
    (run_dir.path / "artifacts" / "link").symlink_to("/etc/passwd")
    report = desk.mirror()
    assert report.problems == {}
    assert desk.there(run_dir) == [
        "artifacts/plots/größe 1.png",
        "attempts/0001/events.jsonl",
        "journal.jsonl",
        "params.json",
        "run.json",
        "tensorboard/events.out.tfevents.1",
    ]
    assert desk.remote.read(f"{run_dir.path.name}/run.json") == run_dir.run_json.read_bytes()


@pytest.mark.parametrize("year", [-90, 1880, 12000])
def test_a_manifest_of_a_year_that_no_calendar_knows_is_sent(tmp_path: Path, year: int) -> None:
    desk = desk_in(tmp_path, str(tmp_path / "store"))
    run_dir = desk.make()
    moment = (year - 1970) * 31_556_952
    os.utime(save(run_dir, 100) / "manifest.json", (moment, moment))
    assert desk.mirror().problems == {}
    assert said(run_dir)[-1] == ("mirrored", 100)
    assert survey(run_dir) is not None


def test_nothing_is_sent_twice(desk: Desk) -> None:
    run_dir = desk.make()
    save(run_dir, 400)
    desk.mirror()
    desk.mirror()  # mirror.jsonl had grown while the first pass sent it
    report = desk.mirror()
    assert (report.mirrored, report.small_files) == ([], 0)


def test_what_has_grown_is_sent_again(desk: Desk) -> None:
    run_dir = desk.make()
    run_dir.journal.write_text("one\n")
    desk.mirror()
    run_dir.journal.write_text("one\ntwo\n")
    assert desk.mirror().small_files == 1
    assert desk.remote.read(f"{run_dir.path.name}/journal.jsonl") == b"one\ntwo\n"


def test_newest_first_across_runs(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "_RUNS_AT_ONCE", 1)
    runs = [desk.make(f"run{number}") for number in range(3)]
    made = [(0, 100), (2, 100), (1, 100), (1, 200), (1, 300), (2, 200), (0, 200)]
    for at_s, (number, train_step) in enumerate(made, 1_000_000_000):
        os.utime(save(runs[number], train_step) / "manifest.json", (at_s, at_s))
    order = [(done.run_id[3], done.train_step) for done in desk.mirror().mirrored]
    # The newest of each, by time; then the older ones, by time.
    assert order == [
        ("0", 200),
        ("2", 200),
        ("1", 300),
        ("1", 200),
        ("1", 100),
        ("2", 100),
        ("0", 100),
    ]


def test_what_is_new_meanwhile_comes_before_older_ones(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "_RUNS_AT_ONCE", 1)
    monkeypatch.setattr(passes, "_LOOK_AGAIN_S", 0)
    run_dir = desk.make("old")
    for train_step in (100, 200, 300):
        save(run_dir, train_step)
    order: list[int] = []

    def on_done(done: passes.Done) -> None:
        order.append(done.train_step)
        if len(order) == 1:
            save(run_dir, 400)
            save(desk.make("new"), 1)

    with Stores(desk.clock, patience_s=5) as stores:
        Pass(desk.home, desk.clock, stores, on_done=on_done).run(lambda: list_runs(desk.home))
    assert order == [300, 1, 400, 200, 100]


def test_what_is_new_does_not_wait_for_the_end_of_a_large_one(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "_LOOK_AGAIN_S", 0.1)
    run_dir = desk.make("large")
    save(run_dir, 100)
    order: list[str] = []
    news = iter(["first", "second"])
    is_there = threading.Semaphore(0)

    def on_done(done: passes.Done) -> None:
        order.append(done.run_id.partition("-")[0])
        is_there.release()

    def send(*args: Any, **more: Any) -> None:
        if args[1].path.is_relative_to(run_dir.path):
            for name in news:
                save(desk.make(name), 1)
                assert is_there.acquire(timeout=120), f"{name} has to wait"
        send_checkpoint(*args, **more)

    monkeypatch.setattr(passes, "send_checkpoint", send)
    with Stores(desk.clock, patience_s=5) as stores:
        Pass(desk.home, desk.clock, stores, on_done=on_done).run(lambda: list_runs(desk.home))
    assert order == ["first", "second", "large"]


def test_a_store_that_cannot_be_opened_costs_no_look_at_each_checkpoint(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = desk.make()
    for train_step in range(1, 13):
        save(run_dir, train_step, {"empty": 0})
    looks = []

    def look(it: RunDir) -> Survey | None:
        looks.append(it)
        return survey(it)

    monkeypatch.setattr(passes, "survey", look)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert desk.mirror().mirrored == []
    assert len(looks) <= 6


def test_nothing_is_read_or_sent_from_behind_a_link_in_the_place_of_a_run_directory(
    desk: Desk, tmp_path: Path
) -> None:
    run_dir, other = desk.make(), desk.make()
    for each in (run_dir, other):
        save(each, 400)
    moved = run_dir.path.rename(tmp_path / "elsewhere")
    run_dir.path.symlink_to(moved)
    os.utime(moved / "params.json", (0, run_dir.params_json.stat().st_mtime))
    report = desk.mirror()
    assert [each.run_id for each in report.mirrored] == [other.path.name]
    assert f"is a link to {moved}" in str(report.problems[run_dir.path.name])
    assert (moved / "params.json").stat().st_atime == 0


@pytest.mark.parametrize("kind", ["mirrored", "damaged"])
def test_the_ledger_hears_of_the_end_of_what_took_long(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """It had looked at the finished run after the beginning, and dropped that mark."""
    run_dir = desk.make()
    path = save(run_dir, 400)
    if kind == "damaged":
        (path / "model.pt").write_bytes(b"short")
    send = Uploader.send

    def send_for_hours(self: Uploader, outgoing: Any, **more: Any) -> None:
        files = list(outgoing)
        if any("/checkpoints/" in each.name for each in files):
            (desk.home.unread / run_dir.path.name).unlink()
        send(self, files, **more)

    monkeypatch.setattr(Uploader, "send", send_for_hours)
    with Stores(desk.clock, patience_s=5) as stores:
        Pass(desk.home, desk.clock, stores).run(lambda: [run_dir])
    assert dirty_runs(desk.home) == [run_dir.path.name]


def test_small_files_do_not_wait_for_older_checkpoints(desk: Desk) -> None:
    run_dir = desk.make()
    for train_step in (100, 200, 300):
        save(run_dir, train_step)
    run_dir.journal.write_text("one\n")
    there: dict[int, bool] = {}

    def on_done(done: passes.Done) -> None:
        there[done.train_step] = "journal.jsonl" in desk.there(run_dir)

    with Stores(desk.clock, patience_s=5) as stores:
        Pass(desk.home, desk.clock, stores, on_done=on_done).run(lambda: [run_dir])
    assert there == {300: False, 200: True, 100: True}


def test_what_another_cluster_sends_is_not_mixed_with_ours(desk: Desk) -> None:
    run_dir = desk.make()
    save(run_dir, 300)
    desk.mirror()
    before = desk.there(run_dir)
    name = f"{run_dir.path.name}/run.json"
    elsewhere = {**json.loads(desk.remote.read(name)), "run_dir": "/elsewhere"}
    desk.remote.put_bytes(json.dumps(elsewhere).encode(), name)
    save(run_dir, 400)
    report = desk.mirror()
    assert report.mirrored == []
    assert "is mirrored from another place now" in report.problems[run_dir.path.name].message
    assert desk.there(run_dir) == before


@pytest.mark.parametrize(
    "garbage", [b"", b"{", b"null", b"[{}]", b'{"run_dir": "' + b"x" * (4 << 20)]
)
def test_a_damaged_run_json_in_the_store_is_replaced(desk: Desk, garbage: bytes) -> None:
    run_dir = desk.make()
    save(run_dir, 300)
    desk.mirror()
    before = desk.there(run_dir)
    name = f"{run_dir.path.name}/run.json"
    desk.remote.put_bytes(garbage, name)
    save(run_dir, 400)
    report = desk.mirror()
    assert report.problems == {}
    assert {"checkpoints/000000400/manifest.json", *before} <= set(desk.there(run_dir))
    assert desk.remote.read(name) == run_dir.run_json.read_bytes()


def test_a_checkpoint_that_was_made_again_takes_the_place_of_the_old_one(desk: Desk) -> None:
    run_dir = desk.make()
    path = save(run_dir, 400, {"model.pt": 1000, "only in the first": 10})
    desk.mirror()
    shutil.rmtree(path)
    save(run_dir, 400, {"model.pt": 1000})
    assert [done.train_step for done in desk.mirror().mirrored] == [400]
    assert [name for name in desk.there(run_dir) if "400" in name] == checkpoint_names(
        400, {"model.pt": 0}
    )
    name = f"{run_dir.path.name}/checkpoints/000000400/model.pt"
    assert desk.remote.read(name) == (path / "model.pt").read_bytes()


def test_a_checkpoint_that_is_removed_here_stays_there(desk: Desk) -> None:
    run_dir = desk.make()
    path = save(run_dir, 400)
    desk.mirror()
    shutil.rmtree(path)
    report = desk.mirror()
    assert report.problems == {}
    assert set(checkpoint_names(400)) < set(desk.there(run_dir))


def test_two_mirrors_share_the_runs(desk: Desk) -> None:
    mine, others = desk.make("mine"), desk.make("others")
    save(mine, 1)
    save(others, 1)
    with try_lock(others.mirror_lock) as lock:
        assert lock is not None
        report = desk.mirror()
    assert [done.run_id for done in report.mirrored] == [mine.path.name]
    assert report.busy == {others.path.name}
    assert [done.run_id for done in desk.mirror().mirrored] == [others.path.name]


def test_a_run_without_a_mirror_is_left_alone(desk: Desk) -> None:
    run_dir = desk.make()
    said_so = json.loads(run_dir.run_json.read_text())
    run_dir.run_json.write_text(json.dumps({**said_so, "mirror": None}))
    save(run_dir, 400)
    report = desk.mirror()
    assert (report.mirrored, report.small_files) == ([], 0)
    assert not run_dir.mirror_lock.exists()


def test_parts_that_nobody_goes_on_with_are_thrown_away(desk: Desk) -> None:
    run_dir = desk.make()
    save(run_dir, 400, {"model.pt": 17 << 20})
    run_dir.artifacts.mkdir()
    (run_dir.artifacts / "large").write_bytes(b"\0" * (17 << 20))
    parts = desk.remote.parts
    assert parts is not None
    for name in ("checkpoints/000000400/model.pt", "artifacts/large"):
        parts.put(
            f"{run_dir.path.name}/{name}", parts.begin(f"{run_dir.path.name}/{name}"), 1, b"1"
        )
    assert len(parts.unfinished(run_dir.path.name)) == 2
    assert desk.mirror().problems == {}
    assert parts.unfinished(run_dir.path.name) == []


def test_a_bucket_that_was_made_anew_gets_all_small_files_again(desk: Desk) -> None:
    run_dir = desk.make()
    run_dir.artifacts.mkdir()
    (run_dir.artifacts / "plot.png").write_bytes(b"png")
    desk.mirror()
    before = desk.there(run_dir)
    desk.remote.delete(list(desk.remote.names(run_dir.path.name)))
    save(run_dir, 400)
    desk.mirror()
    there = desk.there(run_dir)
    assert set(before) <= set(there)
    assert set(checkpoint_names(400)) <= set(there)

    desk.remote.delete([f"{run_dir.path.name}/run.json", f"{run_dir.path.name}/params.json"])
    run_dir.journal.write_text("one\n")
    desk.mirror()
    assert {"run.json", "params.json", "journal.jsonl"} <= set(desk.there(run_dir))


@pytest.mark.parametrize("name", ["mirror.jsonl", "attempts/0001/events.jsonl"])
def test_what_a_purge_took_is_not_replaced_by_the_little_that_was_said_since(
    desk: Desk, name: str
) -> None:
    run_dir = desk.make()
    run_dir.attempt(1).path.mkdir(parents=True)
    path, there = run_dir.path / name, f"{run_dir.path.name}/{name}"
    path.write_text('{"event": "started"}\n' * 100)
    desk.mirror()
    long = desk.remote.read(there)
    for file in (path, run_dir.mirror_sent):
        file.unlink(missing_ok=True)
    path.write_text('{"event": "progress"}\n')
    assert desk.mirror().problems == {}
    assert desk.remote.read(there) == long
    assert desk.mirror().small_files == 0
    path.write_text('{"event": "progress"}\n' * 200)
    desk.mirror()
    assert desk.remote.read(there) == path.read_bytes()
