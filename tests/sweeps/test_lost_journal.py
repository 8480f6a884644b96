"""The journal of a sweep is deleted, truncated or damaged: no trial is submitted again.

It is the truth about the trials. What is lost of it is known by the runs that were made: a round
refuses to ask for anything, says so, and fails.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcflow.errors import StorageError
from hpcflow.ledger.store import open_ledger
from hpcflow.model.sweep_records import StopRequested
from hpcflow.storage.sweeps import SweepDir, append, read_journal, read_sweep
from hpcflow.sweeps.rounds import under_way
from tests.sweeps.searched import Searched

SWEEP = "parallel: 3\nbudget: {trials: 6}\n"


@pytest.fixture
def desk(tmp_path: Path) -> Searched:
    desk = Searched(tmp_path)
    desk.begin(SWEEP)
    desk.round()
    return desk


def journal_of(desk: Searched) -> Path:
    return desk.sweep_dir.journal


def missing(path: Path, _: bytes) -> None:
    path.unlink()


def empty(path: Path, _: bytes) -> None:
    path.write_bytes(b"")


def half(path: Path, data: bytes) -> None:
    path.write_bytes(data[: len(data) // 2])


def garbage(path: Path, data: bytes) -> None:
    path.write_bytes(random.Random(1).randbytes(len(data)) + b"\n")


def zeros(path: Path, data: bytes) -> None:
    path.write_bytes(b"\0" * len(data))


def a_line_of_zeros(path: Path, data: bytes) -> None:
    first, rest = data.split(b"\n", 1)
    path.write_bytes(b"\0" * len(first) + b"\n" + rest)


def no_json(path: Path, data: bytes) -> None:
    first, rest = data.split(b"\n", 1)
    path.write_bytes(first.replace(b":", b";") + b"\n" + rest)


def no_record(path: Path, data: bytes) -> None:
    path.write_bytes(data.replace(b'"trial"', b'"trail"', 1))


def no_first_trial(path: Path, data: bytes) -> None:
    path.write_bytes(data.replace(b'"trial": 0, "params"', b'"trial": 7, "params"', 1))


def link(path: Path, _: bytes) -> None:
    other = path.with_name("elsewhere.jsonl")
    path.rename(other)
    path.symlink_to(other)


def folder(path: Path, _: bytes) -> None:
    path.unlink()
    path.mkdir(mode=0o700)


LOSSES = (
    *(missing, empty, half, garbage, zeros, a_line_of_zeros, no_json, no_record, no_first_trial),
    *(link, folder),
)
#: How it was lost, when: all while some trials run and others are over, a few before and after.
CASES = [(lose, "some are over") for lose in LOSSES]
CASES += [
    (lose, when) for lose in (missing, half, no_record) for when in ("its trials run", "it is over")
]


def assert_refused(desk: Searched) -> str:
    """Nothing is asked or sent, and the round says why."""
    before = {job.job_id for job in desk.jobs()}
    report = desk.round()
    assert (report.asked, report.sent) == ([], {})
    assert {job.job_id for job in desk.jobs()} <= before
    (problem,) = report.problems
    assert "journal" in problem
    return problem


@pytest.mark.parametrize(("lose", "when"), CASES)
def test_no_trial_is_asked_for_again(
    desk: Searched, lose: Callable[[Path, bytes], None], when: str
) -> None:
    for done in {"its trials run": [], "some are over": [3], "it is over": [3, 6]}[when]:
        for number in range(done - 3, done):
            desk.completes(number, 0.5)
        desk.round()
        desk.round()
    lose(journal_of(desk), journal_of(desk).read_bytes())
    for _ in range(2):
        problem = assert_refused(desk)
        named = (desk.sweep_dir.sweep_id, str(journal_of(desk)), "trial 0 is missing")
        assert any(each in problem for each in named)


def test_cut_behind_any_line_no_run_is_made_twice(desk: Searched) -> None:
    whole = journal_of(desk).read_bytes()
    lines = whole.splitlines(keepends=True)
    assert len(lines) >= 3
    for kept in range(len(lines)):
        journal_of(desk).write_bytes(b"".join(lines[:kept]))
        before = len(desk.jobs())
        report = desk.round()
        assert (report.asked, report.sent) == ([], {}), f"{kept} lines were left"
        assert len(desk.jobs()) == before
    journal_of(desk).write_bytes(whole)
    assert desk.round().problems == [], "with its journal back, it goes on"


def test_cut_at_any_byte_no_run_is_made_twice(desk: Searched) -> None:
    whole = journal_of(desk).read_bytes()
    dice = random.Random(7)
    before = len(desk.jobs())
    for _ in range(8):
        journal_of(desk).write_bytes(whole[: dice.randrange(len(whole))])
        report = desk.round()
        assert (report.asked, report.sent) == ([], {})
    assert len(desk.jobs()) == before


def test_with_any_bit_flipped_no_run_is_made_twice(desk: Searched) -> None:
    whole = journal_of(desk).read_bytes()
    dice = random.Random(8)
    before = len(desk.jobs())
    for _ in range(10):
        data = bytearray(whole)
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        journal_of(desk).write_bytes(data)
        desk.round()
    assert len(desk.jobs()) == before


def test_a_journal_that_others_can_write_is_not_believed(desk: Searched) -> None:
    desk.sweep_dir.journal.chmod(0o666)
    with pytest.raises(StorageError, match="other users can write to it"):
        list(read_journal(desk.sweep_dir))


def test_a_link_in_the_place_of_a_sweep_is_not_followed(desk: Searched, tmp_path: Path) -> None:
    moved = desk.sweep_dir.path.rename(tmp_path / "elsewhere")
    (moved / "tick.lock").unlink()
    desk.sweep_dir.path.symlink_to(moved)
    before = len(desk.jobs()), sorted(moved.iterdir())
    (moved / "journal.jsonl").write_text('{"record": "over"}\n')
    assert [each.sweep_id for each in under_way(desk.settings.home)] == [desk.sweep_dir.sweep_id]
    assert f"is a link to {moved}" in str(desk.round().problems)
    with pytest.raises(StorageError, match=f"is a link to {moved}"):
        read_sweep(desk.sweep_dir)
    assert (len(desk.jobs()), sorted(moved.iterdir())) == before


def test_a_line_that_a_full_disk_tore_is_left_out_as_ever(desk: Searched) -> None:
    """It was never acted upon. The next record closed it."""
    records = list(read_journal(desk.sweep_dir))
    line = records[0].to_line().encode()
    for cut in range(1, len(line) - 1):
        journal_of(desk).write_bytes(
            b"".join(record.to_line().encode() for record in records) + line[:cut] + b"\n"
        )
        assert list(read_journal(desk.sweep_dir)) == records
    assert desk.round().problems == []


@pytest.mark.parametrize("kind", ["[[]]", "{}", "null", "7"])
def test_a_line_of_no_kind_means_damage(desk: Searched, kind: str) -> None:
    with journal_of(desk).open("ab") as file:
        file.write(b'{"record": %b}\n' % kind.encode())
    with pytest.raises(StorageError, match="damaged"):
        list(read_journal(desk.sweep_dir))


def test_records_of_a_newer_version_are_left_out_as_ever(desk: Searched) -> None:
    with journal_of(desk).open("ab") as file:
        file.write(b'{"record": "weighed", "at": "2026-03-01T00:00:00Z", "kg": 3}\n')
    assert desk.round().problems == []


def test_who_stops_it_with_its_trials_is_told_that_they_are_not_known(desk: Searched) -> None:
    journal_of(desk).unlink()
    now = desk.clock.now()
    append(desk.sweep_dir, [StopRequested(at=now, by="ada", cancel=True)])
    assert "it lacks the trials of" in assert_refused(desk)


def test_a_sweep_that_was_only_just_made_has_no_journal_and_begins(tmp_path: Path) -> None:
    desk = Searched(tmp_path)
    desk.begin(SWEEP)
    assert not journal_of(desk).exists()
    assert desk.round().asked == [0, 1, 2]


def test_another_sweep_of_the_same_name_is_no_sign_of_loss(desk: Searched) -> None:
    append(desk.sweep_dir, [StopRequested(at=desk.clock.now(), by="ada")])
    for number in range(3):
        desk.completes(number, 0.5)
    desk.round()
    desk.begin(SWEEP)
    assert desk.round().asked == [0, 1, 2]


def test_a_row_that_somebody_else_wrote_stops_no_sweep(
    desk: Searched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody can write a row into a common ledger; the home has no link to such a run."""
    from hpcflow.ledger.store import Ledger

    runs = Ledger.trial_runs
    monkeypatch.setattr(
        Ledger,
        "trial_runs",
        lambda self, *args, user: [*runs(self, *args, user=user), "search-t9-20260301-x"],
    )
    desk.completes(0, 0.5)
    assert desk.round().asked == [3]


def test_what_was_frozen_of_another_sweep_is_refused(desk: Searched) -> None:
    mine = desk.sweep_dir
    append(mine, [StopRequested(at=desk.clock.now(), by="ada")])
    for number in range(3):
        desk.completes(number, 0.5)
    desk.round()
    other: SweepDir = desk.begin(SWEEP)
    shutil.copy(other.sweep_json, mine.sweep_json)
    with pytest.raises(StorageError, match="it belongs to another sweep"):
        read_sweep(mine)


def test_another_run_is_no_lost_trial_for_a_row_of_another_user(desk: Searched) -> None:
    text = desk.config.read_text()
    # A file is asked for what is named as a trial alone, and a server is not.
    desk.config.write_text(text.replace("name: small", "name: search-t7"))
    launched = desk.launch()
    desk.config.write_text(text)
    desk.round()
    with open_ledger(desk.settings.ledger_url) as ledger:
        sql = "UPDATE run SET parent_sweep = ? WHERE run_id = ?"
        ledger.connection().execute(sql, [desk.sweep_dir.sweep_id, launched.run_id])
    assert launched.run_id.startswith("search-t7-")
    assert desk.round().problems == []
