"""A journal with thousands of forged attempts: refused, or looked at once and written once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcflow.errors import MirrorError
from hpcflow.ledger.store import open_ledger
from hpcflow.model.ids import job_name
from hpcflow.model.journal import (
    Accounted,
    Ended,
    Held,
    Intended,
    JournalRecord,
    Observed,
    Standby,
    Submitted,
)
from hpcflow.model.state import AttemptState, Cause
from hpcflow.restore.ledger import rebuild_from
from hpcflow.restore.remote_run import MOST_ATTEMPTS
from hpcflow.storage import journal
from hpcflow.storage.files import append_line_durably
from hpcflow.storage.layout import RunDir
from tests.restore.mirrored import purge
from tests.restore.owner import Owner
from tests.restore.test_forged import forge

STATES = ["intended", "submitted", "running", "ended", "ended, one job"]


def forged(owner: Owner, run_dir: RunDir, numbers: range, state: str) -> Iterator[JournalRecord]:
    now = owner.clock.now()
    for number in numbers:
        job_id = "1001" if "one job" in state else str(900_000 + number)
        name = job_name(run_dir.path.name, number)
        yield Intended(at=now, attempt=number, job_name=name, scheduler="slurm")
        if state == "intended":
            continue
        yield Submitted(at=now, attempt=number, job_id=job_id)
        if state == "running":
            yield Observed(
                at=now,
                attempt=number,
                job_id=job_id,
                state=AttemptState.RUNNING,
                raw_state="RUNNING",
            )
        if state.startswith("ended"):
            end = Ended(at=now, attempt=number, cause=Cause.FAILED, raw_state="FAILED", rule="x")
            yield end


@pytest.fixture
def appended(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The journals that are written, each time one is."""
    written: list[Path] = []
    real = append_line_durably

    def append(path: Path, line: str, *, must_exist: bool) -> None:
        written.append(path)
        real(path, line, must_exist=must_exist)

    monkeypatch.setattr("hpcflow.storage.journal.append_line_durably", append)
    return written


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The same of those that are read."""
    found: list[Path] = []
    real = journal.read

    def read(run_dir: RunDir) -> list[JournalRecord]:
        found.append(run_dir.journal)
        return real(run_dir)

    monkeypatch.setattr(journal, "read", read)
    return found


@pytest.mark.parametrize("state", STATES)
def test_a_look_reads_and_writes_a_journal_a_few_times_however_many_attempts_it_has(
    owner: Owner, state: str, appended: list[Path], read: list[Path]
) -> None:
    counts = []
    for most in (20, 200):
        run_dir = owner.mirrored(100)
        forge(owner, run_dir, list(forged(owner, run_dir, range(2, most), state)))
        purge(run_dir)
        owner.restore(run_dir)
        for _ in range(3):
            owner.clock.advance(600)
            appended.clear()
            read.clear()
            owner.look()
            counts.append((appended.count(run_dir.journal), read.count(run_dir.journal)))
        owner.assert_rebuilt_alike(run_dir.path.name)
        (owner.folder / "rebuilt.sqlite").unlink()
    assert counts[:3] == counts[3:]
    assert max(writes for writes, _ in counts) <= 2


def test_each_of_them_is_ended_and_billed_all_the_same(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    forge(owner, run_dir, list(forged(owner, run_dir, range(2, 50), "running")))
    purge(run_dir)
    owner.restore(run_dir)
    for _ in range(6):
        owner.clock.advance(600)
        owner.look()
    records = journal.read(run_dir)
    ended = [each.attempt for each in records if isinstance(each, Ended)]
    assert sorted(ended) == list(range(1, 50))
    billed = {each.attempt for each in records if isinstance(each, Accounted)}
    assert billed >= set(range(2, 50))


def lines_of(owner: Owner, kind: str, count: int) -> list[JournalRecord]:
    now = owner.clock.now()
    intents = [
        Intended(at=now, attempt=number, job_name="x", scheduler="slurm")
        for number in range(2, count + 2)
    ]
    if kind == "standbys":
        return [Standby(at=now, says=each) for each in intents]
    if kind == "ends":
        return [
            Ended(at=now, attempt=each.attempt, cause=Cause.FAILED, raw_state="", rule="")
            for each in intents
        ]
    return list(intents)


@pytest.mark.parametrize("kind", ["intents", "ends", "standbys"])
def test_a_journal_with_too_many_attempts_is_refused(owner: Owner, kind: str) -> None:
    run_dir = owner.mirrored(100)
    forge(owner, run_dir, lines_of(owner, kind, MOST_ATTEMPTS))
    purge(run_dir)
    with pytest.raises(MirrorError, match=r"journal\.jsonl has attempts other than 1 to 10,000"):
        owner.restore(run_dir)
    assert not run_dir.path.exists()
    with open_ledger(owner.settings.ledger_url) as ledger:
        found = rebuild_from(ledger, owner.remote, owner.settings, site=owner.site)
        assert "attempts other than 1 to 10,000" in " ".join(found.problems + found.ahead)


def test_a_journal_with_many_lines_of_few_attempts_is_restored(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    now = owner.clock.now()
    forge(owner, run_dir, [Held(at=now, by="ada") for _ in range(MOST_ATTEMPTS + 1)])
    purge(run_dir)
    assert owner.restore(run_dir).held is not None
