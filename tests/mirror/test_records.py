"""``mirror.jsonl`` may come from a bucket in which anybody wrote: no line of it stops a mirror."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcflow.mirror import passes, survey
from hpcflow.mirror.records import read_records
from hpcflow.mirror.remote import Entry
from hpcflow.mirror.survey import Survey
from hpcflow.mirror.upload import PART_BYTES
from hpcflow.restore.objects import sort_out
from hpcflow.runtime.mirrored import read_mirror
from hpcflow.storage.layout import RunDir
from tests.growth import TIMES, require_no_square
from tests.mirror.runs import Desk, checkpoint_names, desk_in, save

AT = "2026-01-01T00:00:00.000Z"
SENDING = {"what": "sending", "name": "model.pt", "sha256": "0" * 64, "upload_id": "an id"}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    (tmp_path / "store").mkdir()  # else a run that was mirrored there before says it is unmounted
    return desk_in(tmp_path, str(tmp_path / "store"))


def write(run_dir: RunDir, url: str, **said: Any) -> None:
    """A line that has all that a line has, but for what is ``said``."""
    line = {"at": AT, "url": url, "train_step": 400, "what": "began", **said}
    with run_dir.mirror.open("a") as file:
        file.write(json.dumps(line) + "\n")


@pytest.mark.parametrize(
    "said",
    [
        {"train_step": float("inf")},
        {"train_step": -1},
        {"train_step": 10**400},
        {"train_step": "400"},
        {"at": 5},
        {"at": None},
        {"what": []},
        {**SENDING, "part_bytes": float("inf")},
        {**SENDING, "part_bytes": None},
        {**SENDING, "part_bytes": PART_BYTES, "upload_id": 7},
        {"what": "mirrored", "manifest_sha256": "0" * 64, "size_bytes": float("inf")},
        {"what": "failed", "why": "so", "names": [[]]},
        {"what": "failed", "why": "so", "names": 7},
        {"what": "failed", "why": "so", "is_final": True},
    ],
)
def test_a_line_that_is_none_says_nothing(desk: Desk, said: dict[str, Any]) -> None:
    run_dir = desk.make()
    write(run_dir, desk.url)
    before = read_records(run_dir, desk.url)
    write(run_dir, desk.url, **said)
    assert read_records(run_dir, desk.url) == before
    save(run_dir, 400)
    assert desk.mirror().problems == {}
    assert set(checkpoint_names(400)) < set(desk.there(run_dir))


def test_a_train_step_that_is_no_number_damages_one_checkpoint(desk: Desk) -> None:
    run_dir = desk.make()
    save(run_dir, 300)
    manifest = save(run_dir, 400) / "manifest.json"
    manifest.write_text(json.dumps({"format": 1, "train_step": float("inf"), "files": {}}))
    report = desk.mirror()
    assert "checkpoint 400" in str(report.problems[run_dir.path.name])
    assert [done.train_step for done in report.mirrored] == [300]


def test_what_nobody_has_thought_of_stops_one_run_only(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good, worse = desk.make("bad"), desk.make("good"), desk.make("worse")
    for run_dir in (bad, good, worse):
        save(run_dir, 400)
    looks = {bad: 0, good: 0, worse: 0}

    def look(run_dir: RunDir) -> Survey | None:
        looks[run_dir] += 1
        if (run_dir, looks[run_dir]) in ((bad, 1), (worse, 2)):
            raise ZeroDivisionError("who would have thought")
        return survey.survey(run_dir)

    monkeypatch.setattr(passes, "survey", look)
    report = desk.mirror()
    assert [done.run_id for done in report.mirrored] == [good.path.name]
    assert set(report.problems) == {bad.path.name, worse.path.name}
    for error in report.problems.values():
        assert "who would have thought" in error.message


@pytest.mark.parametrize("most_bytes", [1 << 18, pytest.param(16 << 20, marks=pytest.mark.soak)])
@pytest.mark.parametrize("line", [b"\n", b"{}\n", b"0\n", b"[[[[]]]]\n"])
def test_lines_that_say_nothing_take_a_moment_however_many_they_are(
    desk: Desk, line: bytes, most_bytes: int
) -> None:
    """Up to as many as a restore fetches; the job reads them, too."""
    run_dirs = {}
    for size_bytes in (most_bytes, most_bytes // TIMES):
        run_dirs[size_bytes] = run_dir = desk.make()
        run_dir.mirror.write_bytes(line * (size_bytes // len(line)))
        write(run_dir, desk.url, what="removed")

    def read(size_bytes: int) -> None:
        assert set(read_records(run_dirs[size_bytes], desk.url).removed) == {400}
        assert set(read_mirror(run_dirs[size_bytes].path, desk.url).settled) == {400}

    require_no_square(read, most_bytes)


def test_more_of_them_than_that_are_not_fetched() -> None:
    sizes = {"mirror.jsonl": Entry(17 << 20), "attempts/0001/events.jsonl": Entry(17 << 20)}
    objects = sort_out(sizes)
    assert objects.small.keys() == {"attempts/0001/events.jsonl"}
    assert len(objects.refused) == 1
