"""Query how long attempts run in a partition, and how often they end unplanned. Read-only."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from hpcflow.clock import to_text
from hpcflow.ledger.clauses import same_run, without_spoofed
from hpcflow.ledger.codec import columns, decode_sound, selected
from hpcflow.ledger.connection import Connection
from hpcflow.ledger.rows import TIME
from hpcflow.model.state import Cause, RunState

_MOST: Final = 2000


@dataclass(frozen=True)
class Observed:
    """Run time of attempts in a partition, summed, and the number of their ends of some kind."""

    running_s: float = 0.0
    ends: int = 0


@dataclass(slots=True)
class _Attempt:
    run_id: str
    cause: str | None
    started_at: datetime = field(metadata=TIME)
    ended_at: datetime | None = field(metadata=TIME)


_COLUMNS: Final = columns(_Attempt)


def observed(
    connection: Connection,
    causes: frozenset[Cause],
    *,
    site: str,
    partition: str,
    since: datetime,
    now: datetime,
) -> Observed:
    """Return run time and ends of all users' attempts in a partition since then."""
    states = [state.value for state in RunState]
    marks = ", ".join("?" * len(states))
    what = selected(connection.url.kind, _Attempt, _COLUMNS, "attempt", everyone=True)
    # The index of runs by state and last record finds the runs with news.
    sql = (
        f"SELECT {what} FROM run JOIN attempt ON {same_run(connection, 'attempt')} "  # noqa: S608 - our names, and marks
        f"WHERE run.state IN ({marks}) AND run.journal_at >= ? AND run.site = ? "
        "AND attempt.partition = ? AND attempt.started_at IS NOT NULL"
        f"{without_spoofed(connection, 'run', everyone=True)} "
        f"ORDER BY attempt.started_at DESC LIMIT {_MOST}"
    )
    with connection.transaction(write=False, everyone=True):
        rows = connection.rows(sql, [*states, to_text(since), site, partition])
    running_s, ends = 0.0, 0
    for attempt in decode_sound(_Attempt, _COLUMNS, rows, _Attempt, connection.left_out):
        begin, end = max(attempt.started_at, since), min(attempt.ended_at or now, now)
        running_s += max(0.0, (end - begin).total_seconds())
        if end >= since and attempt.cause in causes:  # a Cause equals its word
            ends += 1
    return Observed(running_s, ends)
