"""Rows <-> what a database stores, by the kinds that ``rows.py`` gives its fields.

A time is written as RFC 3339 text with ``Z``: SQLite keeps it like that, and so it sorts; Postgres
makes a ``timestamptz`` of it. JSON is text, money is decimal text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from datetime import datetime, timezone
from functools import lru_cache
from typing import Any, Final, TypeVar

from hpcflow.clock import from_text, to_text

Row = TypeVar("Row")


@lru_cache(maxsize=64)
def columns(row_type: Any) -> tuple[str, ...]:
    """Names of the columns of a row type, in order."""
    return tuple(field.name for field in fields(row_type))


@lru_cache(maxsize=64)
def _kinds(row_type: Any) -> dict[str, str]:
    return {field.name: field.metadata.get("kind", "") for field in fields(row_type)}


def encode(row: Any) -> list[object]:
    """The values of ``row`` as parameters of a statement, in the order of :func:`columns`."""
    values: list[object] = []
    for name, kind in _kinds(row.__class__).items():
        value = getattr(row, name)
        if value is not None:
            if kind == "json":
                value = json.dumps(value)
            elif kind == "time":
                value = to_text(value)
        values.append(value)
    return values


def decoders(row_type: Any, names: tuple[str, ...]) -> list[tuple[int, Callable[[Any], Any]]]:
    """Position and decoder of those of the columns ``names`` that are not read as they are."""
    kinds = _kinds(row_type)
    return [
        (index, _DECODERS[kinds[name]])
        for index, name in enumerate(names)
        if kinds[name] in _DECODERS
    ]


def decode_all(
    row_type: Any, names: tuple[str, ...], records: list[Any], make: Callable[..., Row]
) -> list[Row]:
    """``make(*values)`` for every record of a query for the columns ``names``."""
    todo = decoders(row_type, names)
    made = []
    for record in records:
        values = list(record)
        for index, decode in todo:
            if values[index] is not None:
                values[index] = decode(values[index])
        made.append(make(*values))
    return made


def _decode_time(value: str | datetime) -> datetime:
    return from_text(value) if isinstance(value, str) else value.astimezone(timezone.utc)


_DECODERS: Final[dict[str, Callable[[Any], Any]]] = {
    "time": _decode_time,
    "json": json.loads,
    "money": str,
    "bool": bool,
}
