"""The lines of a budget's file. A line is one JSON object with ``at``, ``by`` and ``record``.

========== =======================================================================================
set        what the budget is from now on, and who said so; ``opening`` begins it, with what was
           spent before
removed    limits nothing any more
committed  an attempt is to be sent, and may take so much; before anything else is done about it
began      it runs since then
released   it takes nothing: it never became a job
settled    what it came to, by its bill; a later one corrects it
carried    all that the lines before say, in one: see :mod:`.compaction`
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

# A command that only looks does not wait for pydantic.
if TYPE_CHECKING:
    from hpcflow.model.run_budget import RunBudget

_MOST_TEXT: Final = 1000
#: Of a user; Linux has 32 characters.
MOST_NAME: Final = 256
#: Of attempts, or of seconds: no time limit is longer.
MOST_COUNT: Final = 10**9
_MONTH: Final = re.compile(r"\d{4}-(0[1-9]|1[0-2])", re.ASCII)


class OnExceeded(str, Enum):
    """What becomes of attempts that run when a hard limit is reached."""

    FINISH = "finish"
    SAVE_AND_STOP = "save_and_stop"


@dataclass(frozen=True)
class Limit:
    """How much of one unit; None for no such limit."""

    hard: Decimal | None = None
    soft: Decimal | None = None


@dataclass(frozen=True)
class Terms:
    """What a budget is.

    Attributes:
        limits: unit -> its limits.
        per_month: what ended in a month that is over does not count any more.
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
    """The budget that a run's config asks for, if it limits anything."""
    limits = {
        unit: Limit(hard=amount) for unit in UNITS if (amount := getattr(said, unit)) is not None
    }
    return Terms(limits, on_exceeded=OnExceeded(said.on_exceeded)) if limits else None


@dataclass(frozen=True)
class Opening:
    """What was spent before a budget was set.

    Attributes:
        unpriced: unit -> how many attempts nobody knows the amount of.
        months: what of it ended in which month, for a budget may become one per month; empty where
            nobody knows.
    """

    amounts: Amounts
    unpriced: Mapping[str, int] = field(default_factory=dict)
    months: Mapping[str, Opening] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As it stands in a file."""
        months = {month: each.to_json() for month, each in self.months.items()}
        more = {"months": months} if months else {}
        return {**self.amounts.to_json(), "unpriced": dict(self.unpriced), **more}


@dataclass(frozen=True)
class Change:
    """What a person did to a budget: ``terms`` is None where it was removed.

    Attributes:
        how: ``command``, or ``config`` for what the config of a run says.
        opening: where it starts again.
    """

    at: datetime
    by: str
    terms: Terms | None
    why: str | None = None
    how: str = "command"
    opening: Opening | None = None

    def to_line(self) -> str:
        """As it stands in the file."""
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
    """The change that a ``set`` or ``removed`` line tells.

    Raises:
        ValueError, KeyError, TypeError: it is damaged.
    """
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
    """The inverse of :meth:`Opening.to_json`.

    Raises:
        ValueError, KeyError, TypeError: it is damaged.
    """
    return replace(sums_from(said), months=months_from(said.get("months", {})))


def sums_from(said: Mapping[str, Any]) -> Opening:
    """Return the sums of an opening without those of its months.

    Raises:
        ValueError, KeyError, TypeError: it is damaged.
    """
    counts = said["unpriced"]
    unpriced = {unit: count_from(counts[unit]) for unit in UNITS if unit in counts}
    return Opening(amounts_from(said), unpriced)


def months_from(said: Mapping[str, Any]) -> dict[str, Opening]:
    """Return the sums of each month. A month has no months: a teammate could nest them too deep
    for Python.

    Raises:
        ValueError, KeyError, TypeError: it is damaged.
    """
    if not all(map(_MONTH.fullmatch, said)):
        raise ValueError("expected months like 2026-07")
    return {month: sums_from(each) for month, each in said.items()}


def count_from(value: object, least: int = 0) -> int:
    """A whole number from ``least`` to :data:`MOST_COUNT`: Python prints none of 5,000 digits.

    Raises:
        ValueError: it is none.
    """
    if type(value) is not int or not least <= value <= MOST_COUNT:
        raise ValueError(f"expected a number from {least} to {MOST_COUNT}")
    return value


def text_from(value: object, most: int = _MOST_TEXT) -> str:
    """A text of at most so many characters: a teammate could fill the memory with longer ones.

    Raises:
        ValueError: it is none.
    """
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
    """A line about one attempt.

    Args:
        record: committed, began, released or settled.
        more: what else there is to say; times are written as text, None is left out.
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
    """A line of the file."""
    # People may write what is no UTF-8, and what cannot be read back would be lost.
    return json.dumps(said, ensure_ascii=False).encode("utf-8", "replace").decode() + "\n"
