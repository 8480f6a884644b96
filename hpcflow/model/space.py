"""The space of a sweep's parameters: values that vary, and their conditions.

A parameter is a choice among values, a range of numbers, or one value for all trials. With
``when``, it exists only if others have certain values. :mod:`hpcflow.model.space_section` parses
the YAML; samplers choose the values of a trial.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from hpcflow.model.scalars import shown

#: One value of a choice: a type that JSON, the command line and Optuna's database can hold.
Scalar = str | int | float | bool | None

#: More points than any cluster can train; a larger grid is a mistake.
MAX_POINTS: Final = 100_000
#: Tolerance in steps from a whole number of steps: samplers add floats.
_OFF_STEPS: Final = 1e-6


@dataclass(frozen=True)
class Choice:
    """Unordered values."""

    choices: tuple[Scalar, ...]


@dataclass(frozen=True)
class Range:
    """A number from ``low`` to ``high``, both included.

    Attributes:
        step: values are ``low`` plus whole steps; None for any number.
        is_log: as likely between 1 and 10 as between 10 and 100.
    """

    low: float
    high: float
    step: float | None
    is_log: bool
    is_int: bool

    def points(self) -> Sequence[int | float] | None:
        """Return all values if they can be counted. A range of whole numbers may have billions."""
        if self.is_int:
            return range(int(self.low), int(self.high) + 1, int(self.step or 1))
        if self.step is None:
            return None
        # As decimals, because 0.1 + 2 * 0.1 must be 0.3.
        low, high, step = (Decimal(repr(each)) for each in (self.low, self.high, self.step))
        return [float(low + index * step) for index in range(int((high - low) // step) + 1)]

    def complaint(self, value: object) -> str | None:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return f"expected a number, got {shown(value)}"
        if self.is_int and not isinstance(value, int):
            return f"expected a whole number, got {shown(value)}"
        if not self.low <= value <= self.high:
            return f"{shown(value)} is not from {self.low!r} to {self.high!r}"
        if self.step is not None:
            steps = (value - self.low) / self.step
            if abs(steps - round(steps)) > _OFF_STEPS:
                return f"{shown(value)} is not a whole number of steps above {self.low!r}"
        return None


@dataclass(frozen=True)
class Parameter:
    """One parameter.

    Attributes:
        when: other parameter -> the values with which this one exists; all must hold.
    """

    name: str
    values: Choice | Range
    when: Mapping[str, tuple[Scalar, ...]] = field(default_factory=dict)

    def is_there(self, params: Mapping[str, Any]) -> bool:
        """Return whether a trial with these values of the others has this parameter."""
        return all(
            name in params and is_one_of(params[name], values) for name, values in self.when.items()
        )

    def complaint(self, value: object) -> str | None:
        if isinstance(self.values, Range):
            return self.values.complaint(value)
        is_known = is_one_of(value, self.values.choices)
        return None if is_known else f"{shown(value)} is not one of its choices"

    def points(self) -> Sequence[Scalar] | None:
        """Return all its values if they can be counted."""
        return self.values.choices if isinstance(self.values, Choice) else self.values.points()


@dataclass(frozen=True)
class Space:
    """All parameters.

    Attributes:
        parameters: those that vary, each after the ones that its ``when`` names.
        constants: the same in every trial.
    """

    parameters: tuple[Parameter, ...]
    constants: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def is_conditional(self) -> bool:
        """Return whether some trials lack a parameter that others have."""
        return any(parameter.when for parameter in self.parameters)

    def uncountable(self) -> list[str]:
        """Return the parameters with more values than can be counted."""
        return [each.name for each in self.parameters if each.points() is None]

    def points(self) -> Iterator[dict[str, Scalar]]:
        """Return every possible combination once, without the constants.

        Raises:
            ValueError: they cannot be counted, or there are more than ``MAX_POINTS``.
        """
        points: list[dict[str, Scalar]] = [{}]
        for parameter in self.parameters:
            values = parameter.points()
            if values is None:
                raise ValueError(f"{parameter.name}: give a `step`, or `choices`")
            points = list(_with_each(points, parameter, values))
        return iter(points)

    def number_of_combinations(self) -> int | None:
        """Return the number of points; None if they cannot be counted, or not quickly."""
        if self.uncountable():
            return None
        if not self.is_conditional:
            return math.prod(len(each.points() or ()) for each in self.parameters)
        try:
            return sum(1 for _ in self.points())
        except ValueError:
            return None

    def complaint(self, params: Mapping[str, Any]) -> str | None:
        """Return why ``params`` are not the varying values of one trial; None if they are.

        A trial has a value for every existing parameter, and no others.
        """
        for parameter in self.parameters:
            name = parameter.name
            if not parameter.is_there(params):
                if name in params:
                    return f"{name} does not exist with these values of the others"
                continue
            if name not in params:
                return f"{name} is missing"
            if (said := parameter.complaint(params[name])) is not None:
                return f"{name}: {said}"
        known = {each.name for each in self.parameters}
        unknown = [name for name in params if name not in known]
        return f"{unknown[0]} is not a parameter of the space" if unknown else None


def is_same(one: object, other: object) -> bool:
    """Return whether two values are the same in YAML: ``1`` is not ``true``."""
    return isinstance(one, bool) is isinstance(other, bool) and one == other


def is_one_of(value: object, values: Sequence[Scalar]) -> bool:
    return any(is_same(value, each) for each in values)


def _with_each(
    points: Sequence[dict[str, Scalar]], parameter: Parameter, values: Sequence[Scalar]
) -> Iterator[dict[str, Scalar]]:
    """Yield ``points`` with every value of one more parameter, if it exists there."""
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
