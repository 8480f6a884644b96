"""Tables of any length: names to the left, numbers to the right, each as wide as it must be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Final

from hpcflow.terminal import echo, echo_lines, safe

#: The limit of a cell. All cells of a column are as wide as the longest, and in a shared ledger
#: another user may have written a name of 100,000 characters beside 10,000 runs.
_MAX_CHARS: Final = 2000


@dataclass(frozen=True)
class Row:
    """Names, then numbers, as they are shown."""

    names: Sequence[str]
    numbers: Sequence[str]
    is_bold: bool = False


def shortened(text: str) -> str:
    """``text``, or its beginning if it is longer than a cell may be."""
    return text if len(text) <= _MAX_CHARS else f"{text[: _MAX_CHARS - 1]}…"


def print_columns(names: Sequence[str], numbers: Sequence[str], rows: Sequence[Row]) -> None:
    """Print a table; a terminal that is too narrow breaks its lines.

    Args:
        names, numbers: titles.
    """
    from rich.cells import cell_len

    def width(text: str) -> int:
        return len(text) if text.isascii() else cell_len(text)

    everything = [
        Row([safe(shortened(name)) for name in row.names], row.numbers, is_bold=row.is_bold)
        for row in (Row(names, numbers, is_bold=True), *rows)
    ]
    columns = zip(*([*row.names, *row.numbers] for row in everything), strict=True)
    widths = [max(map(width, column)) for column in columns]

    def line(row: Row) -> str:
        cells = [
            text + " " * (wide - width(text)) if index < len(names) else text.rjust(wide)
            for index, (text, wide) in enumerate(
                zip([*row.names, *row.numbers], widths, strict=True)
            )
        ]
        return "  ".join(cells).rstrip()

    for is_bold, alike in groupby(everything, key=attrgetter("is_bold")):
        if is_bold:
            for row in alike:
                echo(line(row), bold=True)
        else:
            echo_lines("\n".join(map(line, alike)))
