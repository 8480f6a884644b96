"""Write changes of runs: each wholly or not at all.

SQLite takes rows one by one. Postgres takes all rows of a table in one statement, as one JSON
text, which costs server and client much less.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from enum import Enum
from functools import cache
from itertools import chain
from typing import Any, Final

from hpcflow.errors import LedgerValueError
from hpcflow.ledger import queries
from hpcflow.ledger.codec import columns, decode_sound, encode, kind_of, misfit, selected
from hpcflow.ledger.connection import Connection
from hpcflow.ledger.derive import OF_PROGRESS
from hpcflow.ledger.rows import BY_PERSON, ROWS, AttemptRow, BestBy, Change, CheckpointRow, RunRow

#: In Postgres the owner of a row is also a part of its key.
_KEYS: Final = {
    "run": ("run_id",),
    "attempt": ("run_id", "attempt"),
    "checkpoint": ("run_id", "path"),
    "mirrored": ("run_id", "path"),
    "source": ("run_id", "path"),
}
#: The same as :func:`hpcflow.ledger.fold.outdates`.
_OUTDATES: Final = (
    "excluded.attempt > checkpoint.attempt OR (excluded.attempt = checkpoint.attempt "
    f"AND (excluded.removed = '{BY_PERSON}' OR checkpoint.removed IS NULL "
    f"OR checkpoint.removed <> '{BY_PERSON}'))"
)
#: Kind of a column -> the Postgres type of its value in the JSON text. A JSON column is passed as
#: text, so it stays as written.
_TYPES: Final = {
    "str": "text",
    "int": "bigint",
    "float": "float8",
    "bool": "boolean",
    "json": "text",
    "time": "timestamptz",
    "money": "numeric",
}


def write(connection: Connection, changes: Sequence[Change]) -> list[str]:
    """Write changes; see :meth:`hpcflow.ledger.store.Ledger.apply`."""
    with connection.transaction(write=True):
        mine = _claim(connection, changes)
        for change in mine:
            if change.from_zero:
                for table in ("attempt", "checkpoint", "mirrored", "source"):
                    sql = f"DELETE FROM {table} WHERE run_id = ?"  # noqa: S608 - our names, and marks
                    connection.execute(sql, [change.run.run_id])
        of_kind: dict[_Kind, list[Change]] = {kind: [] for kind in _Kind}
        for change in mine:
            of_kind[_kind(change)].append(change)
        for kind, names in _WRITTEN.items():
            _update(connection, "run", names, [change.run for change in of_kind[kind]])
        progress = of_kind.pop(_Kind.PROGRESS)
        _upsert(connection, "attempt", _attempts(chain.from_iterable(of_kind.values())))
        _update(connection, "attempt", ("report",), _attempts(progress))
        _upsert(connection, "checkpoint", [row for change in mine for row in change.checkpoints])
        for change in mine:
            if change.best_by is not None:
                _mark_best(connection, change.run.run_id, change.best_by)
        _upsert(connection, "mirrored", [row for change in mine for row in change.mirrored])
        _upsert(connection, "source", [row for change in mine for row in change.sources])
    written = {id(change) for change in mine}
    return [change.run.run_id for change in changes if id(change) not in written]


def value_error(changes: Sequence[Change], error: Exception) -> LedgerValueError:
    """Return an error that names the run and the column of the value that was not stored."""
    for change in changes:
        tables = (change.attempts, change.checkpoints, change.mirrored, change.sources)
        for row in chain([change.run], *tables):
            if found := misfit(row):
                run_id, kind = change.run.run_id, type(row).__name__.removesuffix("Row").lower()
                return LedgerValueError(
                    f"the ledger cannot store the column {found[0]} of {run_id}, table {kind}: "
                    f"{found[1]}",
                    next_action=f"look at the files of the run: hpcflow history {run_id}",
                )
    ids = ", ".join(change.run.run_id for change in changes[:3])
    return LedgerValueError(f"the ledger cannot store a value of {ids}: {str(error)[:120]}")


def _claim(connection: Connection, changes: Sequence[Change]) -> list[Change]:
    """Lock the runs, and return the changes of those that no process wrote to since the read.

    All writers lock in one order, known runs first, so there is no deadlock.
    """
    is_known = {change.run.run_id: change.bytes_before is not None for change in changes}
    found = queries.bytes_read(connection, [run_id for run_id, known in is_known.items() if known])
    mine = []
    for change in sorted(changes, key=lambda change: change.run.run_id):
        if change.bytes_before is None:
            is_mine = _insert(connection, "run", change.run)
        else:
            is_mine = found.get(change.run.run_id) == change.bytes_before
        if is_mine:
            mine.append(change)
    return mine


def _mark_best(connection: Connection, run_id: str, by: BestBy) -> None:
    names = columns(CheckpointRow)
    what = selected(connection.url.kind, CheckpointRow, names)
    sql = f"SELECT {what} FROM checkpoint WHERE run_id = ? AND removed IS NULL"  # noqa: S608 - our names
    found = connection.rows(sql, [run_id])
    rows = decode_sound(CheckpointRow, names, found, CheckpointRow, connection.left_out)
    best = by.find(rows)
    path, value = ("", None) if best is None else (best.path, best.metrics[by.metric])
    sql = "UPDATE checkpoint SET is_best = (path = ?) WHERE run_id = ? AND is_best <> (path = ?)"
    connection.execute(sql, [path, run_id, path])
    connection.execute("UPDATE run SET best_metric = ? WHERE run_id = ?", [value, run_id])


class _Kind(Enum):
    NEW = "new"
    REBUILT = "rebuilt"
    ON = "on"
    PROGRESS = "progress"


def _kind(change: Change) -> _Kind:
    if change.bytes_before is None:
        return _Kind.NEW
    if change.from_zero:
        return _Kind.REBUILT
    return _Kind.PROGRESS if change.is_progress else _Kind.ON


#: Kind of change -> the columns of a run that it writes. Columns from run.json change only if all
#: files were read again.
_WRITTEN: Final = {
    _Kind.REBUILT: columns(RunRow),
    _Kind.ON: columns(RunRow)[columns(RunRow).index("state") :],
    _Kind.PROGRESS: (*OF_PROGRESS, "bytes_read"),
}


def _attempts(changes: Iterable[Change]) -> list[AttemptRow]:
    return [row for change in changes for row in change.attempts]


def _insert(connection: Connection, table: str, row: Any) -> bool:
    """Insert one row; return False if a row with its key exists."""
    sql = f"{_insert_into(table)} {_marks(table)} ON CONFLICT DO NOTHING"
    return connection.execute(sql, encode(row)).rowcount == 1


def _upsert(connection: Connection, table: str, rows: Sequence[Any]) -> None:
    """Insert rows, and replace rows with the same key; the keys of ``rows`` are distinct.

    Of two checkpoint rows for one path, :func:`hpcflow.ledger.fold.outdates` decides which stays.
    """
    if not rows:
        return
    if connection.is_sqlite:
        sql = f"{_insert_into(table)} {_marks(table)} {_on_conflict(table, _KEYS[table])}"
        connection.execute_many(sql, [encode(row) for row in rows])
        return
    names = columns(ROWS[table])
    # "WHERE true" tells the parser that "ON" does not belong to a join.
    sql = (
        f"{_insert_into(table)} SELECT {', '.join(_value(table, name) for name in names)} "  # noqa: S608 - our names
        f"FROM {_given(table, names)} WHERE true {_on_conflict(table, (*_KEYS[table], 'owner'))}"
    )
    connection.execute(sql, [_as_json(names, rows)])


def _update(
    connection: Connection, table: str, names: tuple[str, ...], rows: Sequence[Any]
) -> None:
    """Write these columns of existing rows; keys do not change."""
    if not rows:
        return
    key = _KEYS[table]
    names = tuple(name for name in names if name not in key)
    if connection.is_sqlite:
        assignments = ", ".join(f"{name} = ?" for name in names)
        marks = " AND ".join(f"{name} = ?" for name in key)
        sql = f"UPDATE {table} SET {assignments} WHERE {marks}"  # noqa: S608 - our names, and marks
        connection.execute_many(sql, [encode(row, (*names, *key)) for row in rows])
        return
    assignments = ", ".join(f"{name} = {_value(table, name)}" for name in names)
    same = " AND ".join(f"{table}.{name} = given.{name}" for name in key)
    sql = f"UPDATE {table} SET {assignments} FROM {_given(table, (*names, *key))} WHERE {same}"  # noqa: S608 - our names
    connection.execute(sql, [_as_json((*names, *key), rows)])


def _as_json(names: tuple[str, ...], rows: Sequence[Any]) -> str:
    return json.dumps([dict(zip(names, encode(row, names), strict=True)) for row in rows])


@cache
def _insert_into(table: str) -> str:
    return f"INSERT INTO {table} ({', '.join(columns(ROWS[table]))})"


@cache
def _marks(table: str) -> str:
    return f"VALUES ({', '.join('?' * len(columns(ROWS[table])))})"


@cache
def _on_conflict(table: str, key: tuple[str, ...]) -> str:
    names = [name for name in columns(ROWS[table]) if name not in key]
    assignments = ", ".join(f"{name} = excluded.{name}" for name in names)
    newer = f" WHERE {_OUTDATES}" if table == "checkpoint" else ""
    return f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {assignments}{newer}"


@cache
def _given(table: str, names: tuple[str, ...]) -> str:
    """Return SQL for the rows in a JSON text, for Postgres."""
    typed = ", ".join(f"{name} {_TYPES[kind_of(ROWS[table], name)]}" for name in names)
    return f"json_to_recordset(?) AS given({typed})"


def _value(table: str, name: str) -> str:
    return f"given.{name}" + ("::json" if kind_of(ROWS[table], name) == "json" else "")
