"""Amounts of money, service units and GPU hours; each known or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

#: Name of an amount -> its unit for people.
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
    """The amounts of an attempt; None for a unit whose amount is unknown, which is not 0."""

    cost_usd: Decimal | None = None
    cost_su: Decimal | None = None
    gpu_hours: Decimal | None = None

    def of(self, unit: str) -> Decimal | None:
        """Return the amount of one unit, a key of :data:`UNITS`."""
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
        """Return the known amounts as decimal texts."""
        known = {unit: self.of(unit) for unit in UNITS}
        return {unit: _text(value) for unit, value in known.items() if value is not None}


def _text(value: Decimal) -> str:
    """Return a decimal text that :func:`amounts_from` accepts."""
    is_long = int(value.as_tuple().exponent) < -_DIGITS
    return f"{value.quantize(_PLACES) if is_long else value:f}"


#: The amounts of an attempt that never ran.
NOTHING: Final = Amounts(Decimal(0), Decimal(0), Decimal(0))


def amounts_from(said: Mapping[str, Any]) -> Amounts:
    """Return the inverse of :meth:`Amounts.to_json`, or raise ValueError."""
    return Amounts(*(None if unit not in said else _decimal(said[unit]) for unit in UNITS))


def amount_from(text: object) -> Decimal:
    """Return a typed decimal number from 0, or raise ValueError with what is expected."""
    value = _decimal(text)
    if value != (rounded := value.quantize(_PLACES)):
        raise ValueError(_TOO_EXACT)
    # Keep "12.50" as typed, with no more digits than can be read back.
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
    # A decimal with a large exponent has more digits than memory can hold.
    if "e" in text.lower() and not -_SMALLEST <= int(value.as_tuple().exponent) <= _SMALLEST:
        raise ValueError(_TOO_EXACT)
    return value


def shown(value: Decimal, unit: str) -> str:
    """Return ``12.50 USD``; with more digits for less than a cent."""
    is_small = value and abs(value) < _CENT
    return f"{value.quantize(_SMALL if is_small else _CENT):f} {UNITS[unit]}"


def billed(
    cost_usd: Decimal | str | None,
    cost_su: Decimal | str | None,
    gpu_hours: Decimal | float | None,
    elapsed_s: Decimal | float | None,
) -> Amounts:
    """Return the amounts of a bill. An attempt that never ran used nothing, priced or not."""
    if not elapsed_s:
        return NOTHING
    return Amounts(
        *(None if each is None else Decimal(str(each)) for each in (cost_usd, cost_su, gpu_hours))
    )


def total(amounts: Iterable[Amounts]) -> Amounts:
    """Return the sum of the known amounts, limited to what can be read back."""
    found = list(amounts)

    def sum_of(unit: str) -> Decimal:
        return min(_MOST, sum((each.of(unit) or Decimal(0) for each in found), Decimal(0)))

    return Amounts(sum_of("cost_usd"), sum_of("cost_su"), sum_of("gpu_hours"))
