"""Convert rows to and from database values, by the kinds of the fields in ``rows.py``.

A time is written as RFC 3339 text with ``Z``: SQLite keeps it like that, and so it sorts; Postgres
makes a ``timestamptz`` of it. JSON is text, money is decimal text.
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
    """The database holds a value that is never written here: its file, or a row, was damaged."""


#: The limit of a text and of a JSON value. hpcflow writes none that is longer. A server sends no
#: more of one: other users may have written gigabytes.
_MAX_TEXT: Final = 100_000
_MAX_JSON: Final = 1 << 20
#: The same for a row of another role. A query may read many of these.
_MAX_TEXT_OF_OTHERS: Final = 5_000
_MAX_JSON_OF_OTHERS: Final = 16_000
#: JSON that is kept as it is, for each row: in Python it takes twenty times as much memory.
_MAX_KEPT_OF_OTHERS: Final = {"tags": 4_000, "parts": 4_000, "metrics": 8_000}
_TIMES_MEMORY: Final = 20
#: Memory for all rows of one other role in a query that reads any number of them.
_MAX_OF_ROLE: Final = 1 << 28
#: Columns with a limit of their own. An id is a name, a date and eight letters. The JSON values are
#: as large as a config may make them, and are read for one's own runs alone.
_MAX_OF: Final = {
    "run_id": 1000,
    "path": 10_000,
    "command": 16 << 20,
    "params": 16 << 20,
    "data": 16 << 20,
}
#: As in :func:`hpcflow.ledger.derive.money`: sums are shown to eight places of 28 digits.
_MOST_MONEY: Final = Decimal(10**19)
#: Hours, or seconds, of which reports make sums; no cluster has so many.
_SUMMED: Final = ("gpu_hours", "elapsed_s", "wasted_s")
_MOST_HOURS: Final = 1e18


#: Rows of which all columns are in memory beside them, while they are decoded.
_DECODED_AT_ONCE: Final = 5000


@lru_cache(maxsize=64)
def columns(row_type: Any) -> tuple[str, ...]:
    """Names of the columns of a row type, in order."""
    return tuple(field.name for field in fields(row_type))


def kind_of(row_type: Any, name: str) -> str:
    """What a column holds: ``str``, ``int``, ``float``, ``bool``, ``json``, ``time``, ``money``."""
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
    """Return the columns for a SELECT. The server sends NULL for a text that is too long: in a
    shared database, other users may have written gigabytes.

    Args:
        connection_kind: ``sqlite`` or ``postgresql``.
        table: whose columns they are, where several are joined.
        everyone: also read rows of other roles. Their texts have lower limits.
        any_number: nothing else limits the number of these rows, so the server sends NULL for the
            texts of a role that has written too much in all.
    """
    fitting = [_fitting(connection_kind, row_type, name, table, everyone) for name in names]
    enough = ""
    if everyone and any_number and connection_kind != "sqlite":
        sizes = " + ".join(
            f"CASE WHEN {fits} THEN octet_length({text}) * {times} ELSE 0 END"
            for name, (text, fits) in zip(names, fitting, strict=True)
            for times in [_TIMES_MEMORY if name in _MAX_KEPT_OF_OTHERS else 1]
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
    """Return SQL for a value and for whether it is short enough, or an empty text."""
    prefix = f"{table}." if table else ""
    column, kind = prefix + name, kind_of(row_type, name)
    if connection_kind == "sqlite" or kind not in ("str", "json"):
        return column, ""
    is_json, text = kind == "json", f"CAST({column} AS text)"
    most = _MAX_OF.get(name, _MAX_JSON if is_json else _MAX_TEXT)
    size = f"octet_length({text})"  # it reads only the header
    if not everyone:
        return text, f"{size} <= {most}"
    usual = _MAX_JSON_OF_OTHERS if is_json else _MAX_TEXT_OF_OTHERS
    of_others = min(most, _MAX_KEPT_OF_OTHERS.get(name, usual))
    # Nearly all texts are short, and then nobody asks whose they are.
    own = f"{prefix}owner = current_user AND {size} <= {most}"
    return text, f"({size} <= {of_others} OR {own})"


def encode(row: Any, names: tuple[str, ...] | None = None) -> list[object]:
    """The values of ``row`` as parameters of a statement.

    Args:
        names: the columns that are wanted, two at least; all when missing.
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
    """What reads the columns of a row at once, and what is to be done with some of them."""
    names = names or columns(row_type)
    kinds = [_kinds(row_type)[name] for name in names]
    todo = [(index, _ENCODERS[kind]) for index, kind in enumerate(kinds) if kind in _ENCODERS]
    return attrgetter(*names), todo


#: Postgres has neither NaN nor Infinity in JSON; SQLite must not have them either.
_to_json: Final = json.JSONEncoder(allow_nan=False, default=asdict).encode
_ENCODERS: Final[dict[str, Callable[[Any], object]]] = {"json": _to_json, "time": to_text}
#: Columns with 64 bits; other whole numbers have 32.
_LARGE: Final = ("train_step", "total_train_steps", "size_bytes", "bytes_read", "offset_bytes")


