"""What goes wrong with stores and networks: said plainly, waited for, and never half there."""

from __future__ import annotations

import datetime
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from botocore import auth

from hpcflow.errors import MirrorError
from hpcflow.mirror import limits
from hpcflow.mirror import upload as upload_module
from hpcflow.mirror.download import Wanted, download
from hpcflow.mirror.passes import Report
from hpcflow.mirror.stores import open_remote
from hpcflow.runtime.checksum import sha256_of
from hpcflow.runtime.files import Written
from hpcflow.runtime.store import CheckpointStore
from hpcflow.testing.cluster import S3
from tests.cluster_fixture import poll
from tests.mirror.proxy import Proxy
from tests.mirror.runs import Desk, checkpoint_names, desk_in, said, save

BIG = {"model.pt": 40 << 20, "small": 10}


@pytest.fixture
def desk(bucket_url: str, tmp_path: Path) -> Desk:
    return desk_in(tmp_path, bucket_url)


def the_error(report: Report) -> MirrorError:
    """The one problem of a pass."""
    (error,) = report.problems.values()
    assert isinstance(error, MirrorError)
    return error


@pytest.mark.parametrize(
    ("status", "code"),
    [("500 Internal Server Error", "InternalError"), ("503 Service Unavailable", "SlowDown")],
)
def test_trouble_of_the_server_passes(desk: Desk, proxy: Proxy, status: str, code: str) -> None:
    run_dir = desk.make()
    save(run_dir, 400)
    proxy.status, proxy.code, proxy.failures = status, code, 5
    report = desk.mirror(patience_s=30)
    assert report.problems == {}
    assert proxy.failures == 0
    assert set(checkpoint_names(400)) < set(desk.there(run_dir))


def test_trouble_that_does_not_pass_is_said_once(desk: Desk, proxy: Proxy) -> None:
    for name in ("one", "two", "three"):
        save(desk.make(name), 400)
    proxy.failures = 1_000_000
    report = desk.mirror(patience_s=0.1)
    error = the_error(report)
    assert error.retryable
    assert "has trouble (SlowDown)" in error.message
    proxy.failures = 0
    assert len(desk.mirror().mirrored) == 3


def test_trouble_with_one_object_keeps_nothing_else_back(desk: Desk, proxy: Proxy) -> None:
    one, other = desk.make("one"), desk.make("other")
    for train_step in (100, 200):
        save(one, train_step)
    save(other, 100)
    proxy.status, proxy.code = "500 Internal Server Error", "InternalError"
    proxy.fails_for = b"000000200/model.pt"
    report = desk.mirror(patience_s=0.1)
    assert list(report.problems) == [one.path.name]
    assert {(done.run_id, done.train_step) for done in report.mirrored} == {
        (one.path.name, 100),
        (other.path.name, 100),
    }
    assert "params.json" in desk.there(one)


def test_cut_connections(desk: Desk, proxy: Proxy) -> None:
    run_dir = desk.make()
    save(run_dir, 400, BIG)
    proxy.cuts, proxy.cut_after_bytes = 4, 100_000
    report = desk.mirror(patience_s=30)
    assert report.problems == {}
    assert proxy.cuts == 0
    assert set(checkpoint_names(400, BIG)) < set(desk.there(run_dir))


def test_a_slow_line_is_no_fault(desk: Desk, proxy: Proxy) -> None:
    run_dir = desk.make()
    save(run_dir, 400, {"model.pt": 300_000})
    proxy.bytes_s = 150_000
    report = desk.mirror(patience_s=1)
    assert report.problems == {}
    assert len(report.mirrored) == 1


