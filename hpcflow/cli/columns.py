"""Tables of any length: names to the left, numbers to the right, each as wide as it must be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import click


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

    everything = [Row(names, numbers, is_bold=True), *rows]
    columns = zip(*([*row.names, *row.numbers] for row in everything), strict=True)
    widths = [max(map(width, column)) for column in columns]
    lines = []
    for row in everything:
        cells = [
            text + " " * (wide - width(text)) if index < len(names) else text.rjust(wide)
            for index, (text, wide) in enumerate(
                zip([*row.names, *row.numbers], widths, strict=True)
            )
        ]
        line = "  ".join(cells).rstrip()
        lines.append(click.style(line, bold=True) if row.is_bold else line)
    click.echo("\n".join(lines))
