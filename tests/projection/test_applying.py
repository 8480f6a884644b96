"""A run that holds a value that the database does not store holds up no other run."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest

from hpcflow.errors import LedgerValueError
from hpcflow.ledger import derive
from hpcflow.ledger.rows import AttemptRow, RunRow
from hpcflow.ledger.store import Ledger
from hpcflow.projection import catch_up, catch_up_home, rebuild
from hpcflow.projection import reading as projection_reading
from hpcflow.storage.dirty_marks import dirty_runs, mark_dirty
from hpcflow.storage.layout import Home
from tests.ledger import lines as say
from tests.ledger.test_store import LIVE, SAID, change_of
from tests.projection.files import grow, new_run
from tests.storage.runs import make_run

#: Column of an attempt -> a value that neither database stores.
MISFITS: Final[list[tuple[str, Any]]] = [
    ("journal", {"a": math.nan}),
    ("journal", {"a": math.inf}),
    ("report", {"a": -math.inf}),
    ("reason", "a\ud800b"),
    ("ended_at", datetime(2026, 3, 1)),
]
IDS: Final = [f"{column}-{index}" for index, (column, _) in enumerate(MISFITS)]


@pytest.mark.parametrize(("column", "value"), MISFITS, ids=IDS)
def test_the_error_names_the_run_and_the_column_and_nothing_is_written(
    ledger: Ledger, tmp_path: Path, column: str, value: Any
) -> None:
    run = make_run(tmp_path)
    change = change_of(run, LIVE, SAID)
    change.attempts = [replace(change.attempts[0], **{column: value})]
    with pytest.raises(LedgerValueError, match=f"column {column} of {run.run_id}, table attempt"):
        ledger.apply([change])
    assert ledger.runs() == []
    ledger.apply([change_of(run, LIVE, SAID)])


@pytest.mark.parametrize(("column", "value"), MISFITS, ids=IDS)
def test_all_other_runs_are_read_and_the_one_is_named_once(
    ledger: Ledger,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    column: str,
    value: Any,
) -> None:
    home = Home(tmp_path / "home")
    run_dirs = [new_run(tmp_path) for _ in range(4)]
    for run_dir in run_dirs:
        grow(run_dir.journal, say.intended(1), say.submitted(1, 1))
    hurt = run_dirs[1].path.name

    def strange(run_id: str, *args: Any) -> AttemptRow:
        row = derive.derive_attempt(run_id, *args)
        return replace(row, **{column: value}) if run_id == hurt else row

    monkeypatch.setattr(projection_reading, "derive_attempt", strange)
    mark_dirty(home, run_dirs[1])
    summary = catch_up_home(ledger, home)
    assert [problem.partition(":")[0] for problem in summary.problems] == [hurt]
    assert column in summary.problems[0]
    others = {run_dir.path.name for run_dir in run_dirs} - {hurt}
    assert {run.run_id for run in ledger.runs()} == set(summary.changed) == others
    grow(run_dirs[0].journal, say.cancel_requested(3))
    again = catch_up_home(ledger, home)
    assert again.problems == []
    assert again.changed == [run_dirs[0].path.name]
    assert dirty_runs(home) == [hurt], "it is not forgotten"
    monkeypatch.undo()
    assert rebuild(ledger, run_dirs).problems == []
    assert hurt in {run.run_id for run in ledger.runs()}


@pytest.mark.parametrize(
    "error", [KeyError("a"), TypeError(), OverflowError(), RecursionError(), ZeroDivisionError()]
)
def test_a_run_whose_lines_nobody_foresaw_is_left_out_alone(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    run_dirs = [new_run(tmp_path) for _ in range(3)]
    hurt = run_dirs[1].path.name

    def fail(row: RunRow, *args: Any) -> None:
        if row.run_id == hurt:
            raise error
        derive.derive_run(row, *args)

    monkeypatch.setattr(projection_reading, "derive_run", fail)
    summary = catch_up(ledger, run_dirs)
    assert [problem.partition(":")[0] for problem in summary.problems] == [hurt]
    assert len(summary.changed) == 2
    assert hurt in summary.unread