def test_the_server_is_killed_during_an_upload_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = S3(tmp_path / "server").start()
    try:
        for name, value in server.env().items():
            monkeypatch.setenv(name, value)
        bucket = server.create_bucket("lab")
        with Proxy(server.endpoint) as proxy:
            monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
            desk = desk_in(tmp_path / "desk", f"s3://{bucket}/ada")
            run_dir = desk.make()
            save(run_dir, 400, {"model.pt": 40 << 20, "b.pt": 3 << 20})
            proxy.bytes_s = 20 << 20
            reports: list[Report] = []
            mirroring = threading.Thread(target=lambda: reports.append(desk.mirror(patience_s=60)))
            mirroring.start()
            poll(lambda: proxy.sent_bytes > 10 << 20, 120, "something is under way")
            server.daemon.kill()
            server.start()
            proxy.bytes_s = None
            mirroring.join(120)
            # Parts that the server had in memory only are lost with it: then all is sent again.
            assert reports or not mirroring.is_alive()
            if reports[0].problems:
                assert reports[0].mirrored == []
                assert "manifest.json" not in " ".join(desk.there(run_dir))
                assert desk.mirror(patience_s=30).problems == {}
        files = {"model.pt": 0, "b.pt": 0}
        assert set(checkpoint_names(400, files)) < set(desk.there(run_dir))
    finally:
        server.stop()


def test_wrong_credentials(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = desk.make()
    save(run_dir, 400)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "0" * 40)
    error = the_error(desk.mirror())
    assert not error.retryable
    assert "the secret key does not match the access key" in error.message
    assert error.next_action is not None and "aws sts get-caller-identity" in error.next_action
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    assert "does not know the access key" in the_error(desk.mirror()).message


