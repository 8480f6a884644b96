"""Other roles of a database can write any number of damaged rows: a daemon stays small."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from hpcflow.ledger import store
from hpcflow.ledger.codec import decode_sound
from hpcflow.ledger.rows import RunRow
from hpcflow.ledger.store import LeftOutRuns, open_ledger


@pytest.mark.parametrize("at_once", [1, 3, 7, 20, 21, 100])
def test_so_many_runs_are_remembered_and_then_one_line_says_how_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(store, "_MAX_REPORTED", 20, raising=False)
    warnings: list[str] = []
    runs = LeftOutRuns(warnings.append)
    with open_ledger(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        for first in range(0, 300, at_once):
            found = {f"eve-{number}": "a value" for number in range(first, first + at_once)}
            for _ in range(2):
                runs.report(ledger.connection(), found)
    assert len(runs._reported) <= 20
    last = [each for each in warnings if "so far" in each]
    assert warnings[-1:] == last, "once"
    more = 20 // at_once * at_once + at_once
    assert last[0].startswith(f"{more} runs are left out so far")
    assert sum("run eve-" in each for each in warnings) <= 20 + 10


_NAMES = ("run_id", "name", "project", "site")


def test_of_many_rows_only_the_damaged_ones_are_left_out() -> None:
    records: list[Any] = [(f"run-{number}", "digits", "vision", "here") for number in range(12_000)]
    for number in (0, 4_999, 5_000, 11_999):
        records[number] = (f"run-{number}", 3, "vision", "here")
    left_out: dict[str, str] = {}
    found = decode_sound(RunRow, _NAMES, records, lambda *row: row, left_out)
    assert found == [record for record in records if record[1] != 3]
    assert list(left_out) == ["run-0", "run-4999", "run-5000", "run-11999"]


def test_decoding_many_rows_needs_no_second_copy_of_their_columns() -> None:
    records = [(f"run-{number}", "digits", "vision", "here") for number in range(100_000)]
    tracemalloc.start()
    decode_sound(RunRow, _NAMES, records, lambda *_: None, {})
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 2_000_000, "0.8 MB of it are the result, and each column is 0.8 MB"
