"""Read a budget file of any length in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from hpcflow.budgets.carrying import MARK, budget_from
from hpcflow.budgets.scope import Scope
from hpcflow.budgets.state import Budget, fold

_PORTION_BYTES: Final = 1 << 20
#: The longest line: a compacted one, which lists every open attempt.
_LINE_BYTES: Final = 16 << 20
_DAMAGED: Final = (ValueError, KeyError, TypeError, AttributeError, OverflowError)


def read_budget(scope: Scope, file: int, *, whole: bool) -> tuple[Budget, int]:
    """Return a budget, and the offset up to which its open file was read.

    Args:
        whole: read from the first line, not from the newest compacted one.
    """
    # Ignore a last line without its end: it is torn, or still being written.
    end = _rfind(file, b"\n", os.fstat(file).st_size) + 1
    budget, begin = (Budget(scope), 0) if whole else _begin(scope, file, end)
    return fold(budget, _lines(file, begin, end)), end


def read_on(budget: Budget, file: int, begin: int) -> int:
    """Add the lines after byte ``begin`` to a budget; return the offset after them."""
    end = _rfind(file, b"\n", os.fstat(file).st_size, begin) + 1
    fold(budget, _lines(file, begin, end))
    return max(begin, end)


def _begin(scope: Scope, file: int, end: int) -> tuple[Budget, int]:
    """Return the budget of the newest compacted line, and the offset of the next line."""
    before = end
    while (found := _rfind(file, b"\n" + MARK, before)) >= 0:
        line = next(_lines(file, found + 1, min(end, found + 1 + _LINE_BYTES)), b"")
        try:
            return budget_from(scope, line, at_byte=found + 1), found + 2 + len(line)
        except _DAMAGED:
            before = found  # torn or damaged: use the one before
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
    rest = b""
    while begin < end and (data := os.pread(file, min(_PORTION_BYTES, end - begin), begin)):
        begin += len(data)
        *lines, rest = (rest + data).split(b"\n")
        yield from filter(None, lines)
        rest = rest[: _LINE_BYTES + 1]
