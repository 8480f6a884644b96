"""Compute how much of an attempt's charge was wasted, and why. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hpcflow.clock import from_text
from hpcflow.model.state import Cause


@dataclass(frozen=True)
class Waste:
    """Wasted seconds of an attempt; in sum at most what it is charged for.

    Attributes:
        startup_s: until its program trained.
        lost_s: after its last checkpoint, if it did not complete: that work must be repeated.
        unsaved_s: all of an attempt that did not complete and left no checkpoint.

    A pruned trial has given its result: nothing of it must be repeated.
    """

    startup_s: float = 0.0
    lost_s: float = 0.0
    unsaved_s: float = 0.0

    @property
    def total_s(self) -> float:
        return self.startup_s + self.lost_s + self.unsaved_s


def waste_of(bill: dict[str, Any], cause: str | None, report: dict[str, Any]) -> Waste | None:
    """Return what an attempt has wasted; None if that is unknown.

    Args:
        bill: its record ``accounted``.
        cause: why it ended; None if it has not.
        report: its job's report.
    """
    if bill.get("elapsed_s") is None or cause is None:
        return None
    elapsed_s = float(bill["elapsed_s"])
    begin, end = _moment(bill.get("started_at")), _moment(bill.get("ended_at"))
    if begin is None or end is None or not elapsed_s:
        return Waste()
    trained_at = _moment(report.get("trained_at"))
    is_done = cause in (Cause.COMPLETED.value, Cause.PRUNED.value)
    kept_to = end if is_done else _moment(report.get("saved_at"))
    if kept_to is None:
        return Waste(unsaved_s=elapsed_s)
    until_training_s = (trained_at - begin).total_seconds() if trained_at else 0.0
    # Suspended time is not charged, so it is not wasted.
    startup_s = min(elapsed_s, max(0.0, until_training_s))
    lost_s = min(elapsed_s - startup_s, max(0.0, (end - kept_to).total_seconds()))
    return Waste(startup_s=startup_s, lost_s=lost_s)


def _moment(text: str | None) -> datetime | None:
    return from_text(text) if text else None
