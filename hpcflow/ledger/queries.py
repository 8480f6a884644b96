"""Queries of the ledger: ids, live attempts, due actions and bills. Read-only.

In a shared ledger a query reads the rows of this role, unless ``everyone`` is set.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from hpcflow.clock import to_text
from hpcflow.ledger.clauses import LIVE, among, marks
from hpcflow.ledger.codec import columns, decode_sound, selected
from hpcflow.ledger.connection import Connection
from hpcflow.ledger.rows import (
    AttemptRow,
    DueBill,
    HowFar,
    RunningRow,
    RunRow,
)
from hpcflow.ledger.run_queries import ATTEMPT, attempt_view, columns_of, select
from hpcflow.model import lost_journal
from hpcflow.model.next_action import HELD, RESUBMIT, STOP
from hpcflow.model.state import AttemptState, RunState
from hpcflow.model.views import AttemptView, LiveRun

#: Time after the last journal record in which more lines may appear: the job is still completing,
#: and file systems show another machine's writes late.
SETTLING = timedelta(minutes=10)

#: A later time may come from a wrong clock; it does not delay an action.
_TOO_FAR: Final = timedelta(days=1)
#: The same for a bill, which is requested for a week.
_BILLS_WAIT: Final = timedelta(days=30)
#: Bills of one run per query; the next query continues.
_MAX_BILLS_PER_RUN: Final = 50

#: The rule by which an older hpcflow ended an attempt whose run directory was gone, in the ledger
#: alone.
OLDER_PURGED_RULE: Final = "its run directory is gone"


_ATTEMPT_KNOWN: Final = ("run_id", "attempt")
_OFFSET: Final = ("run_id", "path", "offset_bytes")
_LIVE_RUN: Final = columns_of(LiveRun)
#: Enough for a warning.
_MAX_REPORTED: Final = 10
#: Evaluated per attempt, because there are far more runs than live attempts.
_OF_USER: Final = (
    "EXISTS (SELECT 1 FROM run WHERE run.run_id = attempt.run_id AND run.user_name = ?)"
)


def live_attempts(connection: Connection, *, user: str) -> list[tuple[LiveRun, AttemptView]]:
    """Return the user's attempts that are neither ended nor withdrawn, with their runs."""
    is_live = f"state IN ({marks(LIVE)})"
    with connection.transaction(write=False):
        where = f"{is_live} AND {_OF_USER} ORDER BY run_id, attempt"
        live = select(connection, "attempt", ATTEMPT, where, [*LIVE, user])
        found = _runs_with(connection, _LIVE_RUN, is_live, LIVE, user)
    left_out = connection.left_out
    by_id = {
        view.run_id: view for view in decode_sound(RunRow, _LIVE_RUN, found, LiveRun, left_out)
    }
    attempts = decode_sound(AttemptRow, ATTEMPT, live, attempt_view, left_out)
    return [(by_id[each.run_id], each) for each in attempts if each.run_id in by_id]


def running(connection: Connection, *, user: str) -> list[RunningRow]:
    """Return the user's running attempts, with the reports of their jobs."""
    of_run_names, names = (
        ("run_id", "site", "run_dir"),
        ("run_id", "attempt", "raw_state", "report"),
    )
    does_run, states = "state = ?", [AttemptState.RUNNING.value]
    where = f"{does_run} AND {_OF_USER} ORDER BY run_id, attempt"
    with connection.transaction(write=False):
        attempts = select(connection, "attempt", names, where, [*states, user])
        found = _runs_with(connection, of_run_names, does_run, states, user)
    by_id = _by_id(connection, of_run_names, found)
    rows = decode_sound(AttemptRow, names, attempts, _as_tuple, connection.left_out)
    return [RunningRow(*by_id[said[0]], *said[1:]) for said in rows if said[0] in by_id]