def test_no_credentials(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    save(desk.make(), 400)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    error = the_error(desk.mirror())
    assert "no credentials for S3 were found" in error.message
    assert error.next_action is not None and "AWS_PROFILE" in error.next_action


@pytest.mark.usefixtures("s3_environ")
def test_a_missing_bucket(tmp_path: Path) -> None:
    desk = desk_in(tmp_path, "s3://no-such-bucket/ada")
    save(desk.make(), 400)
    error = the_error(desk.mirror())
    assert not error.retryable
    assert "there is no bucket no-such-bucket at http://127.0.0.1" in error.message
    assert error.next_action is not None and "aws s3 mb s3://no-such-bucket" in error.next_action


def test_nobody_listens(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    save(desk.make(), 400)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    error = the_error(desk.mirror(patience_s=0.1))
    assert error.retryable
    assert "http://127.0.0.1:9 does not answer" in error.message


def test_a_clock_that_is_off_by_an_hour(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    save(desk.make(), 400)
    now = auth.get_current_datetime
    off = datetime.timedelta(hours=1)
    monkeypatch.setattr(
        auth, "get_current_datetime", lambda *args, **more: now(*args, **more) + off
    )
    error = the_error(desk.mirror())
    assert not error.retryable
    assert "the clocks of this machine and the store differ too much" in error.message
    assert error.next_action is not None and "date -u" in error.next_action


def test_a_store_that_finds_the_clock_off_says_so_to_obstore(desk: Desk, proxy: Proxy) -> None:
    """obstore signs with a clock of its own: whatever it is told, botocore says what is wrong."""
    save(desk.make(), 400)
    proxy.status, proxy.code = "403 Forbidden", "RequestTimeTooSkewed"
    proxy.fails_for = b"model.pt"
    error = the_error(desk.mirror())
    assert not error.retryable
    assert "the clocks of this machine and the store differ too much" in error.message


def test_scratch_is_purged_under_the_mirror(desk: Desk, proxy: Proxy) -> None:
    run_dir, other = desk.make("purged"), desk.make("other")
    save(run_dir, 400, {"model.pt": 40 << 20})
    save(other, 400)
    proxy.bytes_s = 10 << 20
    reports: list[Report] = []
    mirroring = threading.Thread(target=lambda: reports.append(desk.mirror()))
    mirroring.start()
    poll(lambda: proxy.sent_bytes > 1 << 20, 120, "something is under way")
    shutil.rmtree(run_dir.path)
    proxy.bytes_s = None
    mirroring.join(120)
    (report,) = reports
    assert report.problems == {}
    assert other.path.name in {done.run_id for done in report.mirrored}
    # The file was open: either it is there as a whole, or nothing of it.
    assert set(desk.stored(run_dir)) <= {400}
    assert desk.mirror().problems == {}


def test_a_checkpoint_is_removed_under_the_mirror(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = desk.make()
    path = save(run_dir, 400, {"a.pt": 1000, "b.pt": 900})
    send = upload_module.Uploader._send_whole

    def send_and_remove(self: object, out: upload_module.Outgoing, file: object) -> None:
        send(self, out, file)  # type: ignore[arg-type]
        if out.name.endswith("a.pt"):
            path.rename(run_dir.checkpoints / ".000000400.0123456789abcdef.removed")

    monkeypatch.setattr(upload_module.Uploader, "_send_whole", send_and_remove)
    monkeypatch.setattr(limits, "_FILES", 1)
    report = desk.mirror()
    assert (report.mirrored, report.problems) == ([], {})
    assert not any(name.startswith("checkpoints/") for name in desk.there(run_dir))
    assert said(run_dir) == [("began", 400), ("failed", 400)]


def test_the_line_is_not_used_more_than_allowed(desk: Desk) -> None:
    run_dir = desk.make(bandwidth_bytes_s=4 << 20)
    save(run_dir, 400, {f"{n}.pt": 1 << 20 for n in range(8)})
    (done,) = desk.mirror().mirrored
    assert done.took_s > 1.0  # eight MiB, of which the first second's may go at once


def test_a_name_that_is_not_utf_8_stops_one_checkpoint_only(desk: Desk) -> None:
    odd, other = desk.make("odd"), desk.make("other")
    save(odd, 300)
    save(odd, 400, {"gewicht-\udce4.pt": 10})
    save(other, 400)
    report = desk.mirror()
    assert "it is not UTF-8" in str(report.problems[odd.path.name])
    assert {(done.run_id, done.train_step) for done in report.mirrored} == {
        (odd.path.name, 300),
        (other.path.name, 400),
    }


@pytest.mark.parametrize("count", [1_100, pytest.param(5_000, marks=pytest.mark.soak)])
def test_thousands_of_small_files_there_and_back(desk: Desk, tmp_path: Path, count: int) -> None:
    """A store lists a thousand at once. Ten thousand, as artifacts: `make bench`."""
    run_dir = desk.make()
    content = {f"{number:05d}.txt": str(number).encode() for number in range(count)}
    store = CheckpointStore(run_dir.checkpoints)
    staged = store.stage(400, 7)
    for name, data in content.items():  # no fsync for each, as its own writer would have it
        (staged / name).write_bytes(data)
    files = {name: Written(len(data), sha256_of(staged / name)) for name, data in content.items()}
    facts: dict[str, Any] = {"run_id": run_dir.path.name, "attempt": 1}
    store.publish(staged, 400, files, **facts)
    assert desk.mirror().problems == {}
    remote, prefix = open_remote(desk.url), f"{run_dir.path.name}/checkpoints/000000400/"
    back = tmp_path / "back"
    assert remote.names(prefix).keys() == {prefix + name for name in [*content, "manifest.json"]}
    download(
        remote,
        [
            Wanted(prefix + name, back / name, each.size_bytes, each.sha256)
            for name, each in files.items()
        ],
    )
    assert {path.name: path.read_bytes() for path in back.iterdir()} == content


@pytest.mark.parametrize("size_bytes", [1000, 20 << 20])
def test_the_store_is_told_how_to_keep_it(desk: Desk, proxy: Proxy, size_bytes: int) -> None:
    how = {"encryption": "aws:kms", "kms_key": "alias/lab", "storage_class": "STANDARD_IA"}
    save(desk.make(**how), 400, {"model.pt": size_bytes})
    assert desk.mirror().problems == {}
    assert {
        "x-amz-server-side-encryption: aws:kms",
        "x-amz-server-side-encryption-aws-kms-key-id: alias/lab",
        "x-amz-storage-class: standard_ia",
    } <= proxy.headers
