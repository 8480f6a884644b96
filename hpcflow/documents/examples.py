"""Valid lines of YAML for messages about wrong values."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from hpcflow.documents.document import Document, KeyPath
from hpcflow.documents.suggest import section_at, submodels
from hpcflow.documents.writer import on_one_line
from hpcflow.model.scalars import number_as_text, read_plain

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

#: A longer line is not shown.
_MAX_CHARS: Final = 100


def written_right(model: type[BaseModel], document: Document, path: KeyPath) -> str | None:
    """Return the value at ``path`` as the model accepts it, if only its type is wrong.

    It is a line of YAML, such as ``nodes: 2`` for ``nodes: '2'``; None if no such line is valid.
    """
    value: Any = document.data
    try:
        for key in path:
            value = value[key]
    except (KeyError, IndexError, TypeError):  # a step within a type, not within the document
        return None
    for candidate in _candidates(value):
        if not _is_wrong(model, _with(document.data, path, candidate), path):
            return as_line(path[-1], candidate)
    return None


def example(model: type[BaseModel], path: KeyPath) -> str | None:
    """Return the example of the key at ``path``, or of the list that it is an item of, as YAML."""
    for end in range(len(path), 0, -1):
        section = section_at(model, path[: end - 1])
        field = None if section is None else _fields(section).get(str(path[end - 1]))
        if field is not None:
            value = _example_of(field)
            return None if value is None else as_line(path[end - 1], value)
    return None


def _candidates(value: Any) -> Iterator[Any]:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        yield number_as_text(value)
        yield [value]
    elif isinstance(value, bool):
        yield str(value).lower()
    elif isinstance(value, str):
        with suppress(ValueError):  # its digits are too many for a number
            yield read_plain(value)
        words = _split(value)
        # Options of a program are several words; a line of bash is one.
        yield from (words, [value]) if value.startswith("-") else ([value], words)


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _with(data: Any, path: KeyPath, value: Any) -> Any:
    if not path:
        return value
    copy = data.copy()
    copy[path[0]] = _with(data[path[0]], path[1:], value)
    return copy


def _is_wrong(model: type[BaseModel], data: Any, path: KeyPath) -> bool:
    from pydantic import ValidationError

    try:
        model.model_validate(data, by_alias=True, by_name=False)
    except ValidationError as problem:
        found = [each["loc"] for each in problem.errors(include_url=False, include_input=False)]
        return any(location[: len(path)] == path for location in found)
    return False


def _fields(section: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in section.model_fields.items()}


def _example_of(field: FieldInfo) -> Any:
    if field.examples:
        return field.examples[0]
    steps, section = next(submodels(field.annotation), ((), None))
    if section is None:
        return None
    inner = _fields(section)
    required = {key: _example_of(each) for key, each in inner.items() if each.is_required()}
    if not required:
        required = {key: each.examples[0] for key, each in inner.items() if each.examples}
        required = dict([*required.items()][:1])
    if not required or None in required.values():
        return None
    value: Any = required
    for step in reversed(steps):
        value = {"NAME": value} if step == "value" else [value]
    return value


def _plain(value: Any) -> Any:
    """Return ``value`` with plain numbers: PyYAML cannot write those that keep their spelling."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return int(value) if isinstance(value, int) else float(value)
    return value


def as_line(key: str | int, value: Any) -> str | None:
    """Return ``key: value`` on one line; None if that is too long."""
    line = {key: _plain(value)} if isinstance(key, str) else [_plain(value)]
    text = on_one_line(line)
    return text if len(text) <= _MAX_CHARS else None
