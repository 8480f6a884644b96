"""Split the bytes of a growing file into its complete lines. Pure.

A line may be incomplete, truncated by a crash, or endless. The result depends only on the bytes,
not on the portions in which they arrive.
"""

from __future__ import annotations

from dataclasses import dataclass

from hpcflow.model.events import MAX_LINE_BYTES


@dataclass(frozen=True)
class Position:
    """How far a file was read.

    Attributes:
        offset_bytes: where the next portion begins.
        in_long_line: whether the next portion begins inside a line that is too long.
        skipped_lines: number of lines so far that were too long.
    """

    offset_bytes: int = 0
    in_long_line: bool = False
    skipped_lines: int = 0


def split_lines(data: bytes, at: Position) -> tuple[list[bytes], Position]:
    """Return the complete lines of ``data``, which begins at ``at``, and the position after them.

    The next call gets an incomplete last line again, unless it is already too long. Empty lines are
    skipped: hpcflow writes them after a truncated line.
    """
    begin, skipped, in_long_line = 0, at.skipped_lines, at.in_long_line
    if in_long_line:
        end = data.find(b"\n")
        if end < 0:
            return [], Position(at.offset_bytes + len(data), True, skipped)
        begin, in_long_line = end + 1, False
    end = data.rfind(b"\n") + 1
    lines: list[bytes] = []
    for line in data[begin:end].split(b"\n") if end > begin else ():
        if len(line) > MAX_LINE_BYTES:
            skipped += 1
        elif line:
            lines.append(line)
    end = max(begin, end)
    if len(data) - end > MAX_LINE_BYTES:
        return lines, Position(at.offset_bytes + len(data), True, skipped + 1)
    return lines, Position(at.offset_bytes + end, in_long_line, skipped)
