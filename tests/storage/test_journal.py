"""The journal keeps what it was told, in order, whatever a crash does to its last line."""

from __future__ import annotations

import shutil
import tracemalloc
from pathlib import Path

import pytest

from hpcflow.errors import StorageError
from hpcflow.model.journal import (
    CancelRequested,
    Ended,
    Intended,
    JournalRecord,
    Observed,
    Refused,
    Submitted,
    parse_record_or_none,
)
from hpcflow.model.state import AttemptState, Cause
from hpcflow.storage import journal
from hpcflow.storage.journal import Journal
from hpcflow.storage.layout import Home, RunDir
from hpcflow.storage.rundir import create_run, read_run
from tests.storage.runs import CREATED_AT, make_run

INTENDED = Intended(at=CREATED_AT, attempt=1, job_name="x:1", scheduler="slurm")
REFUSED = Refused(at=CREATED_AT, attempt=1, reason="Invalid account\n\0", retryable=False)


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    run_dir = RunDir(tmp_path)
    run_dir.run_json.touch()
    run_dir.journal.touch(0o600)
    return run_dir


def test_records_come_back_as_they_were_appended(run_dir: RunDir) -> None:
    observed = Observed(
        at=CREATED_AT,
        attempt=1,
        job_id="12",
        state=AttemptState.RUNNING,
        raw_state="RUNNING",
        started_at=CREATED_AT,
    )
    for record in (INTENDED, REFUSED, observed):
        journal.append(run_dir, record)

    assert journal.read(run_dir) == [INTENDED, REFUSED, observed]
    assert run_dir.journal.stat().st_mode & 0o777 == 0o600


def test_a_journal_that_does_not_exist_is_empty(run_dir: RunDir) -> None:
    run_dir.journal.unlink()
    assert journal.read(run_dir) == []


def test_a_lost_journal_is_begun_only_on_request(run_dir: RunDir) -> None:
    run_dir.journal.unlink()
    with pytest.raises(StorageError, match=r"its journal.jsonl is missing"):
        journal.append(run_dir, INTENDED)
    assert not run_dir.journal.exists()
    journal.append(run_dir, INTENDED, begins=True)
    assert journal.read(run_dir) == [INTENDED]


def test_what_lies_in_the_run_directory_is_not_the_record(tmp_path: Path) -> None:
    """A program, or another user, may write anything there."""
    home = Home(tmp_path / "home")
    run_dir = create_run(make_run(tmp_path / "scratch"), home)
    forged = RunDir(run_dir.path)
    forged.journal.write_text(INTENDED.to_line())
    forged.run_json.write_text("{}")
    assert journal.read(run_dir) == []
    assert read_run(run_dir).run_id == run_dir.path.name
    shutil.rmtree(run_dir.path)
    run_dir.path.symlink_to(tmp_path)
    journal.append(run_dir, INTENDED)
    assert journal.read(run_dir) == [INTENDED]
    assert not (tmp_path / "journal.jsonl").exists()


def test_jobs_are_told_what_they_must_know_of_the_journal(tmp_path: Path) -> None:
    run_dir = create_run(make_run(tmp_path / "scratch"), Home(tmp_path / "home"))
    run_dir.attempt(2).path.mkdir()
    assert not run_dir.completed.exists()
    ended = Ended(at=CREATED_AT, attempt=1, cause=Cause.COMPLETED, raw_state="COMPLETED", rule="r")
    journal.append_all(
        run_dir, [ended, Submitted(at=CREATED_AT, attempt=2, job_id="77", how="standby")]
    )
    assert run_dir.completed.exists()
    assert run_dir.attempt(2).adopted.read_text() == "77\n"
    shutil.rmtree(run_dir.path)
    journal.append(run_dir, ended)
    assert not run_dir.path.exists(), "a purged directory is not begun again"


