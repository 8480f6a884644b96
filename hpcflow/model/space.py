"""The space of a sweep's parameters: values that vary, and their conditions.

A parameter is a choice among values, or a range of numbers, or one value for all trials. It may be
there only ``when`` others have certain values. How they are written in a sweep's YAML is in
:mod:`hpcflow.model.space_section`; which values a trial gets is not decided here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from hpcflow.model.scalars import shown

#: One value of a choice: what JSON, the command line and Optuna's database all can hold.
Scalar = str | int | float | bool | None

#: More points than any cluster trains; beyond, a grid is a mistake in writing.
MAX_POINTS: Final = 100_000
#: How far a number may be from a whole number of steps, in steps: samplers add floats.
_OFF_STEPS: Final = 1e-6


@dataclass(frozen=True)
class Choice:
    """One of these values, which have no order."""

    choices: tuple[Scalar, ...]


@dataclass(frozen=True)
class Range:
    """A number from ``low`` to ``high``, both included.

    Attributes:
        step: only ``low`` and whole steps above it; None for any number.
        is_log: as likely between 1 and 10 as between 10 and 100.
        is_int: a whole number.
    """

    low: float
    high: float
    step: float | None
    is_log: bool
    is_int: bool

    def points(self) -> Sequence[int | float] | None:
        """All values, if they can be counted. Of whole numbers there may be billions."""
        if self.is_int:
            return range(int(self.low), int(self.high) + 1, int(self.step or 1))
        if self.step is None:
            return None
        # As decimals, for 0.1 + 2 * 0.1 is to be 0.3.
        low, high, step = (Decimal(repr(each)) for each in (self.low, self.high, self.step))
        return [float(low + index * step) for index in range(int((high - low) // step) + 1)]

    def complaint(self, value: object) -> str | None:
        """What is wrong with ``value`` as one of these; None if nothing is."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return f"expected a number, got {shown(value)}"
        if self.is_int and not isinstance(value, int):
            return f"expected a whole number, got {shown(value)}"
        if not self.low <= value <= self.high:
            return f"{shown(value)} is not from {self.low!r} to {self.high!r}"
        if self.step is not None:
            steps = (value - self.low) / self.step
            if abs(steps - round(steps)) > _OFF_STEPS:
                return f"{shown(value)} is no whole number of steps above {self.low!r}"
        return None


@dataclass(frozen=True)
class Parameter:
    """One parameter.

    Attributes:
        when: other parameter -> the values with which this one is there; all must hold.
    """

    name: str
    values: Choice | Range
    when: Mapping[str, tuple[Scalar, ...]] = field(default_factory=dict)

    def is_there(self, params: Mapping[str, Any]) -> bool:
        """Whether a trial with these values of the others has this parameter."""
        return all(
            name in params and is_one_of(params[name], values) for name, values in self.when.items()
        )

    def complaint(self, value: object) -> str | None:
        """What is wrong with ``value`` as one of this parameter; None if nothing is."""
        if isinstance(self.values, Range):
            return self.values.complaint(value)
        is_known = is_one_of(value, self.values.choices)
        return None if is_known else f"{shown(value)} is not one of its choices"

    def points(self) -> Sequence[Scalar] | None:
        """All its values, if they can be counted."""
        return self.values.choices if isinstance(self.values, Choice) else self.values.points()


@dataclass(frozen=True)
class Space:
    """All parameters.

    Attributes:
        parameters: those that vary, each after the ones that its ``when`` names.
        constants: the others, which every trial has.
    """

    parameters: tuple[Parameter, ...]
    constants: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def is_conditional(self) -> bool:
        """Whether some trials lack a parameter that others have."""
        return any(parameter.when for parameter in self.parameters)

    def uncountable(self) -> list[str]:
        """The parameters with more values than can be counted."""
        return [each.name for each in self.parameters if each.points() is None]

    def points(self) -> Iterator[dict[str, Scalar]]:
        """Every combination that a trial can have, once, without the constants.

        Raises:
            ValueError: they cannot be counted, or are more than ``MAX_POINTS``.
        """
        points: list[dict[str, Scalar]] = [{}]
        for parameter in self.parameters:
            values = parameter.points()
            if values is None:
                raise ValueError(f"{parameter.name}: give a `step`, or `choices`")
            points = list(_with_each(points, parameter, values))
        return iter(points)

    def number_of_combinations(self) -> int | None:
        """How many points there are; None where they cannot be counted, or not in a moment."""
        if self.uncountable():
            return None
        if not self.is_conditional:
            return math.prod(len(each.points() or ()) for each in self.parameters)
        try:
            return sum(1 for _ in self.points())
        except ValueError:
            return None

    def complaint(self, params: Mapping[str, Any]) -> str | None:
        """What is wrong with ``params`` as the varying values of one trial; None if nothing is.

        Every parameter that is there must have a value, and no other.
        """
        for parameter in self.parameters:
            name = parameter.name
            if not parameter.is_there(params):
                if name in params:
                    return f"{name} is not there with these values of the others"
                continue
            if name not in params:
                return f"{name} is missing"
            if (said := parameter.complaint(params[name])) is not None:
                return f"{name}: {said}"
        known = {each.name for each in self.parameters}
        unknown = [name for name in params if name not in known]
        return f"{unknown[0]} is no parameter of the space" if unknown else None


def is_same(one: object, other: object) -> bool:
    """Whether two values are the same one to a reader of YAML: ``1`` is not ``true``."""
    return isinstance(one, bool) is isinstance(other, bool) and one == other


def is_one_of(value: object, values: Sequence[Scalar]) -> bool:
    """Whether ``value`` is among ``values``."""
    return any(is_same(value, each) for each in values)


def _with_each(
    points: Sequence[dict[str, Scalar]], parameter: Parameter, values: Sequence[Scalar]
) -> Iterator[dict[str, Scalar]]:
    """``points`` with every value of one more parameter, where it is there."""
    number = 0
    for point in points:
        is_there = parameter.is_there(point)
        number += len(values) if is_there else 1
        if number > MAX_POINTS:
            raise ValueError(f"more than {MAX_POINTS:,} combinations")
        if not is_there:
            yield point
            continue
        for value in values[:-1]:
            yield {**point, parameter.name: value}
        point[parameter.name] = values[-1]  # not copied: there may be very many parameters
        yield point
