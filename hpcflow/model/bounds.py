"""Numbers and times in records that other users may have written, or that were damaged.

The bounds keep sums, products and powers finite. Real records are far from them, so none is refused
when it is written.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Final

from pydantic import AfterValidator, AwareDatetime, Field, PlainSerializer

from hpcflow.clock import EARLIEST, LATEST, to_text

MAX_ATTEMPT: Final = 999_999
#: Larger bounds are compared as Python's integers, which takes longer.
MOST_COUNT: Final = 2**63 - 1
_MOST: Final = 10**18
#: Largest exponent of a decimal number: 1E-999999 has as many digits.
_MOST_DIGITS: Final = 40
#: With a zone, and in the range that :func:`hpcflow.clock.from_text` reads.
Moment = Annotated[AwareDatetime, Field(ge=EARLIEST, lt=LATEST), PlainSerializer(to_text)]


def _plain(value: Decimal) -> Decimal:
    if abs(int(value.as_tuple().exponent)) > _MOST_DIGITS:
        raise ValueError("too many digits")
    return value


AttemptNumber = Annotated[int, Field(ge=1, le=MAX_ATTEMPT)]
#: 0 for none.
AttemptOrNone = Annotated[int, Field(ge=0, le=MAX_ATTEMPT)]
Times = Annotated[int, Field(ge=0, le=2**31 - 1)]
#: Of nodes, train steps, bytes.
Count = Annotated[int, Field(ge=0, le=MOST_COUNT)]
#: As in the kernel and in Slurm.
ExitCode = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]
Seconds = Annotated[float, Field(ge=-_MOST, le=_MOST, allow_inf_nan=False)]
#: Hours, or money.
Amount = Annotated[Decimal, Field(ge=-_MOST, le=_MOST, allow_inf_nan=False), AfterValidator(_plain)]
