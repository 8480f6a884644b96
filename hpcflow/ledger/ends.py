"""Query recent attempts of all users: their ends by node, and their run times. Read-only.

The index of runs by state and last record finds the few relevant runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import accumulate
from typing import Any, Final

from hpcflow.clock import to_text
from hpcflow.ledger.clauses import marks, same_run, without_spoofed
from hpcflow.ledger.codec import columns, decode_sound, selected
from hpcflow.ledger.connection import Connection
from hpcflow.ledger.rows import JSON, TIME, AttemptRow, RunRow
from hpcflow.model.state import Cause, RunState

#: More than a large site has in days; the query takes a quarter of a second at most.
MOST_ENDS: Final = 2000
#: An end with more nodes says too little about each of them.
MOST_NODES: Final = 1000
#: Most nodes in all, those of the newest ends. Rows of other roles could name any number.
MOST_NODES_IN_ALL: Final = 20_000
#: The newest attempts that an average run time is computed from.
_MOST_ATTEMPTS: Final = 2000


@dataclass(frozen=True)
class End:
    """The end of one attempt.

    Attributes:
        site: as the run names it; node names of different sites are unrelated.
        nodes: all nodes of the attempt; empty if there were more than :data:`MOST_NODES`, or more
            than :data:`MOST_NODES_IN_ALL` with all newer ends.
        reached: the last known train step.
        has_saved: whether it made a checkpoint.
        counted_from: number of the run's first attempt after the last `resume` or `release`.
        user: the run's user, as the run states.
    """

    site: str
    run_id: str
    attempt: int
    partition: str | None
    nodes: tuple[str, ...]
    cause: Cause
    ended_at: datetime
    reached: int | None = None
    has_saved: bool = False
    counted_from: int = 1
    user: str = ""


@dataclass(slots=True)
class _EndRow:
    """The columns of an end; ``journal`` is the run's ``journal``."""

    site: str
    user_name: str
    run_id: str
    attempt: int
    partition: str | None
    cause: str
    nodes: list[str] = field(metadata=JSON)
    ended_at: datetime = field(metadata=TIME)
    report: dict[str, Any] = field(metadata=JSON)
    journal: dict[str, Any] = field(metadata=JSON)


_COLUMNS: Final = columns(_EndRow)
#: Columns of the run -> their names there.
_OF_RUN: Final = {"site": "site", "user_name": "user_name", "journal": "journal"}


def ends(
    connection: Connection, causes: Iterable[Cause], *, since: datetime, until: datetime
) -> list[End]:
    """Return the newest ends of these causes between two times, of all users' runs."""
    states = [state.value for state in RunState]
    wanted = [Cause(cause).value for cause in causes]
    what, of_run = _selected(connection.url.kind), same_run(connection, "attempt")
    spoofed = without_spoofed(connection, "run", everyone=True)
    sql = (
        f"SELECT {what} FROM run JOIN attempt ON {of_run} "  # noqa: S608 - our names, and marks
        f"WHERE run.state IN ({marks(states)}) AND run.journal_at >= ? "
        f"AND attempt.cause IN ({marks(wanted)}) "
        f"AND attempt.ended_at >= ? AND attempt.ended_at <= ?{spoofed} "
        f"ORDER BY attempt.ended_at DESC, attempt.run_id, attempt.attempt LIMIT {MOST_ENDS}"
    )
    first, last = to_text(since), to_text(until)
    values = [*states, first, *wanted, first, last]
    with connection.transaction(write=False, everyone=True):
        rows = connection.rows(sql, values)
    found = decode_sound(_EndRow, _COLUMNS, rows, _end, connection.left_out)
    in_all = accumulate(len(end.nodes) for end in found)
    return [
        end if count <= MOST_NODES_IN_ALL else replace(end, nodes=())
        for end, count in zip(found, in_all, strict=True)
    ]


def _selected(connection_kind: str) -> str:
    return ", ".join(
        selected(connection_kind, RunRow, (_OF_RUN[name],), "run", everyone=True)
        if name in _OF_RUN
        else selected(connection_kind, AttemptRow, (name,), "attempt", everyone=True)
        for name in _COLUMNS
    )


def _end(
    site: str,
    user_name: str,
    run_id: str,
    attempt: int,
    partition: str | None,
    cause: str,
    nodes: list[str],
    ended_at: datetime,
    report: dict[str, Any],
    journal: dict[str, Any],
) -> End:
    return End(
        site=site,
        run_id=run_id,
        attempt=attempt,
        partition=partition,
        nodes=tuple(nodes) if len(nodes) <= MOST_NODES else (),
        cause=Cause(cause),
        ended_at=ended_at,
        reached=_number(report.get("train_step", report.get("saved"))),
        has_saved="saved" in report,
        counted_from=_number(journal.get("counted_from")) or 1,
        user=user_name,
    )


def _number(value: object) -> int | None:
    """Return ``value`` if it is an integer; other roles' rows may hold anything."""
    return value if type(value) is int else None


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


_TIMES: Final = columns(_Attempt)


def observed(
    connection: Connection,
    causes: frozenset[Cause],
    *,
    site: str,
    partition: str,
    since: datetime,
    now: datetime,
) -> Observed:
    """Return the run times of all users' attempts in a partition since then, and their ends."""
    states = [state.value for state in RunState]
    what = selected(connection.url.kind, _Attempt, _TIMES, "attempt", everyone=True)
    sql = (
        f"SELECT {what} FROM run JOIN attempt ON {same_run(connection, 'attempt')} "  # noqa: S608 - our names, and marks
        f"WHERE run.state IN ({marks(states)}) AND run.journal_at >= ? AND run.site = ? "
        "AND attempt.partition = ? AND attempt.started_at IS NOT NULL"
        f"{without_spoofed(connection, 'run', everyone=True)} "
        f"ORDER BY attempt.started_at DESC LIMIT {_MOST_ATTEMPTS}"
    )
    with connection.transaction(write=False, everyone=True):
        rows = connection.rows(sql, [*states, to_text(since), site, partition])
    running_s, count = 0.0, 0
    for attempt in decode_sound(_Attempt, _TIMES, rows, _Attempt, connection.left_out):
        begin, end = max(attempt.started_at, since), min(attempt.ended_at or now, now)
        running_s += max(0.0, (end - begin).total_seconds())
        if end >= since and attempt.cause in causes:  # a Cause equals its word
            count += 1
    return Observed(running_s, count)
