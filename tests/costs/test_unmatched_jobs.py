"""Which records of accounting are no attempt's."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from hpcflow.costs.audit import unmatched_jobs
from hpcflow.ledger.rows import JobRow
from hpcflow.model.state import AttemptState
from hpcflow.schedulers.base import JobInfo

BEGIN = datetime(2026, 7, 1, tzinfo=timezone.utc)
NAME = "a-20260701-abcdefgh:1"


def life(hours: float) -> JobInfo:
    """A record of the one job, submitted then."""
    at = BEGIN + timedelta(hours=hours)
    return JobInfo(
        "7", NAME, "COMPLETED", AttemptState.ENDED, submitted_at=at, ended_at=at, elapsed_s=60
    )


def test_each_life_that_none_was_submitted_with_is_listed_where_some_came_twice() -> None:
    attempt = JobRow("a-20260701-abcdefgh", 1, "7", NAME, "here", BEGIN)
    found = unmatched_jobs([life(0), life(0), life(1), life(2)], [attempt])
    assert [each.job.submitted_at for each in found] == [
        BEGIN + timedelta(hours=1),
        BEGIN + timedelta(hours=2),
    ]
    assert unmatched_jobs([life(0), life(0)], [attempt]) == []
