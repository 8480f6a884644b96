"""What a YAML parser's complaint means, for people who never read the YAML specification."""

from __future__ import annotations

import re
from typing import Final

import yaml

_QUOTES: Final = "a text with a special character needs quotes around it"

#: Part of the parser's words -> what is most often wrong.
_HINTS: Final = (
    ("tab character", "indent with spaces"),
    ("mapping values are not allowed", "indent it like its neighbours; a text with ': ' in it "
     "needs quotes around it"),
    ("quoted scalar", "close the quote that was opened"),
    ("alias", "a text that begins with '*' needs quotes around it"),
    ("anchor", "a text that begins with '&' needs quotes around it"),
    ("tag", "a text that begins with '!' needs quotes around it"),
    ("directive", "a text that begins with '%' needs quotes around it"),
    ("flow sequence", "close the list with ]"),
    ("flow mapping", "close the mapping with }, and put a text that holds { or } in quotes"),
    ("flow node", "close what [ or { opened"),
    ("block collection", "indent all items of the list alike"),
    ("block mapping", "indent all keys of a section alike"),
    ("max depth", "make it flatter"),
)  # fmt: skip


#: The parser sees only at the line after it that a line has no `key: value`.
_NO_SECOND_VALUE: Final = "mapping values are not allowed"
_KEY_ONLY: Final = re.compile(r"\s*(?:- )?([\w-]+)(?::|\s*=\s*|\s+)(\S.*)", re.ASCII)
_TWO_COLONS: Final = re.compile(r"\s*(?:- )?([\w-]+): ([^'\"\[{#].*: [^'\"#]*)", re.ASCII)
#: Looks like a space, and is none to YAML.
_NO_SPACE: Final = re.compile("[\u00a0\u2000-\u200b\u202f\u205f\u3000\ufeff]")


def explain(problem: yaml.YAMLError, text: str) -> tuple[str, int | None, str]:
    """Message, line and what to do about ``problem``, which the parser found in ``text``."""
    mark = getattr(problem, "problem_mark", None)
    line = None if mark is None else int(mark.line) + 1
    said = getattr(problem, "problem", None) or "the parser gave up"
    if mark is not None and "cannot start any token" in said:
        char = _char_at(text, mark.line, mark.column)
        if char == "\t":
            return "not YAML: a tab where the line begins", line, "indent with spaces"
        return f"not YAML: a text begins with {char!r}", line, _QUOTES
    if mark is not None and _NO_SECOND_VALUE in said:
        found = _before_second_value(text.splitlines(), mark.line, mark.column)
        if found is not None:
            return found
    context = getattr(problem, "context", None)
    if context is not None and ("quoted scalar" in context or "flow" in context):
        # Where the quote, the list or the mapping was opened that is not closed.
        line = int(problem.context_mark.line) + 1  # type: ignore[attr-defined]
    words = f"{context}, {said}" if context else said
    hint = next((hint for part, hint in _HINTS if part in words), _QUOTES)
    return f"not YAML: {words}", line, hint


def plain_key(line: str) -> str | None:
    """``key: value`` for a line that has no colon with a space behind it; None for any other."""
    found = None if ": " in line or line.rstrip().endswith(":") else _KEY_ONLY.match(line)
    return f"{found[1]}: {found[2].strip()}" if found else None


def _before_second_value(
    lines: list[str], number: int, column: int
) -> tuple[str, int | None, str] | None:
    """What is wrong where a value ends, and a second one begins in the line ``number``."""
    before = next(
        (n for n in range(number - 1, -1, -1) if lines[n].strip() and lines[n].strip()[0] != "#"),
        None,
    )
    if (twice := _TWO_COLONS.match(lines[number])) and ": " in lines[number][:column]:
        meant = f"{twice[1]}: '{twice[2]}'"
        return "not YAML: ': ' a second time in one line", number + 1, f"write it like `{meant}`"
    if before is None or ": " in lines[number][:column]:
        return None
    for n in (before, number):
        if strange := _NO_SPACE.search(lines[n]):
            char = f"U+{ord(strange[0]):04X}"
            return f"not YAML: {char}, which is no space", n + 1, "type a space in its place"
    if (pair := plain_key(lines[before])) is not None:
        return "not YAML: no key and value", before + 1, f"write it like `{pair}`"
    return (
        f"not YAML: indented deeper than line {before + 1}, which has a value already",
        number + 1,
        f"indent it like line {before + 1}",
    )


def _char_at(text: str, line: int, column: int) -> str:
    lines = text.splitlines()
    return lines[line][column : column + 1] if line < len(lines) else ""
