"""Amounts of money, service units and GPU hours; each known or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

#: Name of an amount -> what people call it.
UNITS: Final = {"cost_usd": "USD", "cost_su": "SU", "gpu_hours": "GPU hours"}
_MOST: Final = Decimal(10) ** 15
_CENT: Final = Decimal("0.01")
_SMALL: Final = Decimal("0.00001")
#: As precise as the lines of a bill.
_PLACES: Final = Decimal("1e-8")
_DIGITS: Final = 8
#: A text of 40 characters has no more decimal places, unless it has an exponent.
_SMALLEST: Final = 40
_TOO_EXACT: Final = "expected an amount with at most 8 decimal places"


@dataclass(frozen=True, slots=True)
class Amounts:
    """What an attempt takes; None of a unit that nobody can tell: that is not the same as 0."""

    cost_usd: Decimal | None = None
    cost_su: Decimal | None = None
    gpu_hours: Decimal | None = None

    def of(self, unit: str) -> Decimal | None:
        """The amount of one unit, a key of :data:`UNITS`."""
        found: Decimal | None = getattr(self, unit)
        return found

    def __mul__(self, share: Decimal) -> Amounts:
        return Amounts(
            *(
                None if each is None else (each * share).quantize(_PLACES)
                for each in map(self.of, UNITS)
            )
        )

    def to_json(self) -> dict[str, str]:
        """The amounts that are known, as decimal texts."""
        known = {unit: self.of(unit) for unit in UNITS}
        return {unit: _text(value) for unit, value in known.items() if value is not None}


def _text(value: Decimal) -> str:
    """With as many digits as can be read back."""
    is_long = int(value.as_tuple().exponent) < -_DIGITS
    return f"{value.quantize(_PLACES) if is_long else value:f}"


#: Of an attempt that never ran.
NOTHING: Final = Amounts(Decimal(0), Decimal(0), Decimal(0))


def amounts_from(said: Mapping[str, Any]) -> Amounts:
    """The inverse of :meth:`Amounts.to_json`.

    Raises:
        ValueError: not an amount.
    """
    return Amounts(*(None if unit not in said else _decimal(said[unit]) for unit in UNITS))


def amount_from(text: object) -> Decimal:
    """A decimal number from 0, as somebody has typed it.

    Raises:
        ValueError: not a number; the text says what is expected.
    """
    value = _decimal(text)
    if value != (rounded := value.quantize(_PLACES)):
        raise ValueError(_TOO_EXACT)
    # With no more digits than it needs: "12.50" stays as it is, and what is written can be read.
    return rounded if int(value.as_tuple().exponent) < -_DIGITS else value


def _decimal(text: object) -> Decimal:
    said = "expected an amount like 500 or 12.50"
    if not isinstance(text, str) or len(text) > 40:
        raise ValueError(said)
    try:
        value = Decimal(text)
    except ArithmeticError:
        raise ValueError(said) from None
    if not value.is_finite() or not 0 <= value <= _MOST:
        raise ValueError(said)
    # Some exponents have more digits than there is memory for what they would be written out as.
    if "e" in text.lower() and not -_SMALLEST <= int(value.as_tuple().exponent) <= _SMALLEST:
        raise ValueError(_TOO_EXACT)
    return value


def shown(value: Decimal, unit: str) -> str:
    """``12.50 USD``; of less than a cent more digits."""
    is_small = value and abs(value) < _CENT
    return f"{value.quantize(_SMALL if is_small else _CENT):f} {UNITS[unit]}"


def billed(
    cost_usd: Decimal | str | None,
    cost_su: Decimal | str | None,
    gpu_hours: Decimal | float | None,
    elapsed_s: Decimal | float | None,
) -> Amounts:
    """What a bill says. What never ran takes nothing, whether it has a price or not."""
    if not elapsed_s:
        return NOTHING
    return Amounts(
        *(None if each is None else Decimal(str(each)) for each in (cost_usd, cost_su, gpu_hours))
    )


def total(amounts: Iterable[Amounts]) -> Amounts:
    """The sum of what is known, at most as much as can be read back."""
    found = list(amounts)

    def sum_of(unit: str) -> Decimal:
        return min(_MOST, sum((each.of(unit) or Decimal(0) for each in found), Decimal(0)))

    return Amounts(sum_of("cost_usd"), sum_of("cost_su"), sum_of("gpu_hours"))
