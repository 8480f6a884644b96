"""Some of very many cases in ``make test``, all or more of them in ``make soak``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, signature
from itertools import combinations, product
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


def crossed(
    names: str, *values: Sequence[Any], always: Sequence[tuple[Any, ...]] = ()
) -> pytest.MarkDecorator:
    """Parametrize with all combinations of three or more values. ``make test`` has those in which
    each two values meet, and those in ``always``; only ``make soak`` has the others."""
    every = list(product(*map(range, map(len, values))))
    meetings = {each: set(combinations(enumerate(each), 2)) for each in every}
    left, few = set().union(*meetings.values()), set()
    while left:
        best = max(every, key=lambda each: len(meetings[each] & left))
        few.add(best)
        left -= meetings[best]
    params = []
    for each in every:
        case = tuple(value[index] for value, index in zip(values, each, strict=True))
        is_long = each not in few and case not in always
        params.append(pytest.param(*case, marks=pytest.mark.soak if is_long else ()))
    return pytest.mark.parametrize(names, params)


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
