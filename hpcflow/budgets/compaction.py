"""Compact a long budget file: append one line with the sums of all lines before it.

Final settlements become one sum for each month; open commitments are listed. Nothing is deleted:
all lines from the top have the same sums. The compaction is a single line, so it is either complete
or missing. It states the byte at which it begins. If another process has ignored the lock and
appended before it, the byte is wrong, and readers ignore the line.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from hpcflow.budgets.amounts import NOTHING, UNITS, total
from hpcflow.budgets.records import (
    MOST_COUNT,
    Opening,
    change_from,
    entry_line,
    line_of,
    months_from,
    opening_from,
)
from hpcflow.budgets.scope import Scope
from hpcflow.budgets.state import Budget, Entry, Standing
from hpcflow.clock import from_text, to_text
from hpcflow.runtime.reading import parse_object

#: Reading this many lines takes some milliseconds.
AFTER_LINES: Final = 2000
#: The beginning of such a line.
MARK: Final = b'{"record": "carried"'


def is_worth_it(budget: Budget) -> bool:
    """Return whether a budget has many lines, and most of its entries are closed."""
    return budget.lines > AFTER_LINES and 2 * sum(
        each.is_final or each.standing is Standing.RELEASED for each in budget.entries.values()
    ) > len(budget.entries)


def carried_line(budget: Budget, now: datetime, by: str, *, at_byte: int) -> str:
    """Return the line with the whole state of ``budget``, to be written at this byte."""
    sums: dict[str, list[Entry]] = defaultdict(list)
    for entry in budget.entries.values():
        if entry.is_final:
            sums[f"{entry.at:%Y-%m}"].append(entry)
    months = dict(budget.carried)
    for month, entries in sums.items():
        months[month] = _sum(months.get(month, Opening(NOTHING)), entries)
    last = {change.how: change for change in budget.changes}
    said: dict[str, Any] = {"record": "carried", "at": to_text(now), "by": by}
    said["at_byte"] = at_byte
    said["changes"] = [json.loads(each.to_line()) for each in last.values()]
    said["terms"] = None if budget.terms is None else budget.terms.to_json()
    said["opening"] = budget.opening.to_json()
    said["opened_at"] = None if budget.opened_at is None else to_text(budget.opened_at)
    said["months"] = {month: each.to_json() for month, each in months.items()}
    said["entries"] = [line for each in budget.entries.values() for line in _lines(each)]
    return line_of(said)


def budget_from(scope: Scope, line: bytes, *, at_byte: int) -> Budget:
    """Return the budget in such a line, which was found at this byte.

    Raises:
        ValueError, KeyError, TypeError: it is torn or damaged, or at the wrong byte.
    """
    said = parse_object(line)
    if said["at_byte"] != at_byte:
        raise ValueError("another line was written before it")
    terms = said["terms"]
    head = {"record": "set", "at": said["at"], "by": said["by"], **terms} if terms else None
    budget = Budget(
        scope,
        None if head is None else change_from(head).terms,
        opening_from(said["opening"]),
        None if said["opened_at"] is None else from_text(said["opened_at"]),
        is_whole=False,
        carried=months_from(said["months"]),
    )
    for each in said["changes"]:
        budget.remember(change_from(each))
    for each in said["entries"]:
        budget.apply(each)
    return budget


def _sum(before: Opening, entries: list[Entry]) -> Opening:
    unpriced = dict(before.unpriced)
    for unit in UNITS:
        if unknown := sum(each.amounts.of(unit) is None for each in entries):
            unpriced[unit] = min(MOST_COUNT, unpriced.get(unit, 0) + unknown)
    return Opening(total([before.amounts, *(each.amounts for each in entries)]), unpriced)


def _lines(entry: Entry) -> Iterator[dict[str, Any]]:
    """Yield the lines that lead to the state of an open entry."""
    if entry.is_final or entry.standing is Standing.RELEASED:
        return
    key = (entry.by, entry.run_id, entry.attempt)
    if entry.standing is Standing.SETTLED:
        line = entry_line(
            "settled", entry.at, *key, amounts=entry.amounts, ended_at=entry.at, is_final=False
        )
        yield json.loads(line)
        return
    line = entry_line(
        "committed",
        entry.at,
        *key,
        amounts=entry.amounts,
        limit_s=entry.limit_s,
        home=entry.home,
    )
    yield json.loads(line)
    if entry.began_at is not None:
        yield json.loads(entry_line("began", entry.at, *key, began_at=entry.began_at))
