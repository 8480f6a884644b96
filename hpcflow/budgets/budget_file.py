"""Read a budget file of any length in bounded memory."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Final

from hpcflow.budgets.compaction import MARK, budget_from
from hpcflow.budgets.scope import Scope
from hpcflow.budgets.state import DAMAGED, Budget, fold
from hpcflow.runtime.reading import UnsafeFileError

_PORTION_BYTES: Final = 1 << 20
#: The longest line: a compacted one, which lists every open attempt.
_LINE_BYTES: Final = 16 << 20
#: Without these limits a teammate could make each read take minutes.
_MOST_DAMAGED_LINES: Final = 10_000
_MOST_DAMAGED_COMPACTED: Final = 100
#: After the newest compacted line.
_MOST_LINES: Final = 500_000
_MOST_BYTES: Final = 256 << 20
#: Memory of one budget, however often it was read on: half a million attempts. A read of the whole
#: file may use twice as much.
_MOST_MEMORY: Final = 512 << 20


def read_budget(scope: Scope, file: int, *, whole: bool) -> tuple[Budget, int]:
    """Return a budget, and the offset up to which its open file was read.

    Args:
        whole: read from the first line, not from the newest compacted one.

    Raises:
        UnsafeFileError: too much of it is damaged, or it has too many lines.
    """
    # Ignore a last line without its end: it is torn, or still being written.
    end = _rfind(file, b"\n", os.fstat(file).st_size) + 1
    budget, begin = (Budget(scope), 0) if whole else _begin(scope, file, end)
    _fold(budget, _lines(file, begin, end), most_lines=None if whole else _MOST_LINES)
    return budget, end


def read_on(budget: Budget, file: int, begin: int) -> int:
    """Add the lines after byte ``begin`` to a budget; return the offset after them."""
    end = _rfind(file, b"\n", os.fstat(file).st_size, begin) + 1
    _fold(budget, _lines(file, begin, end), most_lines=_MOST_LINES)
    return max(begin, end)


def _fold(budget: Budget, lines: Iterator[bytes], *, most_lines: int | None) -> None:
    most_memory = 2 * _MOST_MEMORY if most_lines is None else _MOST_MEMORY
    count = size = 0  # not `budget.lines`, which a line can set to 0
    for line in lines:
        fold(budget, (line,))
        count, size = count + 1, size + len(line)
        if budget.skipped > _MOST_DAMAGED_LINES:
            raise _too_many(f"damaged lines, more than {_MOST_DAMAGED_LINES}")
        if budget.memory > most_memory:
            raise _too_many(f"attempts and changes: more than {most_memory >> 20} MiB of memory")
        if most_lines is not None and (count > most_lines or size > _MOST_BYTES):
            raise _too_many(
                f"lines after the newest compacted one, more than {most_lines} or "
                f"{_MOST_BYTES >> 20} MiB"
            )


def _too_many(what: str) -> UnsafeFileError:
    return UnsafeFileError(errno.EFBIG, f"it has too many {what}")


def _begin(scope: Scope, file: int, end: int) -> tuple[Budget, int]:
    """Return the budget of the newest compacted line, and the offset of the next line."""
    before, tries = end, 0
    while (found := _rfind(file, b"\n" + MARK, before)) >= 0:
        line = next(_lines(file, found + 1, min(end, found + 1 + _LINE_BYTES)), b"")
        try:
            return budget_from(scope, line, at_byte=found + 1), found + 2 + len(line)
        except DAMAGED:
            before, tries = found, tries + 1  # torn or damaged: use the one before
            if tries > _MOST_DAMAGED_COMPACTED:
                raise _too_many("damaged compacted lines") from None
    return Budget(scope), 0


def _rfind(file: int, what: bytes, before: int, begin: int = 0) -> int:
    """Return the last offset of ``what`` between ``begin`` and ``before``; -1 if not found."""
    while before - begin >= len(what):
        start = max(begin, before - _PORTION_BYTES)
        found = os.pread(file, before - start, start).rfind(what)
        if found >= 0:
            return start + found
        if start == begin:
            break
        before = start + len(what) - 1  # it may span two portions
    return -1


def _lines(file: int, begin: int, end: int) -> Iterator[bytes]:
    """Yield the non-empty lines between two offsets; cut one that is far too long."""
    pieces: list[bytes] = []  # of a line without its end yet
    size = 0
    while begin < end and (data := os.pread(file, min(_PORTION_BYTES, end - begin), begin)):
        begin += len(data)
        first, *more = data.split(b"\n")
        if size <= _LINE_BYTES:
            pieces.append(first)
            size += len(first)
        if more:
            *lines, rest = b"".join(pieces), *more
            yield from filter(None, lines)
            pieces, size = [rest], len(rest)
