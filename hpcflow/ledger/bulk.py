"""Insert many rows into a table at once.

SQLite takes them one by one. Postgres takes all of them in one statement, as one JSON text, which
costs server and client much less.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from hpcflow.ledger.codec import columns, encode, kind_of
from hpcflow.ledger.connection import Connection
from hpcflow.ledger.rows import BY_PERSON, ROWS

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


def insert(connection: Connection, table: str, row: Any) -> bool:
    """Insert one row; return False if a row with its key exists."""
    sql = f"{_insert(table)} {_marks(table)} ON CONFLICT DO NOTHING"
    return connection.execute(sql, encode(row)).rowcount == 1


def upsert(connection: Connection, table: str, rows: Sequence[Any]) -> None:
    """Insert rows, and replace rows with the same key; the keys of ``rows`` are distinct.

    Of two checkpoint rows for one path, :func:`hpcflow.ledger.fold.outdates` decides which stays.
    """
    if not rows:
        return
    if connection.is_sqlite:
        sql = f"{_insert(table)} {_marks(table)} {_on_conflict(table, _KEYS[table])}"
        connection.execute_many(sql, [encode(row) for row in rows])
        return
    names = columns(ROWS[table])
    # "WHERE true" tells the parser that "ON" does not belong to a join.
    sql = (
        f"{_insert(table)} SELECT {', '.join(_value(table, name) for name in names)} "  # noqa: S608 - our names
        f"FROM {_given(table, names)} WHERE true {_on_conflict(table, (*_KEYS[table], 'owner'))}"
    )
    connection.execute(sql, [_as_json(names, rows)])


def update(connection: Connection, table: str, names: tuple[str, ...], rows: Sequence[Any]) -> None:
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
def _insert(table: str) -> str:
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
