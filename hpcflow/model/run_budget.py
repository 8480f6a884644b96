"""The most that a run may cost: a section of a run's YAML."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from hpcflow.model.kinds import Kind, Section

_MOST = 10**12
_DIGITS = 8
_MOST_DIGITS = 40


def _amount(value: object) -> object:
    """Return a number, or a text of one: quotes keep all digits, and run.json stores text."""
    said = "expected an amount like 50 or 12.50"
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal)):
        raise ValueError(said)
    try:
        amount = Decimal(str(value)) if len(str(value)) <= 40 else Decimal("nan")
    except InvalidOperation:
        raise ValueError(said) from None
    if not amount.is_finite():
        raise ValueError(said)
    if not 0 < amount <= _MOST:
        raise ValueError("must be more than 0 and at most 10^12")
    # A decimal with a large exponent has more digits than memory can hold.
    is_tiny = int(amount.as_tuple().exponent) < -_MOST_DIGITS
    if is_tiny or int(amount.normalize().as_tuple().exponent) < -_DIGITS:
        raise ValueError("must have at most 8 decimal places, as bills have")
    return amount if int(amount.as_tuple().exponent) >= -_DIGITS else amount.normalize()


Amount = Annotated[
    Decimal,
    BeforeValidator(_amount),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "maximum": _MOST},
                {"type": "string", "pattern": r"^[0-9]{1,12}(\.[0-9]{1,8})?$"},
            ]
        }
    ),
    Kind("amount above 0"),
]


class RunBudget(Section):
    """Limits for all attempts of a run together. No attempt is submitted that could exceed one.

    `hpcflow budget set run:ID` sets the same limits. See [budgets.md](budgets.md).
    """

    cost_usd: Amount | None = Field(
        None, description="A limit in USD, by the prices of the site.", examples=[50]
    )
    cost_su: Amount | None = Field(None, description="A limit in service units.", examples=[2000])
    gpu_hours: Amount | None = Field(None, description="A limit in GPU hours.", examples=[100])
    on_exceeded: Literal["finish", "save_and_stop"] = Field(
        "finish",
        description="What to do with a running attempt if a limit is reached nevertheless. "
        "`finish`: it continues. `save_and_stop`: it gets the notice to save and exit.",
        examples=["save_and_stop"],
    )
