"""Single values of a YAML file: how a plain word is parsed, and how a value is shown.

Words follow YAML 1.2: ``no`` and ``1:30:00`` are text, ``1e-3`` is a number. ``0755`` and
``1_000``, which YAML versions read differently, are text too.
"""

from __future__ import annotations

import re
from typing import Final

Scalar = str | int | float | bool | None

_WORDS: Final[dict[str, Scalar]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INT: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+|0o[0-7]+", re.ASCII)
_FLOAT: Final = re.compile(
    r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
    re.ASCII,
)
#: A longer number is an identifier that needs quotes.
MAX_NUMBER_CHARS: Final = 100
_SHOWN_CHARS: Final = 60


class WrittenInt(int):
    """A whole number in another notation than Python's."""

    as_written: str


class WrittenFloat(float):
    """A number in another notation than Python's, such as ``1e-3`` or ``3.10``."""

    as_written: str


def read_plain(text: str) -> Scalar:
    """Return the value of an unquoted word; ValueError for a number with too many digits."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    number: int | float
    if _INT.fullmatch(text):
        _check_length(text)
        number = int(text, 0)
    elif _FLOAT.fullmatch(text):
        _check_length(text)
        number = float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    else:
        return text
    if repr(number) == text:
        return number
    written = WrittenInt(number) if isinstance(number, int) else WrittenFloat(number)
    written.as_written = text
    return written


def _check_length(text: str) -> None:
    if len(text) > MAX_NUMBER_CHARS:
        raise ValueError(f"a number of {len(text)} characters")


def number_as_text(number: int | float) -> str:
    """Return ``number`` as it is written in the file."""
    return getattr(number, "as_written", None) or repr(number)


def shown(value: object) -> str:
    """Return ``value`` for a message: its type and beginning, on one line of printable text."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"the number {number_as_text(value)}"
    if isinstance(value, str):
        return f"the text {shortened(value)}" if value else "an empty text"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "a mapping"
    return f"a {type(value).__name__}"


def shortened(text: str) -> str:
    """Return ``text`` in quotes and escaped; only its beginning if it is long."""
    if len(text) <= _SHOWN_CHARS:
        return repr(text)
    return f"{text[: _SHOWN_CHARS - 20]!r}… ({len(text)} characters)"


def printable(text: str) -> str:
    """Return ``text`` if a terminal can show it safely, else in quotes and escaped."""
    if len(text) > 4096:
        return shortened(text)
    return text if text.isprintable() else repr(text)
