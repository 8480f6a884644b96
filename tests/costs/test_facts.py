"""What was kept and fetched, from the records that runs have written."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from hpcflow.clock import to_text
from hpcflow.costs.facts import SCRATCH, Facts, Fetched, Stored, add_run
from hpcflow.ledger.rows import MirroredRow, StoringRow
from hpcflow.model.journal import CheckpointRemoved, JournalRecord, Restored
from hpcflow.storage.layout import Home
from tests.runtime.published import publish

URL = "s3://lab/ada"
MANIFEST = {"manifest_sha256": "0" * 64}
BEGIN = datetime(2026, 7, 1, tzinfo=timezone.utc)


def at(hours: float) -> datetime:
    return BEGIN + timedelta(hours=hours)


class Records:
    """The files of a run, as far as they matter here."""

    def __init__(self, folder: Path) -> None:
        self.home = Home(folder / "home")
        self.dir = self.home.run_dir(folder / "a-1")
        self.dir.journal.parent.mkdir(parents=True)
        self.events = self.dir.attempt(1).events
        self.events.parent.mkdir(parents=True)
        self.dir.params_json.touch()
        self.dir.journal.touch()
        self.row = StoringRow("a-1", "vision", "ada", "here", None, str(self.dir.path), URL)

    def mirror(self, what: str, hours: float, train_step: int = 400, **more: Any) -> None:
        said = {"at": to_text(at(hours)), "what": what, "url": URL, "train_step": train_step}
        with self.dir.mirror.open("a") as file:
            file.write(json.dumps({**said, "size_bytes": 9000, **MANIFEST, **more}) + "\n")

    def journal(self, record: JournalRecord) -> None:
        with self.dir.journal.open("a") as file:
            file.write(record.to_line())

    def restored(self, hours: float, *steps: int, size_bytes: int | None = None) -> None:
        facts: dict[str, Any] = {"by": "ada", "url": f"{URL}/a-1", "after": 1, "site": "here"}
        self.journal(
            Restored(at=at(hours), checkpoints=list(steps), size_bytes=size_bytes, **facts)
        )

    def event(self, event: str, hours: float, train_step: int = 400, **more: Any) -> None:
        said = {"at": to_text(at(hours)), "event": event, "train_step": train_step}
        path = f"checkpoints/{train_step:09d}"
        with self.events.open("a") as file:
            file.write(json.dumps({**said, "path": path, "size_bytes": 5000, **more}) + "\n")

    def make(self, train_step: int = 400) -> None:
        """The checkpoint that is there now."""
        facts = {"run_id": "a-1", "attempt": 1, "world_size": 1}
        publish(self.dir.checkpoints, train_step, {"model.pt": b"x"}, **facts)

    def in_store(self, *known: MirroredRow) -> Facts:
        facts = Facts()
        add_run(facts, self.home, self.row, known, in_stores=True, on_scratch=False)
        return facts

    def on_scratch(self) -> Facts:
        facts = Facts()
        add_run(facts, self.home, self.row, (), in_stores=False, on_scratch=True)
        return facts


NOBODY = 65534


@contextmanager
def closed(path: Path) -> Iterator[None]:
    """It is a colleague's, and closed; also where these tests are root's."""
    mode, is_root = path.stat().st_mode, os.geteuid() == 0
    path.chmod(0)
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        path.chmod(mode)


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(tmp_path)


def test_what_the_mirror_wrote_down_is_what_was_kept(records: Records) -> None:
    records.mirror("mirrored", 1)
    records.mirror("removed", 5)
    records.mirror("mirrored", 6, 500)
    found = records.in_store()
    assert found.stored == [
        Stored(records.row, URL, 9000, at(1), at(5)),
        Stored(records.row, URL, 9000, at(6), None),
    ]
    assert (found.fetched, found.lost_runs) == ([], set())


def test_restores_and_verifications_have_fetched(records: Records) -> None:
    records.mirror("mirrored", 1)
    records.mirror("read", 2)
    records.restored(3, 400, size_bytes=9500)
    records.restored(4, size_bytes=0)
    assert records.in_store().fetched == [
        Fetched(records.row, URL, 9000, at(2)),
        Fetched(records.row, URL, 9500, at(3)),
    ]


def test_a_restore_of_which_nobody_wrote_the_size_has_that_of_what_was_sent(
    records: Records,
) -> None:
    records.mirror("mirrored", 1)
    records.restored(3, 400, 300)
    found = records.in_store()
    assert [each.size_bytes for each in found.fetched] == [9000]
    assert found.lost_fetches == 1


def test_of_a_run_that_is_purged_the_ledger_still_knows_what_is_there(records: Records) -> None:
    shutil.rmtree(records.dir.path)
    rows = [
        MirroredRow("a-1", "checkpoints/000000400", 400, "mirrored", URL, 9000, at(1)),
        MirroredRow("a-1", "checkpoints/000000300", 300, "removed", URL, 0, at(1)),
    ]
    found = records.in_store(*rows)
    assert found.stored == [Stored(records.row, URL, 9000, at(1), None)]
    assert found.lost_runs == {"a-1"}


def test_a_run_that_was_never_mirrored_has_kept_nothing(records: Records) -> None:
    found = records.in_store()
    assert (found.stored, found.lost_runs) == ([], set())


def test_scratch_has_checkpoints_from_their_making_to_their_removal(records: Records) -> None:
    records.event("progress", 0, metrics={"checkpoint": 1})
    records.event("checkpoint", 1, 100)
    records.event("checkpoint", 2, 200)
    records.event("checkpoint_removed", 3, 100)
    records.event("checkpoint", 4, 400)
    facts = {"by": "ada", "path": "checkpoints/000000200", "size_bytes": 5000, "made_in": 1}
    records.journal(CheckpointRemoved(at=at(5), train_step=200, **facts))
    records.make(400)
    found = records.on_scratch()
    assert found.stored == [
        Stored(records.row, SCRATCH, 5000, at(1), at(3)),
        Stored(records.row, SCRATCH, 5000, at(2), at(5)),
        Stored(records.row, SCRATCH, 5000, at(4), None),
    ]
    assert found.lost_checkpoints == 0


def test_lines_are_read_however_another_program_spaces_them(records: Records) -> None:
    at_one, path = to_text(at(1)), "checkpoints/000000400"
    with records.events.open("a") as file:
        file.write(f'{{"event":"checkpoint","at":"{at_one}","path":"{path}","size_bytes":7}}\n')
        file.write(f'{{"at": "{at_one}", "event": "checkpoint", "path": "x", "torn')
    records.make()
    assert [each.size_bytes for each in records.on_scratch().stored] == [7]


def test_what_a_purge_took_went_nobody_knows_when(records: Records) -> None:
    records.event("checkpoint", 1)
    found = records.on_scratch()
    assert (found.stored, found.lost_checkpoints) == ([], 1)
    records.restored(7, 400, size_bytes=9500)
    records.make()
    found = records.on_scratch()
    assert found.stored == [Stored(records.row, SCRATCH, 5000, at(7), None)]
    assert found.lost_checkpoints == 1


def test_one_that_was_removed_and_fetched_again_has_the_size_that_it_had(records: Records) -> None:
    records.event("checkpoint", 1)
    records.event("checkpoint_removed", 3)
    records.restored(7, 400, size_bytes=9500)
    records.make()
    found = records.on_scratch()
    assert found.stored == [
        Stored(records.row, SCRATCH, 5000, at(1), at(3)),
        Stored(records.row, SCRATCH, 5000, at(7), None),
    ]
    assert found.lost_checkpoints == 0


def test_one_path_has_one_checkpoint_at_a_time(records: Records) -> None:
    records.event("checkpoint", 1)
    records.event("checkpoint", 3, size_bytes=7)
    records.make()
    assert [(each.size_bytes, each.begin, each.end) for each in records.on_scratch().stored] == [
        (5000, at(1), at(3)),
        (7, at(3), None),
    ]


@pytest.mark.parametrize(
    "said", [{"path": 7}, {"size_bytes": -1}, {"size_bytes": "5"}, {"at": "x"}, {"path": None}]
)
def test_a_job_may_say_anything(records: Records, said: dict[str, Any]) -> None:
    records.event("checkpoint", 1, **said)
    found = records.on_scratch()
    assert (found.stored, found.lost_checkpoints) == ([], 0)


def test_a_run_directory_that_is_gone_says_nothing_of_scratch(records: Records) -> None:
    shutil.rmtree(records.dir.path)
    assert records.on_scratch().lost_runs == {"a-1"}


@pytest.mark.parametrize(
    "what", [".", "journal.jsonl", "attempts", "attempts/0001/events.jsonl", "checkpoints"]
)
def test_of_what_is_closed_to_us_nobody_says_that_a_purge_took_it(what: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        records = Records(Path(folder))
        records.event("checkpoint", 1)
        records.make()
        path = records.dir.journal if what == "journal.jsonl" else records.dir.path / what
        assert path.exists()
        with closed(path):
            found = records.on_scratch()
        assert (found.lost_runs, found.lost_checkpoints, found.stored) == ({"a-1"}, 0, [])


@pytest.mark.parametrize("what", [".", "journal.jsonl"])
def test_of_a_run_that_is_closed_to_us_the_ledger_still_knows_what_is_there(what: str) -> None:
    row = MirroredRow("a-1", "checkpoints/000000400", 400, "mirrored", URL, 9000, at(1))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        records = Records(Path(folder))
        records.mirror("mirrored", 0)
        with closed(records.dir.journal if what == "journal.jsonl" else records.dir.path):
            found = records.in_store(row)
    assert found.stored == [Stored(records.row, URL, 9000, at(1), None)]
    assert found.lost_runs == {"a-1"}
