"""The state of a budget, from its lines: spent, committed, left. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from enum import Enum
from sys import getsizeof
from typing import Any, Final

from hpcflow.budgets.amounts import NOTHING, UNITS, Amounts, amounts_from
from hpcflow.budgets.records import (
    MOST_NAME,
    Change,
    Limit,
    Opening,
    Terms,
    change_from,
    count_from,
    text_from,
)
from hpcflow.budgets.scope import Scope
from hpcflow.clock import from_text
from hpcflow.model.ids import is_run_id
from hpcflow.runtime.reading import parse_object

#: Number of units and moments with cached sums: a daemon reads the same budget for weeks.
_MOST_MOMENTS: Final = 16
#: The largest number in a job name.
_MOST_ATTEMPTS: Final = 999_999
#: ``PATH_MAX`` of Linux.
_MOST_PATH: Final = 4096
#: Bytes of memory of an entry, a change and a month without their texts, as measured.
_ENTRY_BYTES: Final = 900
_CHANGE_BYTES: Final = 1500
_MONTH_BYTES: Final = 900
#: Errors of a damaged line. Formatting the error of a deep value may raise RecursionError, too.
DAMAGED: Final = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
)


class Standing(str, Enum):
    """The state of an attempt's amounts."""

    COMMITTED = "committed"
    RELEASED = "released"
    SETTLED = "settled"


@dataclass(frozen=True, slots=True)
class Entry:
    """The amounts of one attempt.

    Attributes:
        at: when they were committed; if settled, when the attempt ended.
        is_final: the bill will not change any more.
        limit_s: its time limit.
        began_at: the start of its run.
        home: of the process that submitted it.
    """

    run_id: str
    attempt: int
    by: str
    standing: Standing
    amounts: Amounts
    at: datetime
    is_final: bool = False
    limit_s: int | None = None
    began_at: datetime | None = None
    home: str | None = None

    def so_far(self, now: datetime) -> Amounts:
        """Return what a running attempt has used of its commitment; else nothing."""
        if self.standing is not Standing.COMMITTED or self.began_at is None or not self.limit_s:
            return NOTHING
        ran_s = Decimal(str(max(0.0, (now - self.began_at).total_seconds())))
        return self.amounts * min(Decimal(1), ran_s / self.limit_s)


@dataclass(frozen=True)
class Used:
    """The used amounts of one unit.

    Attributes:
        spent: by bills.
        committed: the most that pending and running attempts may use.
        unknown: number of attempts with an unknown amount.
    """

    spent: Decimal
    committed: Decimal
    unknown: int

    @property
    def taken(self) -> Decimal:
        """Return what is not available any more."""
        return self.spent + self.committed


