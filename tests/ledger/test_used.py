"""What attempts had and used, as every database gives it back."""

from __future__ import annotations

from pathlib import Path

from hpcflow.ledger.store import Ledger
from hpcflow.model.state import AttemptState, Cause
from tests.ledger.lines import at, ended, event, intended, observed, started, submitted
from tests.ledger.test_store import change_of
from tests.storage.runs import make_run


def test_attempts_that_have_begun_come_with_what_their_jobs_told(
    ledger: Ledger, tmp_path: Path
) -> None:
    done, live, queued = (make_run(tmp_path, name=name) for name in ("done", "live", "queued"))
    journal = [
        intended(1),
        submitted(1),
        observed(1, AttemptState.RUNNING, 1, started_at=at(1)),
    ]
    told = [started(1, 1), event("usage", 9, seconds=480, mem_peak_mb=300)]
    ledger.apply(
        [
            change_of(done, [*journal, ended(1, Cause.COMPLETED, 60, ended_at=at(60))], told),
            change_of(live, journal, told),
            change_of(queued, [intended(1), submitted(1)], []),
        ]
    )
    rows = {row.run_id: row for row in ledger.used()}
    assert set(rows) == {done.run_id, live.run_id}
    row = rows[done.run_id]
    assert (row.attempt, row.cause, row.started_at, row.ended_at) == (
        1, "completed", at(1), at(60),
    )  # fmt: skip
    assert row.report["usage"] == {"seconds": 480.0, "mem_peak_mb": 300}
    assert (row.user, row.project, row.nodes) == (done.user, done.spec.project, row.nodes)
    assert rows[live.run_id].ended_at is None

    assert [row.run_id for row in ledger.used(run_id=live.run_id)] == [live.run_id]
    assert ledger.used(run_id="nothing-like-it") == []
    assert [row.run_id for row in ledger.used(since=at(70))] == [live.run_id]
    assert ledger.used(filters={"user_name": "somebody-else"}) == []
    mine = {"user_name": done.user, "project": done.spec.project}
    assert len(ledger.used(since=at(0), filters=mine)) == 2
