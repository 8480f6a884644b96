"""How far the mirror is behind, by the files of the run."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from hpcflow.clock import SystemClock
from hpcflow.mirror.status import Progress, Status, status_of
from hpcflow.mirror.store_memory import read_problems
from hpcflow.storage.layout import RunDir
from hpcflow.storage.locks import try_lock
from hpcflow.testing.clock import FakeClock
from tests.mirror.runs import Desk, desk_in, save

_BEGIN = datetime(2026, 3, 1, tzinfo=timezone.utc)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return desk_in(tmp_path, str(tmp_path / "store"), FakeClock(_BEGIN))


def test_what_was_made_after_the_newest_in_the_store_is_behind(desk: Desk) -> None:
    """A run that goes on from an older one makes lower train steps, later."""
    run_dir = desk.make()

    def made(train_step: int, minute: int) -> None:
        at_s = (_BEGIN + timedelta(minutes=minute)).timestamp()
        os.utime(save(run_dir, train_step) / "manifest.json", (at_s, at_s))

    def lag_min(minute: int) -> float:
        status = status_of(run_dir, _BEGIN + timedelta(minutes=minute), {})
        assert status is not None
        return status.lag_s / 60

    made(1000, 5)
    assert lag_min(6) == 1
    desk.clock.sleep(360)
    desk.mirror()
    made(900, 4)
    assert lag_min(7) == 0, "900 is older than what is there"
    made(500, 10)
    made(600, 12)
    assert lag_min(13) == 3


def status(desk: Desk, run_dir: RunDir) -> Status:
    """As `hpcflow mirror status` has it, after what the last pass has found."""
    found = status_of(run_dir, SystemClock().now(), read_problems(desk.home))
    assert found is not None
    return found


@pytest.mark.usefixtures("s3_environ")
def test_why_nothing_could_be_sent_is_known_until_it_can(
    tmp_path: Path, bucket_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = desk_in(tmp_path, bucket_url)
    one, other = desk.make("one"), desk.make("other")
    save(one, 400)
    assert status(desk, one).problem is None, "nobody has tried"
    with monkeypatch.context() as without:
        without.delenv("AWS_ACCESS_KEY_ID")
        without.delenv("AWS_SECRET_ACCESS_KEY")
        desk.mirror()
    for run_dir in (one, other):  # of the other one only small files were to be sent
        why = status(desk, run_dir).problem
        assert why is not None and "no credentials for S3 were found → set AWS_PROFILE" in why
    assert not one.mirror.exists(), "no checkpoint was begun"
    kept = desk.home.mirror / "problems.json"
    assert (kept.stat().st_mode & 0o777, kept.parent.stat().st_mode & 0o777) == (0o600, 0o700)

    assert desk.mirror().problems == {}
    assert [status(desk, run_dir).problem for run_dir in (one, other)] == [None, None]
    assert json.loads(kept.read_text()) == {}


@pytest.mark.usefixtures("s3_environ")
def test_a_bucket_that_is_missing_is_why(tmp_path: Path) -> None:
    desk = desk_in(tmp_path, "s3://no-such-bucket/ada")
    run_dir = desk.make()
    save(run_dir, 400)
    desk.mirror()
    assert "there is no bucket no-such-bucket" in (status(desk, run_dir).problem or "")


def test_what_refused_one_run_is_why_until_its_next_turn(tmp_path: Path) -> None:
    """The folder of the run in the store is another place's: no checkpoint of it is begun."""
    desk = desk_in(tmp_path, str(tmp_path / "store"))
    taken, free = desk.make("taken"), desk.make("free")
    desk.mirror()
    name = f"{taken.path.name}/run.json"
    ours = desk.remote.read(name)
    elsewhere = json.dumps({**json.loads(ours), "run_dir": "/elsewhere"}).encode()
    desk.remote.put_bytes(elsewhere, name)
    for run_dir in (taken, free):
        save(run_dir, 400)
    desk.mirror()
    assert "is mirrored from another place now" in (status(desk, taken).problem or "")
    assert status(desk, free).problem is None
    with try_lock(taken.mirror_lock):  # another mirror works on it: this one knows nothing new
        desk.mirror()
    assert "is mirrored from another place now" in (status(desk, taken).problem or "")
    desk.remote.put_bytes(ours, name)
    desk.mirror()
    assert status(desk, taken).problem is None


def test_what_is_being_sent_is_not_refused_any_more(tmp_path: Path) -> None:
    desk = desk_in(tmp_path, str(tmp_path / "no such folder" / "store"))
    run_dir = desk.make()
    save(run_dir, 400)
    desk.mirror()
    assert "is it mounted?" in (status(desk, run_dir).problem or "")
    with Progress(run_dir, 400, 100_000, desk.clock):
        found = status(desk, run_dir)
    assert (found.sending, found.problem) == (400, None)


def test_who_has_nothing_to_send_is_not_told(tmp_path: Path) -> None:
    desk = desk_in(tmp_path, str(tmp_path / "store"))
    done = desk.make("done")
    save(done, 400)
    for _ in range(2):  # mirror.jsonl had grown while the first pass sent it
        desk.mirror()
    (tmp_path / "store").rename(tmp_path / "kept")
    save(desk.make("due"), 400)
    assert list(desk.mirror().problems) == [desk.url]
    assert status(desk, done).problem is None


@pytest.mark.parametrize("torn", [b"", b"{", b"[]", b'{"s3://x": 5}'])
def test_a_torn_memory_says_nothing_and_is_written_anew(tmp_path: Path, torn: bytes) -> None:
    desk = desk_in(tmp_path, str(tmp_path / "nowhere" / "store"))
    desk.make()
    desk.home.mirror.mkdir(parents=True)
    (desk.home.mirror / "problems.json").write_bytes(torn)
    assert read_problems(desk.home) == {}
    desk.mirror()
    assert list(read_problems(desk.home)) == [desk.url]
