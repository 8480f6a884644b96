"""The kinds of numbers in a sweep's file; kinds.py has those of every file."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    WithJsonSchema,
)

from hpcflow.model.kinds import (
    MAX_NODES,
    Kind,
)

MAX_TRIALS: Final = 100_000
MAX_PARALLEL: Final = 10_000
#: A larger number of hours, money or a metric is an error, and sums would overflow.
_MAX_NUMBER: Final = 1e300
Trials = Annotated[int, Field(strict=True, ge=1, le=MAX_TRIALS), Kind("whole number from 1")]
Parallel = Annotated[int, Field(strict=True, ge=1, le=MAX_PARALLEL), Kind("whole number from 1")]
FromTwo = Annotated[int, Field(strict=True, ge=2, le=MAX_NODES), Kind("whole number from 2")]
Repeats = Annotated[int, Field(strict=True, ge=1, le=99), Kind("whole number from 1 to 99")]
Points = Annotated[int, Field(strict=True, ge=1, le=10**12), Kind("whole number from 1")]
PointsOrNone = Annotated[int, Field(strict=True, ge=0, le=10**12), Kind("whole number from 0")]
Seed = Annotated[int, Field(strict=True, ge=0, le=2**31 - 1), Kind("whole number from 0")]


def _number(value: object) -> object:
    """Refuse text, booleans, NaN and infinity."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise ValueError("expected a number")
    if math.isnan(value):
        raise ValueError("expected a number")
    if not -_MAX_NUMBER <= float(value) <= _MAX_NUMBER:
        raise ValueError("too large a number")
    return value


def _must_be(is_right: Callable[[Any], bool], what: str) -> AfterValidator:
    def checked(value: Any) -> Any:
        if not is_right(value):
            raise ValueError(f"must be {what}")
        return value

    return AfterValidator(checked)


def not_zero(value: int) -> int:
    """Return ``value``, in seconds, or raise ValueError if it is zero."""
    if value == 0:
        raise ValueError("must be longer than zero")
    return value


_IS_NUMBER: Final = BeforeValidator(_number)
Number = Annotated[
    float,
    _IS_NUMBER,
    WithJsonSchema({"type": "number", "minimum": -_MAX_NUMBER, "maximum": _MAX_NUMBER}),
    Kind("number"),
]
NumberOrNone = Annotated[
    float,
    _must_be(lambda value: value >= 0, "0 or more"),
    _IS_NUMBER,
    WithJsonSchema({"type": "number", "minimum": 0, "maximum": _MAX_NUMBER}),
    Kind("number from 0"),
]
Amount = Annotated[
    Decimal,
    _must_be(lambda value: value > 0, "more than 0"),
    _IS_NUMBER,
    WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "maximum": _MAX_NUMBER}),
    Kind("number above 0"),
]
Percentile = Annotated[
    float,
    _must_be(lambda value: 0 < value < 100, "more than 0 and less than 100"),
    _IS_NUMBER,
    WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 100}),
    Kind("number above 0 and below 100"),
]
Quantile = Annotated[
    float,
    _must_be(lambda value: 0 < value <= 0.5, "more than 0 and at most 0.5"),
    _IS_NUMBER,
    WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}),
    Kind("number above 0, up to 0.5"),
]
