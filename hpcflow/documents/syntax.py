"""What a YAML parser's complaint means, for people who never read the YAML specification."""

from __future__ import annotations

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
    context = getattr(problem, "context", None)
    if context is not None and "quoted scalar" in context:  # where the quote was opened
        line = int(problem.context_mark.line) + 1  # type: ignore[attr-defined]
    words = f"{context}, {said}" if context else said
    hint = next((hint for part, hint in _HINTS if part in words), _QUOTES)
    return f"not YAML: {words}", line, hint


def _char_at(text: str, line: int, column: int) -> str:
    lines = text.splitlines()
    return lines[line][column : column + 1] if line < len(lines) else ""
