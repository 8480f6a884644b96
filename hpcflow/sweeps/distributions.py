"""Convert the parameter space to Optuna's distributions."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import Trial

from hpcflow.model.space import Choice, Parameter, Range, Scalar, Space


def distribution_of(values: Choice | Range) -> BaseDistribution:
    if isinstance(values, Choice):
        return CategoricalDistribution(values.choices)
    return _of_range(values)


@lru_cache(maxsize=256)  # slow for a fine step, and called for each trial
def _of_range(values: Range) -> BaseDistribution:
    if values.is_int:
        low, high, step = int(values.low), int(values.high), int(values.step or 1)
        return IntDistribution(low, high - (high - low) % step, log=values.is_log, step=step)
    if values.step is None:
        return FloatDistribution(values.low, values.high, log=values.is_log)
    points = values.points()
    assert points
    return FloatDistribution(values.low, points[-1], step=values.step)


def distributions_of(space: Space, params: dict[str, Scalar]) -> dict[str, BaseDistribution]:
    """Return the distributions of the parameters in ``params``."""
    return {
        each.name: distribution_of(each.values) for each in space.parameters if each.name in params
    }


def suggest(trial: Trial, space: Space) -> dict[str, Scalar]:
    """Let Optuna choose a value for every parameter whose conditions hold."""
    chosen: dict[str, Scalar] = {}
    for parameter in space.parameters:
        if parameter.is_there(chosen):
            chosen[parameter.name] = _suggest(trial, parameter)
    return chosen


def _suggest(trial: Trial, parameter: Parameter) -> Scalar:
    found: Any = distribution_of(parameter.values)
    name = parameter.name
    value: Scalar
    if isinstance(found, CategoricalDistribution):
        value = trial.suggest_categorical(name, found.choices)
    elif isinstance(found, IntDistribution):
        value = trial.suggest_int(name, found.low, found.high, step=found.step, log=found.log)
    else:
        value = trial.suggest_float(name, found.low, found.high, step=found.step, log=found.log)
        return _as_written(parameter.values, value)
    return value


def _as_written(values: Choice | Range, value: float) -> float:
    """Return the point of the range nearest to ``value``: Optuna returns 0.30000000000000004."""
    points = values.points() if isinstance(values, Range) and values.step is not None else None
    return min(points, key=lambda point: abs(point - value)) if points else value
