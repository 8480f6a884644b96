"""Read a YAML file that may be hostile.

This module, not a loader of PyYAML, turns the parser's events into values: so each key has its
line, words are those of YAML 1.2, no tag creates an object, and limits apply before anything grows.
A config needs a small part of YAML; the rest is refused, by name. Errors of the parser are
explained in plain words.
"""

from __future__ import annotations

import copy
import re
import stat
from pathlib import Path
from typing import Any, Final, NoReturn

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from hpcflow.documents.document import Document, Place
from hpcflow.errors import InputError, Where, shell_word
from hpcflow.model.scalars import printable, read_plain, shortened, shown
from hpcflow.runtime.reading import read_file

try:
    from yaml._yaml import CParser as _Parser
except ImportError:  # PyYAML without libyaml: the same events, slower
    from yaml import SafeLoader as _Parser  # type: ignore[assignment]

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

MAX_FILE_BYTES: Final = 1 << 20
#: The limit after aliases are expanded: characters of text plus number of values.
MAX_EXPANDED: Final = 2 * MAX_FILE_BYTES
MAX_DEPTH: Final = 32

_STR_TAGS: Final = (None, "!", "tag:yaml.org,2002:str")
_TEMPLATE: Final = re.compile(r"\{\{[^{}]*\}\}")
_CONTROL: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]"
)


def read_document(path: Path, error: type[InputError]) -> Document:
    """Return the one mapping in the YAML file ``path``.

    Raises:
        InputError: of the class ``error``: it cannot be read, or is not one mapping in YAML.
    """
    return parse_document(read_text(path, error), path, error)


def parse_document(text: str, path: Path, error: type[InputError]) -> Document:
    """Return the one mapping in ``text``, the content of the file ``path``.

    Raises:
        InputError: of the class ``error``: it is not one mapping in YAML.
    """
    value, place = _Reader(text, printable(str(path)), error).document()
    if not isinstance(value, dict):
        meant = plain_key(text.splitlines()[(place.line or 1) - 1]) if value else None
        raise error(
            f"expected keys with values (key: value) at the top, got {shown(value)}",
            where=Where(file=place.file, line=place.line),
            next_action=f"write it like `{meant}`"
            if meant
            else "begin it like this: `name: my-first-run`",
        )
    return Document(path=path, data=value, place=place)


def parse_value(text: str, error: type[InputError]) -> tuple[Any, Place]:
    """Return a list, mapping or quoted text from the command line.

    Raises:
        InputError: of the class ``error``, without a place: it is not YAML.
    """
    value, place = _Reader(text, None, error).document()
    return value, _unplaced(place)


def _unplaced(place: Place) -> Place:
    return Place(None, None, {key: _unplaced(child) for key, child in place.children.items()})


