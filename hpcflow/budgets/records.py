"""The lines of a budget's file. A line is one JSON object with ``at``, ``by`` and ``record``.

Functions that read a record raise ValueError, KeyError or TypeError if it is damaged.

========== =======================================================================================
set        the terms from now on; ``opening`` has what was spent before
removed    the budget limits nothing any more
committed  the most that an attempt may use; written before anything else of its submission
began      the attempt runs since then
released   the attempt uses nothing: it never became a job
settled    the cost of an attempt, by its bill; a later one corrects it
carried    the state of all lines before, in one: see :mod:`.compaction`
========== =======================================================================================
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from hpcflow.budgets.amounts import UNITS, Amounts, amount_from, amounts_from
from hpcflow.clock import from_text, to_text

# A command that only reads does not wait for pydantic.
if TYPE_CHECKING:
    from hpcflow.model.run_budget import RunBudget

_MOST_TEXT: Final = 1000
#: Characters of a user's name; Linux allows 32.
MOST_NAME: Final = 256
#: Attempts, or seconds: no time limit is longer.
MOST_COUNT: Final = 10**9
_MONTH: Final = re.compile(r"\d{4}-(0[1-9]|1[0-2])", re.ASCII)


class OnExceeded(str, Enum):
    """What happens to running attempts when a hard limit is reached."""

    FINISH = "finish"
    SAVE_AND_STOP = "save_and_stop"


@dataclass(frozen=True)
class Limit:
    """The limits of one unit; None for no limit."""

    hard: Decimal | None = None
    soft: Decimal | None = None


@dataclass(frozen=True)
class Terms:
    """The limits and rules of a budget.

    Attributes:
        limits: unit -> its limits.
        per_month: attempts that ended in an earlier month do not count.
    """

    limits: Mapping[str, Limit] = field(default_factory=dict)
    per_month: bool = False
    on_exceeded: OnExceeded = OnExceeded.FINISH

    def to_json(self) -> dict[str, Any]:
        limits = {
            unit: {
                name: f"{value:f}"
                for name, value in (("hard", limit.hard), ("soft", limit.soft))
                if value is not None
            }
            for unit, limit in self.limits.items()
        }
        per = {"per": "month"} if self.per_month else {}
        return {"limits": limits, **per, "on_exceeded": self.on_exceeded.value}


def terms_of(said: RunBudget) -> Terms | None:
    """Return the budget in a run's config; None if it limits nothing."""
    limits = {
        unit: Limit(hard=amount) for unit in UNITS if (amount := getattr(said, unit)) is not None
    }
    return Terms(limits, on_exceeded=OnExceeded(said.on_exceeded)) if limits else None


@dataclass(frozen=True)
class Opening:
    """The amounts that were spent before a budget was set.

    Attributes:
        unpriced: unit -> number of attempts with an unknown amount.
        months: the amounts by month of their end, because a budget may become one per month; empty
            if unknown.
    """

    amounts: Amounts
    unpriced: Mapping[str, int] = field(default_factory=dict)
    months: Mapping[str, Opening] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        months = {month: each.to_json() for month, each in self.months.items()}
        more = {"months": months} if months else {}
        return {**self.amounts.to_json(), "unpriced": dict(self.unpriced), **more}


@dataclass(frozen=True)
class Change:
    """A change of a budget by a person; ``terms`` is None for a removal.

    Attributes:
        how: ``command``, or ``config`` for the config of a run.
        opening: the amounts to start again from.
    """

    at: datetime
    by: str
    terms: Terms | None
    why: str | None = None
    how: str = "command"
    opening: Opening | None = None

    def to_line(self) -> str:
        said: dict[str, Any] = {"record": "removed" if self.terms is None else "set"}
        said |= {"at": to_text(self.at), "by": self.by, "how": self.how}
        if self.why:
            said["why"] = self.why[:_MOST_TEXT]
        if self.terms is not None:
            said |= self.terms.to_json()
        if self.opening is not None:
            said["opening"] = self.opening.to_json()
        return line_of(said)


def change_from(said: Mapping[str, Any]) -> Change:
    """Return the change in a ``set`` or ``removed`` line."""
    terms = opening = None
    if said["record"] == "set":
        limits = {unit: _limit(said["limits"][unit]) for unit in UNITS if unit in said["limits"]}
        on_exceeded = OnExceeded(said.get("on_exceeded", OnExceeded.FINISH.value))
        terms = Terms(limits, said.get("per") == "month", on_exceeded)
        if (opens := said.get("opening")) is not None:
            opening = opening_from(opens)
    why = said.get("why")
    return Change(
        at=from_text(said["at"]),
        by=text_from(said["by"], MOST_NAME),
        terms=terms,
        why=None if why is None else text_from(why),
        how=text_from(said.get("how", "command"), MOST_NAME),
        opening=opening,
    )


def opening_from(said: Mapping[str, Any]) -> Opening:
    """Return the inverse of :meth:`Opening.to_json`."""
    return replace(sums_from(said), months=months_from(said.get("months", {})))


def sums_from(said: Mapping[str, Any]) -> Opening:
    counts = said["unpriced"]
    unpriced = {unit: count_from(counts[unit]) for unit in UNITS if unit in counts}
    return Opening(amounts_from(said), unpriced)


def months_from(said: Mapping[str, Any]) -> dict[str, Opening]:
    """Return the sums of each month.

    A month has no months of its own: a teammate could nest them too deep for Python.
    """
    if not all(map(_MONTH.fullmatch, said)):
        raise ValueError("expected months like 2026-07")
    return {month: sums_from(each) for month, each in said.items()}


def count_from(value: object, least: int = 0) -> int:
    """Return a whole number from ``least`` to :data:`MOST_COUNT`, or raise ValueError.

    Python prints no integer of 5,000 digits.
    """
    if type(value) is not int or not least <= value <= MOST_COUNT:
        raise ValueError(f"expected a number from {least} to {MOST_COUNT}")
    return value


def text_from(value: object, most: int = _MOST_TEXT) -> str:
    """Return a text, or raise ValueError if it is too long: it could fill the memory."""
    if not isinstance(value, str) or len(value) > most:
        raise ValueError(f"expected a text of at most {most} characters")
    return value


def _limit(said: Mapping[str, Any]) -> Limit:
    return Limit(*(amount_from(said[name]) if name in said else None for name in ("hard", "soft")))


def entry_line(
    record: str,
    at: datetime,
    by: str,
    run_id: str,
    attempt: int,
    *,
    amounts: Amounts | None = None,
    **more: Any,
) -> str:
    """Return a line about one attempt.

    Args:
        record: committed, began, released or settled.
        more: other values; times are written as text, None is left out.
    """
    said: dict[str, Any] = {"record": record, "at": to_text(at), "by": by}
    said |= {"run_id": run_id, "attempt": attempt}
    if amounts is not None:
        said["amounts"] = amounts.to_json()
    for name, value in more.items():
        if value is not None:
            said[name] = to_text(value) if isinstance(value, datetime) else value
    return line_of(said)


def line_of(said: Mapping[str, Any]) -> str:
    # A text may be invalid UTF-8; a reader would skip such a line.
    return json.dumps(said, ensure_ascii=False).encode("utf-8", "replace").decode() + "\n"
