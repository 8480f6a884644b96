"""Tables of any length: names to the left, numbers to the right, each as wide as it must be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpcflow.terminal import echo, safe


@dataclass(frozen=True)
class Row:
    """Names, then numbers, as they are shown."""

    names: Sequence[str]
    numbers: Sequence[str]
    is_bold: bool = False


def print_columns(names: Sequence[str], numbers: Sequence[str], rows: Sequence[Row]) -> None:
    """Print a table; a terminal that is too narrow breaks its lines.

    Args:
        names, numbers: titles.
    """
    from rich.cells import cell_len

    def width(text: str) -> int:
        return len(text) if text.isascii() else cell_len(text)

    everything = [
        Row([*map(safe, row.names)], [*map(safe, row.numbers)], is_bold=row.is_bold)
        for row in (Row(names, numbers, is_bold=True), *rows)
    ]
    columns = zip(*([*row.names, *row.numbers] for row in everything), strict=True)
    widths = [max(map(width, column)) for column in columns]
    for row in everything:
        cells = [
            text + " " * (wide - width(text)) if index < len(names) else text.rjust(wide)
            for index, (text, wide) in enumerate(
                zip([*row.names, *row.numbers], widths, strict=True)
            )
        ]
        line = "  ".join(cells).rstrip()
        echo(line, bold=row.is_bold or None)
