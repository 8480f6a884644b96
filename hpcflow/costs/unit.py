"""The unit in which lines of a report are compared: money if there is any, else hours."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from hpcflow.costs.report import Line


@dataclass(frozen=True)
class Unit:
    """A unit of comparison.

    Attributes:
        name: for people.
        spent, wasted: attributes of a line.
    """

    name: str
    spent: str
    wasted: str

    def amount(self, line: Line) -> float | None:
        """Return the amount of a line; None if unknown."""
        found: Decimal | float | None = getattr(line, self.spent)
        return None if found is None else float(found)

    def wasted_amount(self, line: Line) -> float:
        """Return the wasted amount of a line."""
        return float(getattr(line, self.wasted))


USD: Final = Unit("USD", "cost_usd", "wasted_usd")
SU: Final = Unit("SU", "cost_su", "wasted_su")
GPU_HOURS: Final = Unit("GPU hours", "gpu_hours", "wasted_gpu_hours")
HOURS: Final = Unit("hours", "hours", "wasted_hours")


def unit_of(total: Line) -> Unit:
    """Return the unit that covers the most of the sum ``total``."""
    if total.cost_usd is not None:
        return USD
    if total.cost_su is not None:
        return SU
    return GPU_HOURS if total.gpu_hours else HOURS