def test_torn_foreign_and_unknown_lines_are_skipped(run_dir: RunDir) -> None:
    journal.append(run_dir, INTENDED)
    with run_dir.journal.open("ab") as file:
        file.write(b'{"record": "from_the_future", "at": "2030-01-01T00:00:00Z"}\n\xff\xfe\n{"rec')
    journal.append(run_dir, REFUSED)

    assert journal.read(run_dir) == [INTENDED, REFUSED]


def test_a_last_line_without_its_end_is_not_there_yet(run_dir: RunDir) -> None:
    run_dir.journal.write_text(INTENDED.to_line()[:-1])
    assert journal.read(run_dir) == []


def test_what_a_command_printed_in_no_known_encoding_does_not_lose_the_record(
    run_dir: RunDir,
) -> None:
    reason = b"sbatch: \xe9chec".decode("utf-8", "surrogateescape")
    journal.append(run_dir, Refused(at=CREATED_AT, attempt=1, reason=reason, retryable=True))

    (record,) = journal.read(run_dir)
    assert isinstance(record, Refused)
    assert record.reason == "sbatch: ?chec"


def test_a_journal_that_cannot_be_read_is_an_error(run_dir: RunDir) -> None:
    run_dir.journal.unlink()
    run_dir.journal.mkdir()
    with pytest.raises(StorageError, match="is not a regular file"):
        journal.read(run_dir)


def test_a_line_of_two_hundred_megabytes_is_skipped_in_little_memory(run_dir: RunDir) -> None:
    journal.append(run_dir, REFUSED)
    line = REFUSED.to_line().encode().rstrip()
    with run_dir.journal.open("ab") as file:
        file.write(line[:-1] + b" " * (200 << 20) + b"}\n")
        file.write(line + b" " * (2 << 20) + b"\n")  # cut after a megabyte, it is still JSON
    journal.append(run_dir, REFUSED)

    tracemalloc.start()
    try:
        assert journal.read(run_dir) == [REFUSED, REFUSED]
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes | str]:
    """The lines that were parsed."""
    lines: list[bytes | str] = []

    def parse(line: bytes | str) -> JournalRecord | None:
        lines.append(line)
        return parse_record_or_none(line)

    monkeypatch.setattr(journal, "parse_record_or_none", parse)
    return lines


def test_an_open_journal_is_parsed_once_whatever_is_appended(
    run_dir: RunDir, parsed: list[bytes | str]
) -> None:
    journal.append(run_dir, INTENDED)
    opened = Journal(run_dir)
    assert opened.history.last.is_open
    opened.append(REFUSED)
    assert opened.history.refused == REFUSED
    assert list(opened.history.records) == [INTENDED, REFUSED]
    assert len(parsed) == 1
    assert journal.read(run_dir) == [INTENDED, REFUSED]


def test_an_open_journal_shows_what_another_process_appends(run_dir: RunDir) -> None:
    opened = Journal(run_dir)
    assert not opened.history.records
    request = CancelRequested(at=CREATED_AT, by="ada")
    journal.append(run_dir, request)
    assert opened.history.is_cancelled
    journal.append(run_dir, INTENDED)  # at the same moment as our own record
    opened.append(REFUSED)
    assert list(opened.history.records) == [request, INTENDED, REFUSED]


def test_a_record_that_closes_a_torn_line_is_read_back(run_dir: RunDir) -> None:
    run_dir.journal.write_bytes(INTENDED.to_line().encode() + b'{"rec')
    opened = Journal(run_dir)
    assert list(opened.history.records) == [INTENDED]
    opened.append(REFUSED)
    assert list(opened.history.records) == [INTENDED, REFUSED]


def test_an_open_journal_is_as_empty_as_a_lost_one_and_is_not_begun_again(run_dir: RunDir) -> None:
    opened = Journal(run_dir)
    opened.append(INTENDED)
    run_dir.journal.unlink()
    assert not opened.history.records
    with pytest.raises(StorageError, match="cannot continue run"):
        opened.append(REFUSED)
    assert not opened.history.records
    opened.append(REFUSED, begins=True)
    assert list(opened.history.records) == [REFUSED]
