"""Convert rows to and from database values, by the kinds of the fields in ``rows.py``.

A time is RFC 3339 text with ``Z``: SQLite stores and sorts it as text; Postgres converts it to
``timestamptz``. JSON is text, money is decimal text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, fields
from datetime import datetime, timezone
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from math import isfinite
from operator import attrgetter
from typing import Any, Final, TypeVar

from hpcflow.clock import from_text, to_text
from hpcflow.ledger.rows import PartRow

Row = TypeVar("Row")


class DamagedError(ValueError):
    """The database holds a value that hpcflow never writes: its file or a row is damaged."""


#: The limits of a text and of a JSON value, which hpcflow never exceeds. The server sends no longer
#: value: other users may have written gigabytes.
_MAX_TEXT: Final = 100_000
_MAX_JSON: Final = 1 << 20
#: The same for rows of other roles, of which a query may read many.
_MAX_TEXT_OF_OTHERS: Final = 5_000
_MAX_JSON_OF_OTHERS: Final = 16_000
#: JSON that is kept decoded for each row: in Python it takes twenty times as much memory.
_MAX_KEPT_OF_OTHERS: Final = {"tags": 4_000, "parts": 4_000, "metrics": 8_000}
_JSON_MEMORY_FACTOR: Final = 20
#: Memory for all rows of one other role in a query that reads any number of them.
_MAX_OF_ROLE: Final = 1 << 28
#: Columns with their own limits. A run id is a name, a date and eight letters. The JSON columns are
#: as large as a config allows, and are read only for the user's own runs.
_MAX_OF_COLUMN: Final = {
    "run_id": 1000,
    "path": 10_000,
    "command": 16 << 20,
    "params": 16 << 20,
    "data": 16 << 20,
}
#: As in :func:`hpcflow.ledger.derive.money`: sums are shown to eight places of 28 digits.
_MOST_MONEY: Final = Decimal(10**19)
#: Hours or seconds that reports sum up; no cluster has as many.
_SUMMED: Final = ("gpu_hours", "elapsed_s", "wasted_s")
_MOST_HOURS: Final = 1e18


#: Rows that are decoded at once, which bounds the memory.
_DECODED_AT_ONCE: Final = 5000


@lru_cache(maxsize=64)
def columns(row_type: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(row_type))


def kind_of(row_type: Any, name: str) -> str:
    """Return ``str``, ``int``, ``float``, ``bool``, ``json``, ``time`` or ``money``."""
    kind = _kinds(row_type)[name]
    return kind or str(_types(row_type)[name]).removesuffix(" | None")


@lru_cache(maxsize=64)
def _kinds(row_type: Any) -> dict[str, str]:
    return {field.name: field.metadata.get("kind", "") for field in fields(row_type)}


@lru_cache(maxsize=128)
def selected(
    connection_kind: str,
    row_type: Any,
    names: tuple[str, ...],
    table: str = "",
    *,
    everyone: bool = False,
    any_number: bool = False,
) -> str:
    """Return the columns for a SELECT, with NULL for texts that are too long.

    In a shared database, other users may have written gigabytes.

    Args:
        connection_kind: ``sqlite`` or ``postgresql``.
        table: the table of the columns, for a join.
        everyone: also read rows of other roles, with lower limits for their texts.
        any_number: the number of rows is not limited otherwise, so the server sends NULL for the
            texts of a role that has written too much in all.
    """
    fitting = [_fitting(connection_kind, row_type, name, table, everyone) for name in names]
    enough = ""
    if everyone and any_number and connection_kind != "sqlite":
        sizes = " + ".join(
            f"CASE WHEN {fits} THEN octet_length({text}) * {times} ELSE 0 END"
            for name, (text, fits) in zip(names, fitting, strict=True)
            for times in [_JSON_MEMORY_FACTOR if name in _MAX_KEPT_OF_OTHERS else 1]
            if fits
        )
        owner = f"{table}.owner" if table else "owner"
        so_far = f"sum({sizes}) OVER (PARTITION BY {owner} ROWS UNBOUNDED PRECEDING)"
        enough = f" AND ({owner} = current_user OR {so_far} <= {_MAX_OF_ROLE})"
    return ", ".join(
        f"CASE WHEN {fits}{'' if name == 'run_id' else enough} THEN {text} END" if fits else text
        for name, (text, fits) in zip(names, fitting, strict=True)
    )


def _fitting(
    connection_kind: str, row_type: Any, name: str, table: str, everyone: bool
) -> tuple[str, str]:
    """Return SQL for a value, and SQL that checks its length, or an empty text."""
    prefix = f"{table}." if table else ""
    column, kind = prefix + name, kind_of(row_type, name)
    if connection_kind == "sqlite" or kind not in ("str", "json"):
        return column, ""
    is_json, text = kind == "json", f"CAST({column} AS text)"
    most = _MAX_OF_COLUMN.get(name, _MAX_JSON if is_json else _MAX_TEXT)
    size = f"octet_length({text})"  # reads only the header
    if not everyone:
        return text, f"{size} <= {most}"
    usual = _MAX_JSON_OF_OTHERS if is_json else _MAX_TEXT_OF_OTHERS
    of_others = min(most, _MAX_KEPT_OF_OTHERS.get(name, usual))
    # Nearly all texts are short, and then the owner is not looked up.
    own = f"{prefix}owner = current_user AND {size} <= {most}"
    return text, f"({size} <= {of_others} OR {own})"


def encode(row: Any, names: tuple[str, ...] | None = None) -> list[object]:
    """Return the values of ``row`` as parameters of a statement.

    Args:
        names: the columns, at least two; all by default.
    """
    get, todo = _encoders(row.__class__, names)
    values = list(get(row))
    for index, encoder in todo:
        if values[index] is not None:
            values[index] = encoder(values[index])
    return values


@lru_cache(maxsize=64)
def _encoders(
    row_type: Any, names: tuple[str, ...] | None
) -> tuple[Callable[[Any], tuple[Any, ...]], list[tuple[int, Callable[[Any], object]]]]:
    """Return a getter of all columns, and the encoders of some by their index."""
    names = names or columns(row_type)
    kinds = [_kinds(row_type)[name] for name in names]
    todo = [(index, _ENCODERS[kind]) for index, kind in enumerate(kinds) if kind in _ENCODERS]
    return attrgetter(*names), todo


#: Postgres allows neither NaN nor Infinity in JSON, so SQLite must not have them either.
_to_json: Final = json.JSONEncoder(allow_nan=False, default=asdict).encode
_ENCODERS: Final[dict[str, Callable[[Any], object]]] = {"json": _to_json, "time": to_text}
#: 64-bit columns; other whole numbers have 32 bits.
_INT64: Final = ("train_step", "total_train_steps", "size_bytes", "bytes_read", "offset_bytes")


def misfit(row: Any) -> tuple[str, str] | None:
    """Return the first column of ``row`` with a value that no database stores, and why."""
    for name in columns(row.__class__):
        value = getattr(row, name)
        try:
            if value is not None:
                _require_storable(kind_of(row.__class__, name), name, value)
        except (ValueError, ArithmeticError, RecursionError, TypeError) as error:
            return name, f"{type(error).__name__}: {str(error)[:120]}"
    return None


def _require_storable(kind: str, name: str, value: Any) -> None:
    if kind in ("json", "time"):
        value = _ENCODERS[kind](value)
        if kind == "time":
            from_text(value)
    elif kind == "money":
        value = _decode_money(value)
    elif kind == "int":
        bits = 63 if name in _INT64 else 31
        if not -(2**bits) <= value < 2**bits:
            raise ValueError("too large a number")
    elif kind == "float" and not isfinite(value):
        raise ValueError("not a number")
    elif kind == "str":
        value.encode()
        if "\0" in value:
            raise ValueError("a text with a NUL")


def copied(row: Row) -> Row:
    row_type: Any = row.__class__
    get, _ = _encoders(row_type, None)
    made: Row = row_type(*get(row))
    return made


def decode_all(
    row_type: Any, names: tuple[str, ...], records: list[Any], make: Callable[..., Row]
) -> list[Row]:
    """Return ``make(*values)`` for every record of a query for the columns ``names``.

    Raises:
        DamagedError: a value has the wrong type for its column. SQLite does not check types, and a
            damaged byte can turn a text into a number, or break JSON.
    """
    # Decode by column, which is faster. JSON can be large, so it is decoded row by row.
    decoded: list[Iterable[Any]] = []
    for index, name in enumerate(names):
        values = [record[index] for record in records]
        _require_stored(_types(row_type)[name], name, values)
        decoded.append(_decode_column(row_type, name, values))
    try:
        return list(map(make, *decoded))
    except _DECODE_ERRORS as error:
        raise DamagedError(str(error)) from None


_DECODE_ERRORS: Final = (ValueError, OverflowError, RecursionError)


def _decode_column(row_type: Any, name: str, values: list[Any]) -> Iterable[Any]:
    kind = _kinds(row_type)[name]
    if not kind:
        return values
    if kind == "money" and _are_amounts(values):
        return [f"{value:f}" if type(value) is Decimal else value for value in values]
    decode = _JSON[_types(row_type)[name]] if kind == "json" else _DECODERS[kind]
    return _decode_lazily(decode, name, values)


def _decode_lazily(decode: Callable[[Any], Any], name: str, values: Iterable[Any]) -> Iterator[Any]:
    try:
        for value in values:
            yield None if value is None else decode(value)
    except _DECODE_ERRORS as error:
        raise DamagedError(f"column {name}: {error}") from None


def _are_amounts(values: list[Any]) -> bool:
    """Return whether all values are None or summable money. A check per column is faster."""
    try:
        amounts = [Decimal(value) for value in values if value is not None]
        return not amounts or -_MOST_MONEY < min(amounts) <= max(amounts) < _MOST_MONEY
    except InvalidOperation:  # not a number, or NaN, which cannot be compared
        return False


def decode_sound(
    row_type: Any,
    names: tuple[str, ...],
    records: list[Any],
    make: Callable[..., Row],
    left_out: dict[str, str],
) -> list[Row]:
    """Like :func:`decode_all`, without damaged records, which may belong to another user.

    ``left_out`` gets the run id of each, and the reason.
    """
    made: list[Row] = []
    of_run = names.index("run_id")
    for begin in range(0, len(records), _DECODED_AT_ONCE):
        some = records[begin : begin + _DECODED_AT_ONCE]
        try:
            made += decode_all(row_type, names, some, make)
        except DamagedError:
            for record in some:
                try:
                    made += decode_all(row_type, names, [record], make)
                except DamagedError as error:  # noqa: PERF203 - rare
                    left_out.setdefault(str(record[of_run]), str(error))
    return made


@lru_cache(maxsize=64)
def _types(row_type: Any) -> dict[str, str]:
    """Return column -> its Python type as written in ``rows.py``; ``money`` for money."""
    return {
        field.name: str(field.type).replace("str", "money")
        if field.metadata.get("kind") == "money"
        else str(field.type)
        for field in fields(row_type)
    }


def _require_stored(python: str, name: str, values: list[Any]) -> None:
    """Refuse values that no database returns for a column of this type."""
    bare = python.removesuffix(" | None")
    found = set(map(type, values))
    if bare != python:
        found.discard(type(None))
    if not found <= _STORED.get(bare, _AS_TEXT):
        raise DamagedError(f"column {name} has a value that is not of type {bare}")
    if found == _AS_TEXT:
        texts = "".join(filter(None, values))
        if "\0" in texts:
            raise DamagedError(f"column {name} has a text with a NUL")
        most = _MAX_OF_COLUMN.get(name, _MAX_TEXT)
        if bare == "str" and len(texts) > most and max(map(len, filter(None, values))) > most:
            raise DamagedError(f"column {name} has a text of more than {most} characters")
    if bare == "float":
        numbers = [value for value in values if value]
        if not all(map(isfinite, numbers)):
            raise DamagedError(f"column {name} has a value that is not finite")
        if name in _SUMMED and max(map(abs, numbers), default=0) > _MOST_HOURS:
            raise DamagedError(f"column {name} has a number above {_MOST_HOURS:g}")


_AS_TEXT: Final = frozenset({str})

#: Python type -> the types that drivers return; texts and JSON are str.
_STORED: Final[dict[str, frozenset[type]]] = {
    "money": frozenset({str, Decimal}),
    "int": frozenset({int}),
    "float": frozenset({float, int}),
    "bool": frozenset({bool, int}),
    "datetime": frozenset({str, datetime}),
}


_raw_decode: Final = json.JSONDecoder().raw_decode


def _parse(text: str) -> Any:
    """Parse JSON without surrounding blanks, as hpcflow writes it."""
    value, end = _raw_decode(text)
    if end != len(text):
        raise ValueError(f"text after JSON: {text[:40]!r}")
    return value


def _decode_time(value: str | datetime) -> datetime:
    return from_text(value) if isinstance(value, str) else value.astimezone(timezone.utc)


def _decode_money(value: str | Decimal) -> str:
    if not _are_amounts([value]):
        raise ValueError(f"not an amount of money: {str(value)[:40]}")
    return value if isinstance(value, str) else f"{value:f}"


def _decode_object(text: str) -> dict[str, Any]:
    if text == "{}":  # the common case, as for lists
        return {}
    value = _parse(text)
    if type(value) is not dict:
        raise ValueError(f"not a JSON object: {text[:40]!r}")
    return value


def _decode_numbers(text: str) -> dict[str, Any]:
    value = _decode_object(text)
    # OverflowError: an integer too large for a float.
    if not (set(map(type, value.values())) <= {int, float} and all(map(isfinite, value.values()))):
        raise ValueError(f"not only finite numbers: {text[:40]!r}")
    return value


def _decode_texts(text: str) -> list[Any]:
    if text == "[]":
        return []
    value = _parse(text)
    if type(value) is not list or not set(map(type, value)) <= {str}:
        raise ValueError(f"not a list of texts: {text[:40]!r}")
    return value


def _decode_parts(text: str) -> list[PartRow]:
    value = _parse(text)
    names = columns(PartRow)
    are_parts = type(value) is list and all(type(part) is dict for part in value)
    if not are_parts or any(part.keys() != {*names} for part in value):
        raise ValueError(f"not parts of a bill: {text[:40]!r}")
    return decode_all(PartRow, names, [[part[name] for name in names] for part in value], PartRow)


_JSON: Final[dict[str, Callable[[str], Any]]] = {
    "dict[str, Any]": _decode_object,
    "dict[str, str]": _decode_object,
    "dict[str, float]": _decode_numbers,
    "list[str]": _decode_texts,
    "list[PartRow] | None": _decode_parts,
}
_DECODERS: Final[dict[str, Callable[[Any], Any]]] = {
    "time": _decode_time,
    "money": _decode_money,
    "bool": bool,
}
