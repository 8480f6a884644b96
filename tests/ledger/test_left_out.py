"""Other roles of a database can write any number of damaged rows: a daemon stays small."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcflow.ledger import left_out
from hpcflow.ledger.left_out import LeftOutRuns
from hpcflow.ledger.store import open_ledger


@pytest.mark.parametrize("at_once", [1, 3, 7, 20, 21, 100])
def test_so_many_runs_are_remembered_and_then_one_line_says_how_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(left_out, "_MAX_REPORTED", 20, raising=False)
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