def misfit(row: Any) -> tuple[str, str] | None:
    """Return the first column of ``row`` whose value no database stores, and why."""
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
        bits = 63 if name in _LARGE else 31
        if not -(2**bits) <= value < 2**bits:
            raise ValueError("too large a number")
    elif kind == "float" and not isfinite(value):
        raise ValueError("not a number")
    elif kind == "str":
        value.encode()
        if "\0" in value:
            raise ValueError("a text with a NUL")


def copied(row: Row) -> Row:
    """Another row with the same values."""
    row_type: Any = row.__class__
    get, _ = _encoders(row_type, None)
    made: Row = row_type(*get(row))
    return made


def decode_all(
    row_type: Any, names: tuple[str, ...], records: list[Any], make: Callable[..., Row]
) -> list[Row]:
    """``make(*values)`` for every record of a query for the columns ``names``.

    Raises:
        DamagedError: a value is none of its column's. SQLite itself does not look, and a byte that
            is damaged makes a number of a text, or no JSON of JSON.
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
        raise DamagedError(f"in its column {name}: {error}") from None


def _are_amounts(values: list[Any]) -> bool:
    """Return whether every value is None or an amount of money that hpcflow can add up. One check
    for each column is faster."""
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
    """The same without the records that are damaged: each may be of another user, who is to mend
    it. ``left_out`` gets the run of each, and why."""
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
                except DamagedError as error:  # noqa: PERF203 - only where there is one
                    left_out.setdefault(str(record[of_run]), str(error))
    return made


@lru_cache(maxsize=64)
def _types(row_type: Any) -> dict[str, str]:
    """Column -> what a value of it is in Python, as it stands in ``rows.py``; money is a text."""
    return {
        field.name: str(field.type).replace("str", "money")
        if field.metadata.get("kind") == "money"
        else str(field.type)
        for field in fields(row_type)
    }


def _require_stored(python: str, name: str, values: list[Any]) -> None:
    """Refuse values that no database gives back for a column of this type."""
    bare = python.removesuffix(" | None")
    found = set(map(type, values))
    if bare != python:
        found.discard(type(None))
    if not found <= _STORED.get(bare, _AS_TEXT):
        raise DamagedError(f"in its column {name} is not of type {bare}")
    if found == _AS_TEXT:
        texts = "".join(filter(None, values))
        if "\0" in texts:
            raise DamagedError(f"in its column {name} is a text with a NUL")
        most = _MAX_OF.get(name, _MAX_TEXT)
        if bare == "str" and len(texts) > most and max(map(len, filter(None, values))) > most:
            raise DamagedError(f"in its column {name} is a text of more than {most} characters")
    if bare == "float":
        numbers = [value for value in values if value]
        if not all(map(isfinite, numbers)):
            raise DamagedError(f"in its column {name} is not a number")
        if name in _SUMMED and max(map(abs, numbers), default=0) > _MOST_HOURS:
            raise DamagedError(f"in its column {name} is a number above {_MOST_HOURS:g}")


_AS_TEXT: Final = frozenset({str})

#: Type in Python -> the types that drivers give for its columns; texts and JSON are texts.
_STORED: Final[dict[str, frozenset[type]]] = {
    "money": frozenset({str, Decimal}),
    "int": frozenset({int}),
    "float": frozenset({float, int}),
    "bool": frozenset({bool, int}),
    "datetime": frozenset({str, datetime}),
}


_raw_decode: Final = json.JSONDecoder().raw_decode


def _parse(text: str) -> Any:
    """JSON as it is written here: without blanks around it, which would be looked for."""
    value, end = _raw_decode(text)
    if end != len(text):
        raise ValueError(f"more than JSON: {text[:40]!r}")
    return value


def _decode_time(value: str | datetime) -> datetime:
    return from_text(value) if isinstance(value, str) else value.astimezone(timezone.utc)


def _decode_money(value: str | Decimal) -> str:
    if not _are_amounts([value]):
        raise ValueError(f"not an amount of money: {str(value)[:40]}")
    return value if isinstance(value, str) else f"{value:f}"


def _decode_object(text: str) -> dict[str, Any]:
    if text == "{}":  # as many are; so it is with lists
        return {}
    value = _parse(text)
    if type(value) is not dict:
        raise ValueError(f"no JSON object: {text[:40]!r}")
    return value


def _decode_numbers(text: str) -> dict[str, Any]:
    value = _decode_object(text)
    # OverflowError: a whole number that no float can hold.
    if not (set(map(type, value.values())) <= {int, float} and all(map(isfinite, value.values()))):
        raise ValueError(f"not only finite numbers: {text[:40]!r}")
    return value


def _decode_texts(text: str) -> list[Any]:
    if text == "[]":
        return []
    value = _parse(text)
    if type(value) is not list or not set(map(type, value)) <= {str}:
        raise ValueError(f"no list of texts: {text[:40]!r}")
    return value


def _decode_parts(text: str) -> list[PartRow]:
    value = _parse(text)
    names = columns(PartRow)
    are_parts = type(value) is list and all(type(part) is dict for part in value)
    if not are_parts or any(part.keys() != {*names} for part in value):
        raise ValueError(f"no parts of a bill: {text[:40]!r}")
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