def owners(
    connection: Connection, run_ids: Iterable[str], *, everyone: bool = False
) -> dict[str, str]:
    """Return run id -> user; unknown runs are missing."""
    found: dict[str, str] = {}
    names = ("run_id", "user_name")
    for is_one, ids in among(connection, run_ids):
        with connection.transaction(write=False, everyone=everyone):
            found.update(
                select(connection, "run", names, f"run_id {is_one}", ids, everyone=everyone)
            )
    return found


def run_ids(connection: Connection, *, user: str | None = None) -> set[str]:
    """Return the ids of all runs, or of one user's."""
    if user is None:
        return set(_ids(connection, "1 = 1", []))
    return set(_ids(connection, "user_name = ?", [user]))


def trial_runs(connection: Connection, sweep_id: str, name: str, *, user: str) -> list[str]:
    """Return the ids of a user's runs that are trials of a sweep; they begin with its name."""
    where, values = "parent_sweep = ? AND user_name = ?", [sweep_id, user]
    if connection.is_sqlite:  # by the key: each sweep asks this in every round
        where += " AND run_id >= ? AND run_id < ?"
        values += [f"{name}-t", f"{name}-u"]
    return _ids(connection, f"{where} ORDER BY run_id", values)


def unsent(connection: Connection, user: str | None = None) -> list[tuple[str, str]]:
    """Return id and run directory of all runs, or of one user's, that never had a job."""
    names = ("run_id", "run_dir")
    where, values = ("", []) if user is None else (" AND user_name = ?", [user])
    found = select(connection, "run", names, f"job_id IS NULL{where}", values)
    return decode_sound(RunRow, names, found, _as_tuple, connection.left_out)


def unsettled(connection: Connection, now: datetime) -> set[str]:
    """Return the ids of the runs whose files may still grow: not at rest, or only briefly."""
    moving = (RunState.SUBMITTING.value, RunState.QUEUED.value, RunState.RUNNING.value)
    where = f"state IN ({marks(moving)}) OR journal_at > ?"
    fresh = to_text(now - SETTLING)
    # The first record of a new run may not be visible yet.
    where += " OR (journal_at IS NULL AND created_at > ?)"
    return set(_ids(connection, where, [*moving, fresh, fresh]))


def ended_by_older(connection: Connection) -> set[str]:
    """Return the ids of the runs with an end that only the ledger has."""
    where = "run_id IN (SELECT run_id FROM attempt WHERE rule = ?)"
    return set(_ids(connection, where, [OLDER_PURGED_RULE]))


def how_far(connection: Connection, run_ids: Sequence[str]) -> dict[str, HowFar]:
    """Return how far the files of these runs were read; unknown runs are missing."""
    found: dict[str, HowFar] = {}
    for is_one, ids in among(connection, run_ids):
        with connection.transaction(write=False):
            attempts = select(connection, "attempt", _ATTEMPT_KNOWN, f"run_id {is_one}", ids)
            sources = select(connection, "source", _OFFSET, f"run_id {is_one}", ids)
        for run_id, path, offset_bytes in sources:
            found.setdefault(run_id, HowFar()).offsets[path] = offset_bytes
        for run_id, attempt in attempts:
            found.setdefault(run_id, HowFar()).attempts.append(attempt)
    return found


def bytes_read(connection: Connection, run_ids: Sequence[str]) -> dict[str, int]:
    """Return run id -> number of bytes read, locked until the transaction ends.

    Unknown runs are missing.
    """
    lock = "" if connection.is_sqlite else " FOR NO KEY UPDATE"  # SQLite has one writer at a time
    found: dict[str, int] = {}
    for is_one, ids in among(connection, run_ids):
        sql = f"SELECT run_id, bytes_read FROM run WHERE run_id {is_one} ORDER BY run_id{lock}"  # noqa: S608 - our marks
        found.update(connection.rows(sql, ids))
    return found


