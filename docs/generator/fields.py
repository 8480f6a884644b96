"""Describe a field of a model: its type, its default, an example."""

from __future__ import annotations

import types
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from hpcflow.documents.writer import on_one_line
from hpcflow.model.kinds import Kind
from hpcflow.model.units import write_duration, write_memory

_PLAIN: Final[dict[Any, str]] = {
    bool: "true or false",
    int: "whole number",
    str: "text",
    Decimal: "number",
    Any: "any value",
}

_WRITE: Final[dict[str, Callable[[int], str]]] = {
    "s": write_duration,
    "min": lambda minutes: write_duration(minutes * 60),
    "mb": write_memory,
}


def type_words(hint: Any) -> str:
    """Return words for an annotated type: ``list of text``, ``whole number from 1``, …"""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        kinds = [part.words for part in arguments[1:] if isinstance(part, Kind)]
        return kinds[0] if kinds else type_words(arguments[0])
    if origin in (Union, types.UnionType):
        parts = [type_words(part) for part in arguments if part is not type(None)]
        return " or ".join(dict.fromkeys(parts))
    if origin is Literal:
        return _choice([str(value) for value in arguments])
    if origin is list:
        return f"list of {type_words(arguments[0])}"
    if origin is dict:
        return f"mapping: {type_words(arguments[0])} → {type_words(arguments[1])}"
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _choice([member.value for member in hint])
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return "section"
    return _PLAIN[hint]


def _choice(values: list[str]) -> str:
    quoted = [f"`{value}`" for value in values]
    return f"{', '.join(quoted[:-1])} or {quoted[-1]}" if len(quoted) > 1 else quoted[0]


def human_default(name: str, field: FieldInfo) -> Any:
    """Return the default as in YAML: ``10m`` for 600 of ``interval_s``."""
    if field.is_required():
        return None
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, BaseModel):
        return None
    # A field with a unit is named after its key and the unit.
    unit = name.removeprefix(f"{field.alias}_")
    if type(value) is int and unit in _WRITE:
        return _WRITE[unit](value)
    return value


def as_yaml(value: Any) -> str:
    """Return ``value`` as YAML on one line."""
    return on_one_line([value])
