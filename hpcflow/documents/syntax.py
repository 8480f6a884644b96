"""Explain errors of the YAML parser in plain words."""

from __future__ import annotations

import re
from typing import Final

import yaml

_QUOTES: Final = "a text with a special character needs quotes around it"
_BACKSLASH: Final = "put a text with a backslash into single quotes"

#: Part of the parser's message -> how to correct the most likely mistake.
_HINTS: Final = (
    ("tab character", "indent with spaces"),
    ("mapping values are not allowed", "indent it like its neighbours; a text with ': ' in it "
     "needs quotes around it"),
    ("escape", _BACKSLASH),
    ("hexdecimal", _BACKSLASH),
    ("quoted scalar", "close the quote that was opened"),
    ("alias", "a text that begins with '*' needs quotes around it"),
    ("anchor", "a text that begins with '&' needs quotes around it"),
    ("tag", "a text that begins with '!' needs quotes around it"),
    ("directive", "a text that begins with '%' needs quotes around it"),
    ("flow sequence", "close the list with ]"),
    ("flow mapping", "close the mapping with }, and put a text that contains { or } in quotes"),
    ("flow node", "close what [ or { opened"),
    ("block collection", "indent all items of the list alike"),
    ("block mapping", "indent all keys of a section alike"),
    ("max depth", "use fewer levels"),
)  # fmt: skip


#: The parser notices only at the next line that a line has no `key: value`.
_NO_SECOND_VALUE: Final = "mapping values are not allowed"
_KEY_ONLY: Final = re.compile(r"\s*(?:- )?([\w-]+)(?::|\s*=\s*|\s+)(\S.*)", re.ASCII)
_TWO_COLONS: Final = re.compile(r"\s*(?:- )?([\w-]+): ([^'\"\[{#].*: [^'\"#]*)", re.ASCII)
#: Looks like a space, but is not one in YAML.
_NO_SPACE: Final = re.compile("[\u00a0\u2000-\u200b\u202f\u205f\u3000\ufeff]")


def explain(problem: yaml.YAMLError, text: str) -> tuple[str, int | None, str]:
    """Return message, line and next action for ``problem``, which the parser found in ``text``."""
    mark = getattr(problem, "problem_mark", None)
    line = None if mark is None else int(mark.line) + 1
    message = getattr(problem, "problem", None) or "the parser gave up"
    char = "" if mark is None else _char_at(text, mark.line, mark.column)
    if "cannot start any token" in message:
        if char == "\t":
            return "not YAML: the line begins with a tab", line, "indent with spaces"
        return f"not YAML: a text begins with {char!r}", line, _QUOTES
    if mark is not None and _NO_SECOND_VALUE in message:
        found = _before_second_value(text.splitlines(), mark.line, mark.column)
        if found is not None:
            return found
    context = getattr(problem, "context", None)
    if char == "," and "block" in (context or ""):
        return "not YAML: a comma after the value", line, "remove the comma"
    if context is not None and ("quoted scalar" in context or "flow" in context):
        # The line of the quote, list or mapping that is not closed.
        opened = int(problem.context_mark.line) + 1  # type: ignore[attr-defined]
        if char and "expected ','" in message and line == opened:
            return "not YAML: no comma between two items", line, "separate the items with commas"
        line = opened
    words = f"{context}, {message}" if context else message
    hint = next((hint for part, hint in _HINTS if part in words), _QUOTES)
    return f"not YAML: {words}", line, hint


def plain_key(line: str) -> str | None:
    """Return ``key: value`` for a line without a colon and a space; None for any other."""
    found = None if ": " in line or line.rstrip().endswith(":") else _KEY_ONLY.match(line)
    return f"{found[1]}: {found[2].strip()}" if found else None


def _before_second_value(
    lines: list[str], number: int, column: int
) -> tuple[str, int | None, str] | None:
    """Explain why the parser found a second value in the line ``number``."""
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
            return f"not YAML: {char}, which is not a space", n + 1, "replace it by a space"
    if (pair := plain_key(lines[before])) is not None:
        return "not YAML: no key and value", before + 1, f"write it like `{pair}`"
    return (
        f"not YAML: indented deeper than line {before + 1}, which already has a value",
        number + 1,
        f"indent it like line {before + 1}",
    )


def _char_at(text: str, line: int, column: int) -> str:
    lines = text.splitlines()
    return lines[line][column : column + 1] if line < len(lines) else ""