def at_work(connection: Connection, *, user: str, limit: int) -> list[tuple[str, int]]:
    """Return run directory and number of at most ``limit`` running or completing attempts."""
    states = (AttemptState.RUNNING.value, AttemptState.COMPLETING.value)
    sql = (
        f"SELECT {selected(connection.url.kind, RunRow, ('run_dir',), 'run')}, attempt.attempt "  # noqa: S608 - our names, and marks
        "FROM attempt JOIN run ON run.run_id = attempt.run_id "
        f"WHERE run.user_name = ? AND attempt.state IN ({marks(states)}) LIMIT ?"
    )
    return [(run_dir, number) for run_dir, number in connection.rows(sql, [user, *states, limit])]


#: Neither held nor stopped.
_NOT_STOPPED: Final = "(next_action IS NULL OR next_action NOT IN (?, ?))"
#: The order of runs: a deferred run follows those that have waited since before.
_OLDEST_WAIT: Final = "COALESCE(next_at, journal_at, created_at), run_id"


def undecided(connection: Connection, now: datetime, *, user: str) -> list[str]:
    """Return the ids of a user's runs that are neither active nor over, and whose time has come.

    The longest wait comes first. A run that is to be resubmitted is always due: its time only
    orders it, and the clock may have been put back since.
    """
    states = (RunState.CREATED.value, RunState.WAITING.value, RunState.FAILED.value)
    where = (
        f"user_name = ? AND state IN ({marks(states)}) "
        "AND (next_at IS NULL OR next_at <= ? OR next_at > ? OR next_action = ?) "
        f"AND ({_NOT_STOPPED} OR (next_action = ? AND next_rule = ?)) "
        f"ORDER BY {_OLDEST_WAIT}"
    )
    lost = (STOP, lost_journal.RULE)
    moments = (to_text(now), to_text(now + _TOO_FAR))
    values = [user, *states, *moments, RESUBMIT, HELD, STOP, *lost]
    return _ids(connection, where, values)


def alive_due(connection: Connection, action: str, *, user: str) -> list[str]:
    """Return the ids of a user's runs with this next action of which a job may be alive.

    They are found by their state, which few runs have.
    """
    states = (RunState.SUBMITTING.value, RunState.QUEUED.value, RunState.RUNNING.value)
    where = f"user_name = ? AND state IN ({marks(states)}) AND next_action = ? ORDER BY run_id"
    return _ids(connection, where, [user, *states, action])


def resting_at(connection: Connection, *, user: str, since: datetime) -> list[str]:
    """Return the sites of the user's runs that came to rest uncompleted since then."""
    states = (RunState.WAITING.value, RunState.FAILED.value, RunState.CANCELLED.value)
    sql = (
        f"SELECT DISTINCT {selected(connection.url.kind, RunRow, ('site',))} FROM run "  # noqa: S608 - our names, and marks
        f"WHERE user_name = ? AND state IN ({marks(states)}) "
        "AND job_id IS NOT NULL AND journal_at > ?"
    )
    return [site for (site,) in connection.rows(sql, [user, *states, to_text(since)])]


def of_others(connection: Connection, *, user: str) -> dict[str, str]:
    """Return run id -> user for other users' runs that are not completed or cancelled."""
    names = ("run_id", "user_name")
    over = (RunState.COMPLETED.value, RunState.CANCELLED.value)
    states = [each.value for each in RunState if each.value not in over]
    where = f"state IN ({marks(states)}) AND user_name <> ?"
    return dict(select(connection, "run", names, where, [*states, user]))


def due(connection: Connection, action: str, now: datetime, *, user: str) -> list[str]:
    """Return the ids of the user's runs whose next action is ``action``, longest wait first."""
    where = (
        "user_name = ? AND next_action = ? AND (next_at IS NULL OR next_at <= ?) "
        f"ORDER BY {_OLDEST_WAIT}"
    )
    return _ids(connection, where, [user, action, to_text(now)])


