"""Escape text for a terminal: control characters and invisible characters.

File names, tags, metrics, reasons and names of other people's jobs may hold escape sequences,
right-to-left marks or characters of no width. Each such character becomes U+FFFD.
"""

from __future__ import annotations

import re
from typing import Final

#: The replacement for an unsafe character.
SHOWN_INSTEAD: Final = "\N{REPLACEMENT CHARACTER}"

#: Printable for Python, but without a glyph of their own: joiners, fillers, variation selectors.
_INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)


def safe(text: str) -> str:
    """Return ``text`` on one line, with U+FFFD for each unsafe character.

    These are controls (also C1, DEL, line ends and tabs), format characters (bidi, zero width,
    tags), lone surrogates, and what Unicode has not assigned. Spaces of any kind become a space.
    """
    if text.isascii():
        return text if text.isprintable() else "".join(map(_shown, text))
    if not text.isprintable():
        text = "".join(map(_shown, text))
    return _INVISIBLE.sub(SHOWN_INSTEAD, text)


def safe_lines(text: str) -> str:
    """Escape text of several lines; keep line ends and tabs."""
    if text.isascii() and text.isprintable():
        return text
    return "\n".join("\t".join(map(safe, line.split("\t"))) for line in text.split("\n"))


def _shown(char: str) -> str:
    if char.isprintable():
        return char
    return " " if char.isspace() and not char.isascii() and char not in _BREAKS else SHOWN_INSTEAD


#: Spaces in Python, but line ends for a terminal or a pager.
_BREAKS: Final = "\x85\u2028\u2029"
