"""What is read about nodes on a cluster where more happens than is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcflow.ledger import ends
from hpcflow.ledger.store import open_ledger
from hpcflow.model.state import AttemptState, Cause
from hpcflow.requeue import nodes
from hpcflow.requeue.nodes import read_evidence
from hpcflow.storage.layout import Home
from tests.ledger.lines import at, ended, intended, observed, submitted
from tests.ledger.test_store import change_of
from tests.storage.runs import make_run


@pytest.mark.parametrize(("most", "expected"), [(100, [False]), (2, [])])
def test_failures_reach_no_further_back_than_successes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, expected: list[bool]
) -> None:
    """Two runs failed on n2, two ran well there, then two elsewhere; those alone are read."""
    monkeypatch.setattr(ends, "MOST_ENDS", most)
    monkeypatch.setattr(nodes, "MOST_ENDS", most)
    story = [("n2", Cause.NODE_FAIL)] * 2 + [("n2", Cause.COMPLETED)] * 2
    story += [("n1", Cause.COMPLETED)] * 2
    with open_ledger(str(tmp_path / "ledger.sqlite")) as ledger:
        for minutes, (node, cause) in enumerate(story, 10):
            seen = observed(1, AttemptState.RUNNING, minutes - 1, nodes=[node])
            end = ended(1, cause, minutes, ended_at=at(minutes))
            lines = [intended(1, 1), submitted(1, 1), seen, end]
            ledger.apply([change_of(make_run(tmp_path), lines, [])])
        found = read_evidence(ledger, Home(tmp_path), at(30)).standings.get("devcluster", ())
    assert [each.is_bad for each in found] == expected
