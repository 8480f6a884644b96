"""Numbers in records that others may have written, or that were damaged.

All are so small that sums, products and powers of them stay numbers. Honest records are far from
the bounds, so none is refused when it is written.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Final

from pydantic import AfterValidator, Field

MAX_ATTEMPT: Final = 999_999
MOST_COUNT: Final = 2**64
_MOST: Final = 10**18
#: The same as an exponent that a decimal number may have: 1E-999999 has as many digits.
_MOST_DIGITS: Final = 40


def _plain(value: Decimal) -> Decimal:
    if abs(int(value.as_tuple().exponent)) > _MOST_DIGITS:
        raise ValueError("too many digits")
    return value


AttemptNumber = Annotated[int, Field(ge=1, le=MAX_ATTEMPT)]
#: The number of an attempt, or 0 for none.
AttemptOrNone = Annotated[int, Field(ge=0, le=MAX_ATTEMPT)]
#: How often something was done.
Times = Annotated[int, Field(ge=0, le=2**31 - 1)]
#: How many there are of anything: nodes, train steps, bytes.
Count = Annotated[int, Field(ge=0, le=MOST_COUNT)]
#: As the kernel and Slurm have it.
ExitCode = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]
Seconds = Annotated[float, Field(ge=-_MOST, le=_MOST, allow_inf_nan=False)]
#: Hours, or money.
Amount = Annotated[Decimal, Field(ge=-_MOST, le=_MOST, allow_inf_nan=False), AfterValidator(_plain)]
