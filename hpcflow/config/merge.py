"""Merge documents key by key: a file over another, and overrides, such as ``--set a.b=c``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hpcflow.documents import Document, KeyPath, Place
from hpcflow.documents.reader import parse_value
from hpcflow.errors import SpecError, Where
from hpcflow.model.scalars import printable, read_plain, shortened

#: Below these keys `null` is a value; everywhere else it restores the default.
_NULL_IS_A_VALUE: Final = (("params",),)

_NOWHERE: Final = Place(None, None)


def merge(lower: Document, upper: Document) -> Document:
    """Merge mappings, replace lists and single values; ``null`` removes a key.

    Messages about the result name the file of ``upper``, unless that is an override.
    """
    data, place = _merged(lower.data, lower.place, upper.data, upper.place, ())
    if upper.path is None:
        return Document(lower.path, data, Place(lower.place.file, lower.place.line, place.children))
    return Document(upper.path, data, place)


def without_nulls(document: Document) -> Document:
    """Return ``document`` without each ``null`` that only means "the default"."""
    return merge(Document(document.path, {}, Place(document.place.file, None)), document)


def _merged(
    lower: dict[str, Any],
    lower_place: Place,
    upper: dict[str, Any],
    upper_place: Place,
    at: KeyPath,
) -> tuple[dict[str, Any], Place]:
    data, children = dict(lower), dict(lower_place.children)
    for key, value in upper.items():
        # The parts of an alias have the place of the alias.
        place = upper_place.children.get(key) or Place(upper_place.file, upper_place.line)
        if value is None and at[:1] not in _NULL_IS_A_VALUE:
            data.pop(key, None)
            children.pop(key, None)
        elif isinstance(value, dict):
            is_section = isinstance(data.get(key), dict)
            data[key], children[key] = _merged(
                data[key] if is_section else {},
                children.get(key, _NOWHERE) if is_section else _NOWHERE,
                value,
                place,
                (*at, key),
            )
        else:
            data[key], children[key] = value, place
    # An override has no lines; a section that it only adds to keeps its place.
    section = upper_place if lower_place.line is None or upper_place.line else lower_place
    return data, Place(section.file, section.line, children)


def parse_override(text: str) -> Document:
    """Return ``--set text`` as a document.

    The value is parsed as YAML if it is a word (``2``, ``true``, ``4h``, ``null`` for the default),
    a list, a mapping or a quoted text. Else it is plain text, whatever it begins with.

    Raises:
        SpecError: it has no key or no ``=``, or its value is not YAML.
    """
    key, equals, value = text.partition("=")
    keys = key.strip().split(".")
    try:
        text.encode()
    except UnicodeEncodeError:  # bytes from the shell
        raise _wrong(f"not UTF-8 text: {shortened(text)}", None) from None
    if not equals or not all(keys) or len(keys) > _DEEPEST:
        raise _wrong(f"expected KEY=VALUE, got {shortened(text)}", None)
    data, place = _value(value.strip(), printable(key.strip()))
    for name in reversed(keys):
        data, place = {name: data}, Place(None, None, {name: place})
    return Document(None, data, place)


def granted_document(resources: Mapping[str, Any]) -> Document:
    """Return the resources of a running job as a document to merge over the config."""
    section = Place(_ALLOCATION, None, {key: Place(_ALLOCATION, None) for key in resources})
    place = Place(_ALLOCATION, None, {"resources": section})
    return Document(None, {"resources": dict(resources)}, place)


#: Replaces the name of a file in messages.
_ALLOCATION = "the allocation"

#: No key is deeper; deeper params are given as a mapping.
_DEEPEST = 50


def _value(text: str, key: str) -> tuple[Any, Place]:
    try:
        if text.startswith(("[", "{", '"', "'")):
            return parse_value(text, SpecError)
        return (read_plain(text) if text else "", Place(None, None))
    except (SpecError, ValueError) as problem:
        raise _wrong(getattr(problem, "message", str(problem)), key) from None


def _wrong(message: str, key: str | None) -> SpecError:
    return SpecError(
        message,
        where=Where(key=f"--set {key}" if key else "--set"),
        next_action="write it like --set resources.nodes=2 or --set 'args=[--lr, 0.1]'",
    )
