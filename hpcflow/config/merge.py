"""Merge one document over another, key by key."""

from __future__ import annotations

from typing import Any, Final

from hpcflow.documents import Document, KeyPath, Place

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
