"""Memory that is used again: within its limit, and by one at a time, whatever fails."""

from __future__ import annotations

import secrets
import threading
from pathlib import Path
from typing import Any

import pytest

from hpcflow.clock import SystemClock
from hpcflow.mirror.limits import MEMORY_BYTES, Bandwidth, Line, Memory
from hpcflow.mirror.remote import Part
from hpcflow.mirror.s3_remote import S3Parts
from hpcflow.mirror.stores import open_remote
from hpcflow.mirror.upload import PART_BYTES, Outgoing, Uploader


def test_what_was_handed_back_is_lent_again() -> None:
    memory = Memory(100)
    first = memory.lend(40)
    memory.hand_back(first)
    assert memory.lend(40).data is first.data
    assert memory.lend(40).data is not first.data
    assert len(memory.lend(20).data) == 20


def test_it_is_lent_again_also_where_all_is_in_use() -> None:
    memory = Memory(80)
    first, second = memory.lend(40), memory.lend(40)
    memory.hand_back(first)
    assert memory.lend(40).data is first.data
    memory.hand_back(second)
    assert memory.lend(40).data is second.data


def test_what_nobody_uses_is_within_the_limit_too() -> None:
    memory = Memory(100)
    for lent in [memory.lend(40), memory.lend(40)]:
        memory.hand_back(lent)
    memory.take(50)
    assert sum(len(each) for each in memory._spare) <= 50
    memory.take(50)
    assert memory._spare == []


def test_memory_that_cannot_be_had_is_not_counted() -> None:
    memory = Memory(100)
    with pytest.raises((MemoryError, OverflowError)):
        memory.lend(1 << 62)
    assert len(memory.lend(100).data) == 100, "and nobody waits for it"


def test_one_claims_it() -> None:
    lent = Memory(100).lend(40)
    assert [lent.claim(), lent.claim()] == [True, False]


def test_where_threads_cannot_be_started_no_memory_is_used_by_two(
    bucket_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An executor queues the work before it fails to start a thread: another one does it later."""
    paths = [tmp_path / "first", tmp_path / "second"]
    for path in paths:
        path.write_bytes(secrets.token_bytes(4 * PART_BYTES))
    start, put = threading.Thread.start, S3Parts.put
    begun: list[threading.Thread] = []
    has_failed = threading.Event()

    def refused(thread: threading.Thread) -> None:
        if thread.name.startswith("part"):
            begun.append(thread)
            if len(begun) == 2:
                has_failed.set()
                raise RuntimeError("can't start new thread")
        start(thread)

    def busy(*args: Any, **known: Any) -> Part:
        assert has_failed.wait(120), "until then no thread is idle, so that another one is wanted"
        return put(*args, **known)

    monkeypatch.setattr(threading.Thread, "start", refused)
    monkeypatch.setattr(S3Parts, "put", busy)
    remote = open_remote(bucket_url, patience_s=5)
    memory = Memory(MEMORY_BYTES)
    with Line(Bandwidth(None, SystemClock()), memory) as line:
        uploader = Uploader(remote, line)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            uploader.send([Outgoing(paths[0], "first", 4 * PART_BYTES)])
        uploader.send([Outgoing(paths[1], "second", 4 * PART_BYTES)])
    assert remote.read("second") == paths[1].read_bytes()
    assert memory._held_bytes == 0
    assert len({id(each) for each in memory._spare}) == len(memory._spare)