class _Reader:
    """Turn the events of one text into values and places."""

    def __init__(self, text: str, file: str | None, error: type[InputError]) -> None:
        self._text, self._file, self._error = text, file, error
        self._size = 0
        self._deepest = 0
        self._anchors: dict[str, tuple[Any, int, int]] = {}
        if control := _CONTROL.search(text):
            self._fail(
                f"a control character ({control[0]!a})",
                text.count("\n", 0, control.start()) + 1,
                "remove it; this may be a binary file",
            )
        self._parser = _Parser(text)

    def document(self) -> tuple[Any, Place]:
        event = self._next()
        while not isinstance(event, (DocumentStartEvent, StreamEndEvent)):
            event = self._next()
        if isinstance(event, StreamEndEvent):
            self._fail("empty", None, "begin it like this: `name: my-first-run`")
        value, place = self._node(self._next(), 1)
        self._next()
        event = self._next()
        if not isinstance(event, StreamEndEvent):
            self._fail(
                "a second document begins here",
                self._line(event),
                "keep one, and remove the line `---` between them",
            )
        return value, place

    def _next(self) -> Any:
        try:
            return self._parser.get_event()
        except yaml.YAMLError as problem:
            message, line, hint = explain(problem, self._text)
            self._fail(message, line, hint)

    def _node(self, event: Any, depth: int, line: int | None = None) -> tuple[Any, Place]:
        """Return the value that begins with ``event``; ``line`` is that of its key."""
        place = Place(self._file, line or self._line(event))
        if isinstance(event, AliasEvent):
            return self._alias(event, depth), place
        self._descend(depth, event)
        if event.anchor is None:
            return self._value(event, place, depth), place
        self._anchors.pop(event.anchor, None)
        size_before, deepest_before = self._size, self._deepest
        self._deepest = depth
        value = self._value(event, place, depth)
        self._anchors[event.anchor] = (value, self._size - size_before, self._deepest - depth)
        self._deepest = max(deepest_before, self._deepest)
        return value, place

    def _value(self, event: Any, place: Place, depth: int) -> Any:
        if isinstance(event, ScalarEvent):
            return self._scalar(event)
        if event.tag not in (None, "!"):
            self._refuse_tag(event)
        if isinstance(event, SequenceStartEvent):
            return self._list(place, depth)
        return self._mapping(event, place, depth)

    def _scalar(self, event: ScalarEvent) -> Any:
        self._grow(1 + len(event.value), event)
        if event.tag not in _STR_TAGS:
            self._refuse_tag(event)
        if event.tag is not None or not event.implicit[0]:
            return event.value
        try:
            return read_plain(event.value)
        except ValueError as problem:
            self._fail(str(problem), self._line(event), "put it in quotes if it is a text")

    def _list(self, place: Place, depth: int) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := self._next(), SequenceEndEvent):
            self._grow(1, event)
            item, place.children[len(items)] = self._node(event, depth + 1)
            items.append(item)
        return items

    def _mapping(self, start: Any, place: Place, depth: int) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        while not isinstance(event := self._next(), MappingEndEvent):
            self._grow(1, event)
            key, line = self._key(event, start), self._line(event)
            if key in mapping:
                first = place.children[key].line
                self._fail(
                    f"the key {shortened(key)} is here a second time, first on line {first}",
                    line,
                    "keep one of the two",
                )
            mapping[key], place.children[key] = self._node(self._next(), depth + 1, line)
        return mapping

    def _key(self, event: Any, start: Any) -> str:
        """Return the text of a key, after checking it."""
        if isinstance(event, MappingStartEvent) and start.flow_style:
            line = self._text.splitlines()[self._line(event) - 1]
            found = _TEMPLATE.search(line)
            self._fail(
                "braces within braces",
                self._line(event),
                "a text that begins with '{{' must be in quotes: "
                f'"{found[0] if found else "{{ params.lr }}"}"',
            )
        if not isinstance(event, ScalarEvent):
            self._fail("a key must be a text", self._line(event), "write `key: value`")
        if event.value == "<<" and event.implicit[0]:
            self._fail(
                "merge keys ('<<') are not supported",
                self._line(event),
                "repeat the keys; the config of a run can also use `extends`",
            )
        key = self._scalar(event)
        if not isinstance(key, str):
            hint = f'put it in quotes: "{event.value}"' if event.value else "write `key: value`"
            self._fail(f"a key must be a text, got {shown(key)}", self._line(event), hint)
        return key

    def _alias(self, event: AliasEvent, depth: int) -> Any:
        name = str(event.anchor)
        if name not in self._anchors:
            self._fail(
                f"the alias *{printable(name)} has no anchor before it",
                self._line(event),
                f"put it in quotes if it is a text; an anchor is written &{printable(name)}",
            )
        value, size, height = self._anchors[name]
        self._grow(size, event)
        self._descend(depth + height, event)
        return copy.deepcopy(value)

    def _descend(self, depth: int, event: Any) -> None:
        self._deepest = max(self._deepest, depth)
        if depth > MAX_DEPTH:
            self._fail(f"nested more than {MAX_DEPTH} deep", self._line(event), "use fewer levels")

    def _grow(self, size: int, event: Any) -> None:
        self._size += size
        if self._size > MAX_EXPANDED:
            self._fail(
                "too large after its aliases are expanded",
                self._line(event),
                "write fewer aliases",
            )

    def _refuse_tag(self, event: Any) -> NoReturn:
        self._fail(
            f"the tag {shortened(event.tag)} is not supported",
            self._line(event),
            "remove it; put the value in quotes if it is a text",
        )

    @staticmethod
    def _line(event: Any) -> int:
        return int(event.start_mark.line) + 1

    def _fail(self, message: str, line: int | None, next_action: str | None) -> NoReturn:
        where = None if self._file is None else Where(file=self._file, line=line)
        raise self._error(message, where=where, next_action=next_action)


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
    context = getattr(problem, "context", None) or ""
    opening = getattr(problem, "context_mark", None)
    if char == "," and "block" in context:
        return "not YAML: a comma after the value", line, "remove the comma"
    if opening is not None and ("quoted scalar" in context or "flow" in context):
        # The line of the quote, list or mapping that is not closed.
        opened = int(opening.line) + 1
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


def read_text(path: Path, error: type[InputError]) -> str:
    """Return the content of ``path``, as UTF-8 without a byte order mark.

    Raises:
        InputError: of the class ``error``: it is not a file, cannot be read, is too large, or is
            not text.
    """
    file = printable(str(path))
    data = _read_bytes(path, file, error)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise error(
            "not UTF-8 text",
            where=Where(file=file, line=line),
            next_action="save it as UTF-8, or give another file; see its type: "
            f"file {shell_word(path)}",
        ) from None


def _look(path: Path) -> str:
    """Return what to type if there is no file ``path``."""
    from hpcflow.documents.suggest import nearest_file

    near = nearest_file(str(path))
    if near is not None:
        return f"did you mean {shell_word(path.with_name(near))}?"
    return f"see what is there: ls -l {shell_word(path.parent)}"


def _read_bytes(path: Path, file: str, error: type[InputError]) -> bytes:
    where, look = Where(file=file), f"look at it: ls -l {shell_word(path)}"
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            kind = "a folder" if path.is_dir() else "neither a file nor a folder"
            raise error(f"this is {kind}", where=where, next_action="give a YAML file")
        if status.st_size <= MAX_FILE_BYTES:
            return read_file(path, MAX_FILE_BYTES, follow=True, any_owner=True)
    except (OSError, ValueError) as problem:  # ValueError: a NUL in the path
        reason = getattr(problem, "strerror", None) or "not a path"
        raise error(
            f"cannot be read: {reason}",
            where=where,
            next_action=_look(path) if isinstance(problem, FileNotFoundError) else look,
        ) from None
    raise error(
        f"larger than {MAX_FILE_BYTES >> 20} MiB, the limit for such a file",
        where=where,
        next_action="give a YAML file; put data into another file",
    )