def due_bills(connection: Connection, now: datetime, *, user: str, limit: int) -> list[DueBill]:
    """Return a user's ended attempts for which accounting must be queried now.

    The newest come first, because old ones may never get a bill. The number per run is limited: the
    journal of a run from a store can name any number, and must not delay other runs.
    """
    names, of_run_names = columns(AttemptRow), ("run_id", "site", "run_dir", "partition")
    is_due = "bill_due_at IS NOT NULL AND (bill_due_at <= ? OR bill_due_at > ?)"
    values = [to_text(now), to_text(now + _BILLS_WAIT)]
    # Bills due in the future come last: a clock that was ahead set their times.
    order = "bill_due_at > ?, bill_due_at DESC"
    # `|| ''` keeps SQLite from the index on run_id, with which it would read all attempts.
    newest = (
        "SELECT run_id, attempt, row_number() OVER (PARTITION BY run_id || '' "  # noqa: S608 - marks
        f"ORDER BY {order}) AS place FROM attempt WHERE {is_due} AND {_OF_USER}"
    )
    some = f"SELECT run_id, attempt FROM ({newest}) AS placed WHERE place <= ?"  # noqa: S608 - marks
    where = f"(run_id, attempt) IN ({some}) ORDER BY {order} LIMIT ?"
    ahead = to_text(now)
    wanted = [ahead, *values, user, _MAX_BILLS_PER_RUN, ahead, limit]
    with connection.transaction(write=False):
        rows = select(connection, "attempt", names, where, wanted)
        found = _runs_with(connection, of_run_names, is_due, values, user) if rows else []
    by_id = _by_id(connection, of_run_names, found)
    return [
        DueBill(row, site, run_dir, partition, row.journal.get("accounted", {}).get("tries", 0))
        for row in decode_sound(AttemptRow, names, rows, AttemptRow, connection.left_out)
        if row.run_id in by_id
        for _, site, run_dir, partition in [by_id[row.run_id]]
    ]


def waiting_for(connection: Connection, reason: str, *, user: str) -> list[str]:
    """Return the ids of the user's runs with an attempt that is pending for this reason."""
    of_attempt = "SELECT run_id FROM attempt WHERE state = ? AND reason = ?"
    where = f"run_id IN ({of_attempt}) AND user_name = ? ORDER BY run_id"
    return _ids(connection, where, [AttemptState.QUEUED.value, reason, user])


def pending_for_nodes(connection: Connection, *, user: str) -> list[str]:
    """Return the ids of some of the user's runs that are pending for unavailable nodes."""
    of_attempt = (
        "SELECT run_id FROM attempt WHERE state = ? "
        "AND ((reason LIKE ? AND reason NOT LIKE ?) OR reason LIKE ?) "
        "AND CAST(journal AS TEXT) LIKE ?"
    )
    where = f"run_id IN ({of_attempt}) AND user_name = ? ORDER BY run_id LIMIT ?"
    # Slurm has two reasons for it, with blanks or with underscores. Nodes that are reserved for a
    # maintenance or for another job exist, so they do not count.
    reasons = ("ReqNodeNotAvail%", "ReqNodeNotAvail%eserved_for%", "Nodes_required%")
    values = [AttemptState.QUEUED.value, *reasons, '%"excluded"%', user, _MAX_REPORTED]
    return _ids(connection, where, values)


def _by_id(
    connection: Connection, names: tuple[str, ...], found: list[Any]
) -> dict[str, tuple[Any, ...]]:
    """Return run id -> the columns of that run, of which the run id is the first."""
    runs = decode_sound(RunRow, names, found, _as_tuple, connection.left_out)
    return {run[0]: run for run in runs}


def _as_tuple(*values: Any) -> tuple[Any, ...]:
    return values


def _runs_with(
    connection: Connection,
    names: tuple[str, ...],
    of_attempt: str,
    values: Sequence[object],
    user: str,
) -> list[Any]:
    inner = f"SELECT run_id FROM attempt WHERE {of_attempt}"  # noqa: S608 - our names, and marks
    where = f"user_name = ? AND run_id IN ({inner})"
    return select(connection, "run", names, where, [user, *values])


def _ids(connection: Connection, where: str, values: Sequence[object]) -> list[str]:
    return [run_id for (run_id,) in select(connection, "run", ("run_id",), where, values)]
