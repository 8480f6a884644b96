"""Properties of values drawn by chance: of some in ``make test``, of many in ``make soak``."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from types import FunctionType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings


def sampled(
    few: int, many: int, *values: Any, **named: Any
) -> Callable[[Callable[..., None]], Any]:
    """As hypothesis's ``given``, for so many examples; the test may also take fixtures."""

    def decorate(test: Callable[..., None]) -> Any:
        def of_some(examples: int, **fixtures: Any) -> None:
            properties[examples](**fixtures)

        drawn: Callable[..., Any] = given(*values, **named)
        properties = {
            count: settings(
                max_examples=count,
                deadline=None,
                suppress_health_check=[HealthCheck.function_scoped_fixture],
            )(drawn(_copy(test)))
            for count in (few, many)
        }
        takes = signature(properties[few])
        examples = Parameter("examples", Parameter.POSITIONAL_OR_KEYWORD)
        of_some.__signature__ = takes.replace(  # type: ignore[attr-defined]
            parameters=[examples, *takes.parameters.values()]
        )
        of_some.__name__, of_some.__doc__ = test.__name__, test.__doc__
        of_some.__module__ = test.__module__
        counts = [few, pytest.param(many, marks=pytest.mark.soak)]
        return pytest.mark.parametrize("examples", counts)(of_some)

    return decorate


def _copy(test: Callable[..., None]) -> Callable[..., None]:
    """hypothesis takes a function once."""
    assert isinstance(test, FunctionType)
    copy = FunctionType(
        test.__code__, test.__globals__, test.__name__, test.__defaults__, test.__closure__
    )
    copy.__kwdefaults__, copy.__annotations__ = test.__kwdefaults__, test.__annotations__
    copy.__dict__.update(test.__dict__)
    copy.__module__, copy.__doc__ = test.__module__, test.__doc__
    copy.__qualname__ = test.__qualname__
    return copy
