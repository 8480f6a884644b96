"""A check finds whatever somebody changed in the database behind our back, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcflow.ledger import fold
from hpcflow.ledger.store import Ledger
from hpcflow.projection import catch_up, check, rebuild
from hpcflow.storage.layout import RunDir
from tests.ledger import lines as say
from tests.projection.files import grow, new_run


@pytest.fixture
def run_dir(ledger: Ledger, tmp_path: Path) -> RunDir:
    run_dir = new_run(tmp_path)
    grow(run_dir.journal, say.intended(1), say.submitted(1), b"bad\n")
    grow(run_dir.attempt(1).events, say.started(1), say.progress(5, loss=0.5), say.checkpoint(5))
    catch_up(ledger, [run_dir])
    return run_dir


def test_a_ledger_that_caught_up_agrees(ledger: Ledger, run_dir: RunDir) -> None:
    assert check(ledger, [run_dir]) == []


def test_what_was_not_read_yet_is_no_difference(ledger: Ledger, run_dir: RunDir) -> None:
    grow(run_dir.attempt(1).events, say.progress(6), say.checkpoint(6), b"torn")
    assert check(ledger, [run_dir]) == []


def test_so_does_one_that_followed_more_checkpoints_than_are_read_at_once(
    ledger: Ledger, run_dir: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold, "MAX_CHECKPOINTS", 3)
    for step in range(6, 20, 2):
        grow(run_dir.attempt(1).events, say.checkpoint(step), say.checkpoint(step + 1))
        grow(run_dir.mirror, say.mirror("mirrored", step), say.mirror("mirrored", step + 1))
        catch_up(ledger, [run_dir])
    assert check(ledger, [run_dir]) == []
    rebuild(ledger, [run_dir])
    assert check(ledger, [run_dir]) == []
    steps = [row.train_step for row in ledger.checkpoints([run_dir.path.name])]
    assert sorted(steps) == [17, 18, 19]


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("UPDATE run SET state = 'completed'", "run: state is completed in the ledger, running in"),
        ("UPDATE run SET metrics = '{}'", "run: metrics is {} in the ledger, {'loss': 0.5} in"),
        ("UPDATE attempt SET job_id = '7'", "attempt 1: job_id is 7 in the ledger, 101 in the"),
        ("DELETE FROM attempt", "attempt 1: only in the files"),
        ("DELETE FROM checkpoint", "checkpoint checkpoints/5: only in the files"),
        ("UPDATE checkpoint SET path = 'x'", "checkpoint x: only in the ledger"),
        ("UPDATE source SET skipped_lines = 9 WHERE path = 'journal.jsonl'", "skipped_lines is 9"),
    ],
)
def test_a_change_behind_our_back_is_found_and_repaired(
    ledger: Ledger, run_dir: RunDir, sql: str, says: str
) -> None:
    ledger.connection().execute(sql)
    differences = check(ledger, [run_dir])
    assert any(says in text for text in differences), differences
    assert all(text.startswith(run_dir.path.name) for text in differences)
    rebuild(ledger, [run_dir])
    assert check(ledger, [run_dir]) == []


def test_runs_on_one_side_only_are_listed(ledger: Ledger, run_dir: RunDir, tmp_path: Path) -> None:
    unknown = new_run(tmp_path)
    run_dir.path.rename(tmp_path / "purged")
    first, second = check(ledger, [unknown, run_dir])
    assert first == f"{unknown.path.name}: not in the ledger"
    assert second == f"{run_dir.path.name}: its run directory is gone"