@dataclass
class Budget:
    """One budget.

    Attributes:
        terms: None while it is not set.
        opened_at: when it began, with ``opening``.
        entries: run id and attempt -> its state since then.
        changes: oldest first; only the last ones if the file was not read from its first line.
        carried: month -> its final settlements before the line where reading began.
        is_whole: False if reading began at such a line.
        lines: number of lines since the last such line.
        skipped: number of lines that were torn, damaged, or of a newer version.
        held: approximate memory of its entries and changes, in bytes.
    """

    scope: Scope
    terms: Terms | None = None
    opening: Opening = field(default_factory=lambda: Opening(NOTHING))
    opened_at: datetime | None = None
    entries: dict[tuple[str, int], Entry] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    carried: dict[str, Opening] = field(default_factory=dict)
    is_whole: bool = True
    lines: int = 0
    skipped: int = 0
    held: int = 0
    _known: dict[tuple[str, datetime], Used] = field(default_factory=dict)
    _ran: dict[tuple[str, datetime], Decimal] = field(default_factory=dict)

    @property
    def memory(self) -> int:
        return self.held + _MONTH_BYTES * (len(self.opening.months) + len(self.carried))

    def limit(self, unit: str) -> Limit:
        return Limit() if self.terms is None else self.terms.limits.get(unit, Limit())

    def used(self, unit: str, now: datetime) -> Used:
        if (unit, now) not in self._known:
            if len(self._known) > _MOST_MOMENTS:
                self._known.clear()
            self._known[unit, now] = self._sum(unit, now)
        return self._known[unit, now]

    def _sum(self, unit: str, now: datetime) -> Used:
        spent = committed = Decimal(0)
        unknown = 0
        is_all = self.terms is None or not self.terms.per_month
        opening: Opening | None = self.opening
        if not is_all and self.opening.months:
            opening = self.opening.months.get(f"{now:%Y-%m}")
        elif not self._counts(self.opened_at, now):
            opening = None
        if opening is not None:
            spent += opening.amounts.of(unit) or 0
            unknown += opening.unpriced.get(unit, 0)
        for month, settled in self.carried.items():
            if is_all or month == f"{now:%Y-%m}":
                spent += settled.amounts.of(unit) or 0
                unknown += settled.unpriced.get(unit, 0)
        for entry in self.entries.values():
            if entry.standing is Standing.RELEASED:
                continue
            is_settled = entry.standing is Standing.SETTLED
            if is_settled and not is_all and not self._counts(entry.at, now):
                continue
            amount = getattr(entry.amounts, unit)
            if amount is None:
                unknown += 1
            elif is_settled:
                spent += amount
            else:
                committed += amount
        return Used(spent, committed, unknown)

    def so_far(self, unit: str, now: datetime) -> Decimal:
        """Return what running attempts have used so far of their commitments."""
        if (unit, now) in self._ran:
            return self._ran[unit, now]
        amounts = (each.so_far(now).of(unit) for each in self.entries.values() if each.began_at)
        return sum((each for each in amounts if each is not None), Decimal(0))

    def _counts(self, at: datetime | None, now: datetime) -> bool:
        """Return whether an end at that time counts now."""
        if self.terms is None or not self.terms.per_month or at is None:
            return True
        return (at.year, at.month) == (now.year, now.month)

    def summed(self, now: datetime) -> Budget:
        """Return a copy with only the sums of this moment, without entries and changes."""
        return replace(
            self,
            opening=Opening(NOTHING),
            entries={},
            changes=[],
            carried={},
            held=0,
            _known={(unit, now): self.used(unit, now) for unit in UNITS},
            _ran={(unit, now): self.so_far(unit, now) for unit in UNITS},
        )

    def commit(self, entry: Entry) -> None:
        """Add a committed attempt and update the cached sums, which is fast for many attempts."""
        # In the order of their lines: a released one starts again.
        before = self.entries.pop((entry.run_id, entry.attempt), None)
        self.entries[entry.run_id, entry.attempt] = entry
        for (unit, now), used in list(self._known.items()):
            amount = entry.amounts.of(unit)
            if before is not None or amount is None:
                del self._known[unit, now]
            else:
                self._known[unit, now] = replace(used, committed=used.committed + amount)

    def committed_to(self) -> list[Entry]:
        """Return the attempts that are pending or running, or have no bill yet."""
        return [each for each in self.entries.values() if each.standing is Standing.COMMITTED]

    def is_committed_to(self, run_id: str, attempt: int) -> bool:
        """Return whether an attempt is pending or running, or has no bill yet."""
        entry = self.entries.get((run_id, attempt))
        return entry is not None and entry.standing is Standing.COMMITTED

    def copy(self) -> Budget:
        return replace(
            self,
            entries=dict(self.entries),
            changes=list(self.changes),
            carried=dict(self.carried),
            _known=dict(self._known),
        )

    def change(self, change: Change) -> None:
        self._known.clear()
        if change.opening is not None:
            self.opening, self.opened_at = change.opening, change.at
            self.held -= sum(map(_bytes_of, self.entries.values()))
            self.entries, self.carried = {}, {}
        self.terms = change.terms
        self.remember(change)

    def remember(self, change: Change) -> None:
        """Add a change to the history. Only the newest opening is kept."""
        self.changes.append(replace(change, opening=None))
        self.held += _CHANGE_BYTES + sum(map(getsizeof, (change.by, change.how, change.why)))

    def apply(self, said: dict[str, Any]) -> None:
        """Apply one line; ValueError, KeyError or TypeError if it is damaged or newer."""
        record = said["record"]
        self._known.clear()
        if record in ("set", "removed"):
            self.change(change_from(said))
            return
        if record == "carried":  # its content is known
            self.lines = 0
            return
        key = _key(said["run_id"], said["attempt"])
        before = self.entries.get(key)
        if before is not None and before.standing is Standing.SETTLED and record != "settled":
            return  # it is closed
        if record == "began":
            if before is not None:
                self.entries[key] = replace(before, began_at=from_text(said["began_at"]))
        elif record == "released":
            if before is not None:
                self.entries[key] = replace(before, standing=Standing.RELEASED)
        else:
            entry = _entry(key, record, said)
            if record == "committed":  # its newest line determines its place
                self.entries.pop(key, None)
            self.entries[key] = entry
            self.held += _bytes_of(entry) - (0 if before is None else _bytes_of(before))


def _bytes_of(entry: Entry) -> int:
    return _ENTRY_BYTES + getsizeof(entry.by) + getsizeof(entry.home)


def _key(run_id: object, attempt: object) -> tuple[str, int]:
    """Return the key of an entry, or raise ValueError: other users write lines, too."""
    if not isinstance(run_id, str) or not is_run_id(run_id):
        raise ValueError("not a run id")
    if type(attempt) is not int or not 0 < attempt <= _MOST_ATTEMPTS:
        raise ValueError("not an attempt number")
    return run_id, attempt


def _entry(key: tuple[str, int], record: str, said: dict[str, Any]) -> Entry:
    is_settled = record == "settled"
    limit_s, home = said.get("limit_s"), said.get("home")
    return Entry(
        *key,
        by=text_from(said["by"], MOST_NAME),
        standing=Standing(record),
        amounts=amounts_from(said["amounts"]),
        at=from_text(said["ended_at"] if is_settled and "ended_at" in said else said["at"]),
        is_final=is_settled and bool(said.get("is_final", True)),
        limit_s=None if limit_s is None else count_from(limit_s, 1),
        home=None if home is None else text_from(home, _MOST_PATH),
    )


def fold(budget: Budget, lines: Iterable[bytes | str]) -> Budget:
    """Apply whole lines, in order."""
    for line in lines:
        budget.lines += 1
        budget.skipped += not _is_applied(budget, line)
    return budget


def _is_applied(budget: Budget, line: bytes | str) -> bool:
    try:
        budget.apply(parse_object(line))
    except DAMAGED:
        return False
    return True
