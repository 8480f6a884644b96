"""A round parses the journal of a run once, whatever it does about the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcflow.model.journal import JournalRecord
from hpcflow.storage import journal, own_runs
from hpcflow.storage.layout import RunDir
from hpcflow.storage.own_runs import OwnRuns
from tests.requeue.watched import Watched


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs whose journals are parsed."""
    found: list[str] = []
    real = journal.read

    def counted(run_dir: RunDir) -> list[JournalRecord]:
        found.append(run_dir.path.name)
        return real(run_dir)

    monkeypatch.setattr(journal, "read", counted)
    return found


def test_a_resubmission_parses_the_journal_once(tmp_path: Path, read: list[str]) -> None:
    desk = Watched(tmp_path)
    launched = desk.launch()
    desk.tick()
    desk.end(launched.job_id, "PREEMPTED")
    read.clear()
    report = desk.tick()
    assert list(report.sent) == [launched.run_id]
    assert read == [launched.run_id]


def test_a_round_in_which_nothing_happened_parses_no_journal(
    tmp_path: Path, read: list[str]
) -> None:
    desk = Watched(tmp_path)
    desk.launch()
    desk.tick()
    read.clear()
    desk.tick()
    assert read == []


@pytest.mark.parametrize("limit", ["_LARGEST_JOURNAL", "_MOST_JOURNALS"])
def test_of_long_journals_and_of_many_few_stay_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    desk = Watched(tmp_path)
    first, second = desk.dir_of(desk.launch()), desk.dir_of(desk.launch())
    own = OwnRuns(desk.settings.home)
    opened = own.journal_of(first)
    assert opened.history.has_job
    assert own.journal_of(second).history.has_job
    assert own.journal_of(first) is opened
    monkeypatch.setattr(own_runs, limit, 1)
    own.journal_of(second)
    assert own.journal_of(first) is not opened
