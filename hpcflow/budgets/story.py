"""The file of a budget -> what it says, in bounded memory, however long it is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from hpcflow.budgets.carrying import MARK, budget_from
from hpcflow.budgets.scope import Scope
from hpcflow.budgets.state import Budget, fold

_PORTION_BYTES: Final = 1 << 20
#: A line that says all that came before has every attempt that is open; none is longer.
_LINE_BYTES: Final = 16 << 20
_DAMAGED: Final = (ValueError, KeyError, TypeError, AttributeError, OverflowError)


def read_budget(scope: Scope, file: int, *, whole: bool) -> tuple[Budget, int]:
    """One budget, and how far its open file was read.

    Args:
        whole: from its first line, and not from the newest line that says all that came before.
    """
    # A last line without its end is torn, or being written: it is not there yet.
    end = _rfind(file, b"\n", os.fstat(file).st_size) + 1
    budget, begin = (Budget(scope), 0) if whole else _begin(scope, file, end)
    return fold(budget, _lines(file, begin, end)), end


def read_on(budget: Budget, file: int, begin: int) -> int:
    """Let the lines count that come after byte ``begin``; how far was read."""
    end = _rfind(file, b"\n", os.fstat(file).st_size, begin) + 1
    fold(budget, _lines(file, begin, end))
    return max(begin, end)


def _begin(scope: Scope, file: int, end: int) -> tuple[Budget, int]:
    """The newest line that says all that came before, and where the next one begins."""
    before = end
    while (found := _rfind(file, b"\n" + MARK, before)) >= 0:
        line = next(_lines(file, found + 1, min(end, found + 1 + _LINE_BYTES)), b"")
        try:
            return budget_from(scope, line, at_byte=found + 1), found + 2 + len(line)
        except _DAMAGED:
            before = found  # torn or damaged: the one before is as good
    return Budget(scope), 0


def _rfind(file: int, what: bytes, before: int, begin: int = 0) -> int:
    """Where ``what`` is found last in the bytes from ``begin`` to ``before``; -1 without it."""
    while before - begin >= len(what):
        start = max(begin, before - _PORTION_BYTES)
        found = os.pread(file, before - start, start).rfind(what)
        if found >= 0:
            return start + found
        if start == begin:
            break
        before = start + len(what) - 1  # it may lie across two portions
    return -1


def _lines(file: int, begin: int, end: int) -> Iterator[bytes]:
    """The lines between two bytes that are not empty; one that is far too long comes damaged."""
    rest = b""
    while begin < end and (data := os.pread(file, min(_PORTION_BYTES, end - begin), begin)):
        begin += len(data)
        *lines, rest = (rest + data).split(b"\n")
        yield from filter(None, lines)
        rest = rest[: _LINE_BYTES + 1]
