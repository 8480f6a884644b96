"""Override keys of a config: ``--set a.b=c``, and the resources of a running job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpcflow.documents import Document, Place
from hpcflow.documents.reader import parse_value
from hpcflow.errors import SpecError, Where
from hpcflow.model.scalars import printable, read_plain, shortened


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
