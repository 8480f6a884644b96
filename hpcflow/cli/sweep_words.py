"""Print what a round of a sweep did."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpcflow.sweeps.round import TickReport


def report_lines(report: TickReport, now: datetime) -> list[str]:
    """Return lines for a log; none if nothing happened."""
    parts = [
        f"{name} {', '.join(map(str, numbers))}"
        for name, numbers in (
            ("asked", report.asked),
            ("ended", report.told),
            ("pruned", report.pruned),
        )
        if numbers
    ]
    if report.sent:
        parts.append(f"sent {len(report.sent)}")
    return [
        f"{now:%Y-%m-%d %H:%M:%S}  {report.sweep_id}  {text}"
        for text in ["; ".join(parts), *report.said]
        if text
    ]
