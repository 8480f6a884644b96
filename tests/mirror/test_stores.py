"""A home may mirror each run to a folder of its own, and must fit into a login node's memory."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hpcflow.clock import SystemClock
from hpcflow.mirror.s3_remote import S3Remote
from hpcflow.mirror.stores import Stores
from hpcflow.mirror.upload import Outgoing
from hpcflow.model.run import Mirror

_PAGE_BYTES = 4096
HERE = "http://localhost:1"


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ada")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * _PAGE_BYTES / (1 << 20)


def test_a_hundred_folders_of_one_server_share_its_connections() -> None:
    with Stores(SystemClock()) as stores:
        assert stores.uploader(Mirror(url="s3://bucket/0", endpoint_url=HERE)) is not None
        before_mb = _resident_mb()
        urls = {f"s3://bucket{number % 3}/{number}" for number in range(1, 100)}
        opened = [stores.uploader(Mirror(url=url, endpoint_url=HERE)) for url in urls]
        assert {each.remote.url for each in opened if each is not None} == urls
        assert _resident_mb() - before_mb < 100


def test_another_server_is_another_one() -> None:
    with Stores(SystemClock()) as stores:
        urls = [HERE, "http://localhost:2", HERE]
        mirrors = [
            Mirror(url=f"s3://bucket/{number}", endpoint_url=url) for number, url in enumerate(urls)
        ]
        remotes = [opened.remote for each in mirrors if (opened := stores.uploader(each))]
        clients = [each.client for each in remotes if isinstance(each, S3Remote)]
        assert [each.meta.endpoint_url for each in clients] == urls


def test_many_folders_share_one_line_its_limit_and_threads(tmp_path: Path) -> None:
    size_bytes, bytes_s = 1 << 20, 1 << 20
    path = tmp_path / "model.pt"
    path.write_bytes(bytes(size_bytes))
    before, began_s = threading.active_count(), time.monotonic()
    with Stores(SystemClock()) as stores, ThreadPoolExecutor(4) as senders:
        mirrors = [Mirror(url=f"{tmp_path}/{n}", bandwidth_bytes_s=bytes_s) for n in range(4)]
        opened = [each for mirror in mirrors if (each := stores.uploader(mirror))]
        for each in opened:
            each.remote.make_root()
        files = [Outgoing(path, "model.pt", size_bytes)]
        for _ in senders.map(lambda each: each.send(files), opened):
            pass
        assert time.monotonic() - began_s >= 2.5  # four MiB; the first second's may go at once
        assert threading.active_count() - before <= 4 + 32
