"""The benchmark of the mirror compares what was measured, and shows what failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks import bench_mirror
from tests.benchmarks.timing import Row


@pytest.fixture(autouse=True)
def _few_and_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_mirror, "_LARGE", {"shard-00.pt": 1000, "shard-01.pt": 1000})
    monkeypatch.setattr(bench_mirror, "_SMALL", 20)
    monkeypatch.setattr(bench_mirror, "_ROUNDS", 1)


def measured_with(peer: str, rows: list[Row]) -> list[bool]:
    """Of each row that names the peer, whether it was measured."""
    return [f"× {peer}" in row.measured for row in rows if peer in row.measured]


def test_what_was_deleted_is_not_fetched_with_the_next_checkpoint(
    capfd: pytest.CaptureFixture[str],
) -> None:
    rows = bench_mirror.rows()
    assert "is not compared" not in capfd.readouterr().err
    assert measured_with("s5cmd", rows) == [True] * 6
    assert measured_with("rclone", rows) == [True] * 3


def test_a_peer_that_fails_is_shown_and_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rclone").symlink_to(bench_mirror._BIN / "rclone")
    (tmp_path / "s5cmd").write_text("#!/bin/sh\necho no credentials >&2\nexit 3\n")
    (tmp_path / "s5cmd").chmod(0o755)
    monkeypatch.setattr(bench_mirror, "_BIN", tmp_path)
    rows = bench_mirror.rows()
    assert capfd.readouterr().err.count("failed with 3:\nno credentials") == 2
    assert measured_with("s5cmd", rows) == [False] * 6
    assert measured_with("rclone", rows) == [True] * 3
    assert not any(row.is_met for row in rows if "s5cmd failed" in row.measured)
