"""Tables: the one presenter of all commands. It never cuts a number, a unit or an id.

A pipe gets all columns, and each row on one line. On a terminal that is too narrow, texts are
wrapped between words, and whole columns are left out, the least important first. Where the rest
does not fit either, each row becomes a card, with a line for each value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from hpcflow.terminal import Line, Styled, echo_block, safe, terminal_width

#: The limit of a cell. All cells of a column are as wide as its widest, and in a shared ledger
#: another user may have a name of 100,000 characters beside 10,000 runs.
_MAX_CHARS: Final = 2000
_GAP: Final = "  "
#: The least width of a wrapped text in a table.
_TEXT_CHARS: Final = 24
#: The space between a number and its unit.
_UNIT: Final = re.compile(r"(?<=[0-9?]) (?=[A-Za-z%µ])")

Cell: TypeAlias = "str | Styled"


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        rank: columns of the highest rank are left out first; those of rank 0 are never left out.
        is_number: aligned to the right.
        is_text: words, which may be wrapped.
    """

    title: str
    rank: int = 0
    is_number: bool = False
    is_text: bool = False

    @classmethod
    def plain(cls, titles: str, **kind: bool) -> list[Column]:
        """Return columns from titles with ranks, such as ``RUN, STATE, CAUSE 2``; else 0."""
        found = []
        for title in titles.split(", "):
            name, _, rank = title.rpartition(" ")
            found.append(cls(name, int(rank), **kind) if rank.isdecimal() else cls(title, **kind))
        return found

    @classmethod
    def numbers(cls, titles: str) -> list[Column]:
        return cls.plain(titles, is_number=True)

    @classmethod
    def texts(cls, titles: str) -> list[Column]:
        return cls.plain(titles, is_text=True)


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> None:
    """Print a table that fits the terminal."""
    titles = [Styled(column.title, bold=True) for column in columns]
    table = [[_whole(cell) for cell in row] for row in (titles, *rows)]
    full = [max(_width(_text(row[index])) for row in table) for index in range(len(columns))]
    least = [
        min(full[index], _least_width(row[index] for row in table)) if column.is_text else wide
        for index, (column, wide) in enumerate(zip(columns, full, strict=True))
    ]
    room = terminal_width()
    shown = list(range(len(columns))) if room is None else _that_fit(columns, table, least, room)
    if room is not None and not shown:
        echo_block(_cards(columns, table[1:], room))
        return
    widths = dict(zip(shown, full if room is None else [least[i] for i in shown], strict=True))
    if room is not None:
        left = room - sum(widths.values()) - len(_GAP) * (len(shown) - 1)
        for index in shown:
            more = min(left, full[index] - widths[index])
            widths[index], left = widths[index] + more, left - more
    echo_block(line for row in table for line in _lines(columns, row, widths))
    hidden = [
        column.title
        for index, column in enumerate(columns)
        if index not in shown and _has_values(table, index)
    ]
    if room is not None and hidden:
        names = ", ".join(hidden)
        note = f"hidden because the terminal is narrow: {names}; to show all, append: | less -S"
        echo_block([Styled(line, dim=True)] for line in _wrapped(note, room))


def painted(
    cells: Iterable[str], fg: str | None = None, *, bold: bool | None = None
) -> list[Styled]:
    """Return the cells of a row in one style."""
    return [Styled(cell, fg=fg, bold=bold) for cell in cells]


def _whole(cell: Cell) -> Cell:
    """Return a cell as it is shown: without unsafe characters, of limited length."""
    text = _text(cell)
    shown = safe(_shortened(text))
    return cell if shown == text else _styled_as(cell, shown)


def _styled_as(cell: Cell, text: str) -> Cell:
    return Styled(text, cell.fg, cell.bold, cell.dim) if isinstance(cell, Styled) else text


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_CHARS else f"{text[: _MAX_CHARS - 1]}…"


def _text(cell: Cell) -> str:
    return cell.text if isinstance(cell, Styled) else cell


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _parts(text: str) -> tuple[list[str], str]:
    """Return the parts of a text that stay on one line, and the separator between them.

    Parts are the pairs of a list such as ``loss 0.1  accuracy 0.9``, else words. A number and its
    unit are one word, joined by NUL.
    """
    between = "  " if "  " in text else " "
    return _UNIT.sub("\0", text).split(between), between


def _least_width(cells: Iterable[Cell]) -> int:
    longest = max((_width(word) for cell in cells for word in _parts(_text(cell))[0]), default=0)
    return max(_TEXT_CHARS, longest)


def _wrapped(text: str, room: int) -> list[str]:
    """Return the lines of a text, none wider than ``room`` unless a word is."""
    lines: list[str] = []
    parts, between = _parts(text)
    for part in parts:
        if lines and _width(lines[-1] + between + part) <= room:
            lines[-1] += between + part
        else:
            lines.append(part)
    return [line.replace("\0", " ").rstrip() for line in lines]


def _has_values(table: Sequence[Sequence[Cell]], index: int) -> bool:
    return any(_text(row[index]) for row in table[1:])


def _that_fit(
    columns: Sequence[Column], table: Sequence[Sequence[Cell]], least: Sequence[int], room: int
) -> list[int]:
    """Return the indices of the columns that fit side by side; none where cards are needed."""
    ranks = [
        column.rank if _has_values(table, index) or not index else len(columns) + 1
        for index, column in enumerate(columns)
    ]
    shown = list(range(len(columns)))
    while sum(least[index] for index in shown) + len(_GAP) * (len(shown) - 1) > room:
        last = max(shown, key=lambda index: (ranks[index], index))
        if ranks[last] == 0:
            return []
        shown.remove(last)
    return shown


def _lines(
    columns: Sequence[Column], row: Sequence[Cell], widths: dict[int, int]
) -> Iterator[Line]:
    """Yield the lines of a row; several where a text is wrapped."""
    wrapped = {
        index: _wrapped(_text(row[index]), wide)
        for index, wide in widths.items()
        if columns[index].is_text and _width(_text(row[index])) > wide
    }
    for number in range(max(map(len, wrapped.values()), default=1)):
        line: list[str | Styled] = []
        gap = ""
        for index, wide in widths.items():
            cell = row[index]
            if index in wrapped or number:
                lines = wrapped.get(index, [])
                cell = _styled_as(cell, lines[number] if number < len(lines) else "")
            text = _text(cell)
            blank = " " * (wide - _width(text))
            before, after = (blank, "") if columns[index].is_number else ("", blank)
            if text:
                line += [gap + before, cell]
                gap = after + _GAP
            else:
                gap += before + after + _GAP
        yield line


def _cards(columns: Sequence[Column], rows: Iterable[Sequence[Cell]], room: int) -> Iterator[Line]:
    """Yield each row as a card; a value that is wider than the terminal has lines of its own."""
    wide = max(_width(column.title) for column in columns[1:])
    for row in rows:
        yield [Styled(_text(row[0]) or "-", bold=True)]
        for column, cell in zip(columns[1:], row[1:], strict=True):
            if not (text := _text(cell)):
                continue
            label = f"  {column.title}{' ' * (wide - _width(column.title))}{_GAP}"
            fits = max(1, room - _width(label))
            lines = _wrapped(text, fits) if column.is_text else [text]
            if max(map(_width, lines)) > fits:
                yield [label.rstrip()]
                label, lines = "", _wrapped(text, room) if column.is_text else [text]
            for line in lines:
                yield [label, _styled_as(cell, line)]
                label = " " * _width(label)
