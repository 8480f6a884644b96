"""What the mirror has of a run stands in a file that somebody else writes, maybe at this moment."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from hpcflow.runtime.mirrored import NAME, PATIENCE, MirrorState, mirrored, read_mirror

NOW = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)


def said(what: str, train_step: object, *, ago: timedelta = timedelta(), **more: str) -> str:
    at = (NOW - ago).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps({"at": at, "what": what, "train_step": train_step, "bytes": 7, **more}) + "\n"


def state(folder: Path, *lines: str, url: str | None = None) -> MirrorState:
    (folder / NAME).write_text("".join(lines))
    return read_mirror(folder, url, NOW)


def test_a_run_without_a_mirror_has_nothing_mirrored(tmp_path: Path) -> None:
    assert mirrored(tmp_path, None) == set()
    assert mirrored(tmp_path / "gone", None) == set()
    assert read_mirror(tmp_path, None) == MirrorState()


def steps(*train_steps: int) -> frozenset[int]:
    return frozenset(train_steps)


def test_what_was_mirrored_is_there(tmp_path: Path) -> None:
    seen = state(tmp_path, said("began", 100), said("mirrored", 100))
    assert seen == MirrorState(there=steps(100), settled=steps(100))
    assert mirrored(tmp_path, None) == {100}


def test_what_was_removed_from_the_store_is_not_there_and_not_due_again(tmp_path: Path) -> None:
    seen = state(tmp_path, said("mirrored", 100), said("removed", 100))
    assert seen == MirrorState(settled=steps(100))
    assert mirrored(tmp_path, None) == set()


def test_what_failed_is_tried_again_unless_it_is_damaged(tmp_path: Path) -> None:
    damaged = said("failed", 200).replace("}", ', "is_final": true}')
    seen = state(tmp_path, said("began", 100), said("failed", 100), said("began", 200), damaged)
    assert seen == MirrorState(settled=steps(200))


def test_an_upload_is_under_way_until_it_ends_well_or_not(tmp_path: Path) -> None:
    began = [said("began", 100), said("began", 200), said("began", 300)]
    ended = [said("mirrored", 100), said("failed", 200)]
    assert state(tmp_path, *began).under_way == {100, 200, 300}
    assert state(tmp_path, *began, *ended).under_way == {300}
    assert state(tmp_path, *began, *ended, said("began", 200)).under_way == {200, 300}


def test_one_of_which_nothing_was_heard_for_hours_has_died(tmp_path: Path) -> None:
    minute = timedelta(minutes=1)
    old = said("began", 100, ago=PATIENCE + minute)
    assert state(tmp_path, old, said("began", 200, ago=PATIENCE - minute)).under_way == {200}
    assert state(tmp_path, old, said("began", 100)).under_way == {100}, "it was started again"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "\0\n",
        '{"what": "mirrored", "train_',
        "[]\n",
        '{"what": "mirrored"}\n',
        said("mirrored", "100"),
        said("mirrored", True),
        said("uploaded", 100),
        '{"what": "began", "train_step": 100}\n',
        '{"what": "began", "train_step": 100, "at": "yesterday"}\n',
        '{"what": "began", "train_step": 100, "at": "0001-01-01T00:00:00+14:00"}\n',
        "[" * 100_000,
    ],
)
def test_a_line_that_says_nothing_is_passed_over(tmp_path: Path, line: str) -> None:
    seen = state(tmp_path, said("mirrored", 7), line, "\n", said("began", 8))
    assert seen == MirrorState(steps(7), steps(7), steps(8))


def test_what_the_store_lost_later_is_due_again(tmp_path: Path) -> None:
    seen = state(tmp_path, said("mirrored", 100), said("failed", 100))
    assert seen == MirrorState()


def test_what_another_store_has_does_not_count(tmp_path: Path) -> None:
    here, elsewhere = "s3://lab/here", "s3://lab/elsewhere"
    seen = state(
        tmp_path,
        said("mirrored", 100, url=here),
        said("mirrored", 200, url=elsewhere),
        said("removed", 100, url=elsewhere),
        url=f"{here}/",
    )
    assert seen == MirrorState(there=steps(100), settled=steps(100))


def test_what_was_made_anew_is_not_there(tmp_path: Path) -> None:
    manifest = tmp_path / "checkpoints" / "000000100" / "manifest.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_bytes(b"{}")
    sha256 = hashlib.sha256(b"{}").hexdigest()
    assert state(tmp_path, said("mirrored", 100, manifest_sha256=sha256)).there == {100}
    assert state(tmp_path, said("mirrored", 100, manifest_sha256="0" * 64)) == MirrorState()
    outside = tmp_path / "outside"
    manifest.parent.rename(outside)
    manifest.parent.symlink_to(outside)
    assert state(tmp_path, said("mirrored", 100, manifest_sha256=sha256)) == MirrorState()
    manifest.parent.unlink()
    outside.rename(manifest.parent)
    manifest.unlink()  # what is not here any more is the store's alone
    assert state(tmp_path, said("mirrored", 100, manifest_sha256="0" * 64)).there == {100}
