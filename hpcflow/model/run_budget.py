"""What a run may take in all: a section of a run's YAML."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from hpcflow.model.kinds import Kind, Section

_MOST = 10**12
_DIGITS = 8
_MOST_DIGITS = 40


def _amount(value: object) -> object:
    """A number, or a text of one: quotes keep all digits, and run.json has it so."""
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
    # Some exponents have more digits than there is memory for what they would be written out as.
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
    """What all attempts of the run together may take; none is sent that may lead beyond.

    It is `hpcflow budget set run:ID`, said in the config. See [budgets.md](budgets.md).
    """

    cost_usd: Amount | None = Field(
        None, description="So much money, by the prices of the site.", examples=[50]
    )
    cost_su: Amount | None = Field(None, description="So many service units.", examples=[2000])
    gpu_hours: Amount | None = Field(None, description="So many GPU hours.", examples=[100])
    on_exceeded: Literal["finish", "save_and_stop"] = Field(
        "finish",
        description="What becomes of an attempt that runs when it is reached all the same: "
        "`finish`, or `save_and_stop` for the notice to save and leave.",
        examples=["save_and_stop"],
    )
