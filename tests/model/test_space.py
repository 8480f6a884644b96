"""The space of a sweep: its points, how many there are, and what is refused of a file."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import strategies as st
from pydantic import ValidationError

from hpcflow.model.scalars import read_plain
from hpcflow.model.space import Choice, Parameter, Range, Scalar, Space
from hpcflow.model.space_section import (
    MAX_CHOICES,
    MAX_INT,
    MAX_NAME_CHARS,
    MAX_PARAMETERS,
    read_space,
)
from tests.sampled import sampled


def range_of(**said: Any) -> Range:
    values = read_space({"x": said}).parameters[0].values
    assert isinstance(values, Range)
    return values


def refusals(space: object) -> dict[str, str]:
    """Dotted key -> what is wrong with it."""
    with pytest.raises(ValueError) as caught:
        read_space(space)
    problems: list[Any] = [caught.value]
    if isinstance(caught.value, ValidationError):
        problems = [each["ctx"]["error"] for each in caught.value.errors()]
    return {".".join(map(str, getattr(each, "keys", ()))): str(each) for each in problems}


def refusal(**said: Any) -> tuple[str, str]:
    """Key and message of the one thing that is wrong with the parameter ``x``."""
    ((key, message),) = refusals({"x": said, "y": {"choices": [1, 2]}}).items()
    return key, message


# --- what is meant ------------------------------------------------------------------------------


def test_whole_numbers_are_those_that_are_written_without_a_point() -> None:
    assert range_of(low=1, high=4).is_int
    assert not range_of(low=1, high=4.0).is_int
    assert not range_of(low=0, high=1, step=0.5).is_int


def test_numbers_lose_how_they_were_written() -> None:
    low = range_of(low=read_plain("1e-3"), high=read_plain("3.10")).low
    assert (type(low), low) == (float, 0.001)
    choices = read_space({"x": {"choices": [read_plain("007"), read_plain("+1")]}})
    assert choices.parameters[0].values == Choice(("007", 1))
    assert type(choices.parameters[0].values.choices[1]) is int


def test_a_value_alone_is_the_same_in_all_trials() -> None:
    space = read_space({"a": None, "b": {"value": "x"}, "c": {"choices": [1, 2]}})
    assert space.constants == {"a": None, "b": "x"}
    assert [each.name for each in space.parameters] == ["c"]


def test_a_key_that_is_null_is_one_that_is_not_there() -> None:
    assert range_of(low=1, high=2, log=None, step=None) == range_of(low=1, high=2)
    assert read_space({"x": {"choices": [1], "when": None}}).parameters[0].when == {}


def test_steps_are_counted_as_a_person_counts_them() -> None:
    assert list(range_of(low=0.1, high=0.5, step=0.1).points() or ()) == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert list(range_of(low=1e-15, high=3e-15, step=1e-15).points() or ()) == [1e-15, 2e-15, 3e-15]
    assert list(range_of(low=0, high=10, step=4).points() or ()) == [0, 4, 8]
    assert range_of(low=0.0, high=1.0).points() is None


def test_one_step_is_enough_for_a_range() -> None:
    assert list(range_of(low=0.8, high=0.9, step=0.1).points() or ()) == [0.8, 0.9]


def test_a_sampler_that_adds_up_steps_is_forgiven_the_last_digits() -> None:
    values = range_of(low=-0.3, high=0.3, step=0.1)
    assert values.complaint(-0.3 + 3 * 0.1) is None
    assert values.complaint(0.1 + 0.2 - 0.3) is None
    assert values.complaint(0.05) is not None


@pytest.mark.parametrize("high", [10**9, MAX_INT])
def test_a_range_of_billions_is_not_written_out(high: int) -> None:
    space = read_space({"x": {"low": 1, "high": high, "log": True}})
    assert space.number_of_combinations() == high
    assert space.complaint({"x": high - 1}) is None
    with pytest.raises(ValueError, match="more than 100,000 combinations"):
        space.points()


def test_one_is_not_true() -> None:
    space = read_space({"x": {"choices": [1, 2]}, "y": {"choices": [5, 6], "when": {"x": 1}}})
    assert space.complaint({"x": True}) == "x: true is not one of its choices"
    assert space.complaint({"x": 1, "y": 5}) is None


# --- conditions ---------------------------------------------------------------------------------

SGD = {
    "nesterov": {"choices": [True, False], "when": {"momentum": [1, 2]}},
    "momentum": {"low": 0, "high": 2, "when": {"optimizer": "sgd"}},
    "optimizer": {"choices": ["adam", "sgd"]},
}


def test_what_is_there_follows_what_it_waits_for() -> None:
    space = read_space(SGD)
    assert [each.name for each in space.parameters] == ["optimizer", "momentum", "nesterov"]
    assert list(space.points()) == [
        {"optimizer": "adam"},
        {"optimizer": "sgd", "momentum": 0},
        {"optimizer": "sgd", "momentum": 1, "nesterov": True},
        {"optimizer": "sgd", "momentum": 1, "nesterov": False},
        {"optimizer": "sgd", "momentum": 2, "nesterov": True},
        {"optimizer": "sgd", "momentum": 2, "nesterov": False},
    ]
    assert space.number_of_combinations() == 6


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({}, "optimizer is missing"),
        ({"optimizer": "adam", "momentum": 1}, "momentum does not exist with these values"),
        ({"optimizer": "sgd"}, "momentum is missing"),
        ({"optimizer": "sgd", "momentum": 0, "nesterov": True}, "nesterov does not exist"),
        ({"optimizer": "sgd", "momentum": 3}, "momentum: the number 3 is not from 0 to 2"),
        ({"optimizer": "adam", "lr": 1}, "lr is not a parameter of the space"),
    ],
)
def test_what_is_no_point_is_told_why(params: dict[str, Any], said: str) -> None:
    assert said in str(read_space(SGD).complaint(params))


def test_a_long_chain_of_conditions_is_counted_in_a_moment() -> None:
    chain: dict[str, Any] = {"p0": {"choices": [1, 2]}}
    for number in range(1, MAX_PARAMETERS):
        chain[f"p{number}"] = {"choices": [1, 2], "when": {f"p{number - 1}": 1}}
    assert read_space(chain).number_of_combinations() == MAX_PARAMETERS + 1


def test_more_combinations_with_conditions_than_can_be_looked_at_are_not_counted() -> None:
    space = {f"p{number}": {"low": 1, "high": 9, "when": {"m": 1}} for number in range(9)}
    assert read_space({"m": {"choices": [1, 2]}, **space}).number_of_combinations() is None


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, 3, "x", [], {}, True, [{"x": 1}]])
def test_what_is_no_space_at_all(value: object) -> None:
    assert "expected parameters, such as" in refusals(value)[""]


def test_everything_that_is_wrong_is_told_at_once() -> None:
    said = refusals(
        {
            "a": {"low": 3, "high": 1},
            "b": {"choices": []},
            "c-d": 3,
            "e": {"choices": [1, True]},
            "f": {"low": "x", "high": 1},
            "g": {"low": 0, "high": 1},
        }
    )
    assert list(said) == ["a.high", "b.choices", "c-d", "e.choices.1", "f.low"]


def test_everything_that_is_wrong_with_conditions_is_told_at_once() -> None:
    said = refusals(
        {
            "a": {"choices": [1, 2], "when": {"constant": 3, "c": 5}},
            "b": {"choices": [1, 2], "when": {"nobody": 3}},
            "c": {"choices": [1, 2]},
            "d": {"choices": [1, 2], "when": {"e": 0.5, "c": True}},
            "e": {"low": 0.0, "high": 1.0},
            "constant": 3,
        }
    )
    assert said == {
        "a.when.constant": "it is a constant, the same in all trials",
        "a.when.c": "never true for c: the number 5 is not one of its choices",
        "b.when.nobody": "not a parameter that varies; there are: a, c, d, e",
        "d.when.e": "a condition needs `choices` or whole numbers, but this one can be any number",
        "d.when.c": "never true for c: true is not one of its choices",
    }


def test_conditions_in_a_circle_are_told_as_the_circle() -> None:
    circle = {
        "outside": {"choices": [1], "when": {"a": 1}},
        "a": {"choices": [1, 2], "when": {"b": 1}},
        "b": {"choices": [1, 2], "when": {"c": 1}},
        "c": {"choices": [1, 2], "when": {"a": 1}},
    }
    assert refusals(circle) == {"a.when": "circular conditions: a → b → c → a"}
    itself = {"a": {"choices": [1, 2], "when": {"a": 1}}}
    assert refusals(itself) == {"a.when": "circular conditions: a → a"}


@pytest.mark.parametrize(
    "name", ["", "a b", "1a", "a-b", "a.b", "ä", "a\n", "x" * (MAX_NAME_CHARS + 1), "$(x)"]
)
def test_a_name_is_one_that_a_program_can_have(name: str) -> None:
    said = refusals({name: {"choices": [1, 2]}, "y": {"choices": [1, 2]}})
    assert "letters, digits and _" in said[name]


@pytest.mark.parametrize(
    ("said", "key", "message"),
    [
        ({}, "x", "`low` is missing, or give `choices`, or a value"),
        ({"low": 1}, "x", "`high` is missing"),
        ({"choise": [1]}, "x.choise", "unknown key; there are: choices, low"),
        ({"choices": [1], "low": 1}, "x.low", "cannot be combined with `choices`"),
        ({"value": 1, "when": {"y": 1}}, "x.when", "cannot be combined with `value`"),
        ({"value": [1]}, "x.value", "expected a single value, got a list"),
        ({"choices": "adam"}, "x.choices", "expected a list such as [adam, sgd]"),
        ({"choices": [1, 1]}, "x.choices.1", "the number 1 is already a choice"),
        ({"choices": [1, 1.0]}, "x.choices.1", "the number 1.0 equals the number 1"),
        ({"choices": [0, False]}, "x.choices.1", "false equals the number 0"),
        ({"choices": [1, math.nan]}, "x.choices.1", "not finite, so JSON cannot hold it"),
        ({"choices": [{"a": 1}]}, "x.choices.0", "expected a single value, got a mapping"),
        ({"choices": [MAX_INT + 1]}, "x.choices.0", "too large a number; write it as a text"),
        ({"choices": ["a" * 501]}, "x.choices.0", "at most 500 characters"),
        ({"choices": ["a\0b"]}, "x.choices.0", "without NUL"),
        ({"choices": list(range(MAX_CHOICES + 1))}, "x.choices", "more than 10,000"),
        ({"low": math.nan, "high": 1}, "x.low", "expected a number, got the number nan"),
        ({"low": 0, "high": math.inf}, "x.high", "expected a number, got the number inf"),
        ({"low": True, "high": 2}, "x.low", "expected a number, got true"),
        ({"low": None, "high": 2}, "x.low", "expected a number, got nothing"),
        ({"low": 0, "high": MAX_INT + 1}, "x.high", "the largest is 9,007,199,254,740,992"),
        ({"low": -1.7e308, "high": 1.7e308}, "x.low", "the largest is 1e+300"),
        ({"low": 1, "high": 1}, "x.high", "must be more than `low`, the number 1"),
        ({"low": 0, "high": 1, "log": True}, "x.low", "more than 0 where `log` is true"),
        ({"low": 1, "high": 2, "log": "yes"}, "x.log", "expected true or false"),
        ({"low": 1, "high": 2, "log": True, "step": 1}, "x.step", "has no steps"),
        ({"low": 0, "high": 1, "step": 0}, "x.step", "must be more than 0"),
        ({"low": 0, "high": 1, "step": 2}, "x.step", "at most `high` minus `low`"),
        ({"low": 0.0, "high": 1.0, "step": 1e-9}, "x.step", "makes more than 100,000 values"),
        ({"low": 1e15, "high": 1e15 + 1, "step": 0.1}, "x.step", "too small relative to"),
        ({"low": 0, "high": 1, "when": "y"}, "x.when", "expected another parameter and its value"),
        ({"low": 0, "high": 1, "when": {"y": []}}, "x.when.y", "must not be empty"),
        ({"low": 0, "high": 1, "when": {"y": {}}}, "x.when.y", "expected a single value"),
    ],
)
def test_a_parameter_that_means_nothing(said: dict[str, Any], key: str, message: str) -> None:
    found_key, found = refusal(**said)
    assert found_key == key
    assert message in found


def test_a_space_where_nothing_varies_and_one_where_too_much_does() -> None:
    assert "nothing varies" in refusals({"x": 1})[""]
    many = {f"p{number}": {"choices": [1]} for number in range(MAX_PARAMETERS + 1)}
    assert "more than 1,000 parameters" in refusals(many)[""]


# --- any space ----------------------------------------------------------------------------------

SCALARS: st.SearchStrategy[Scalar] = (
    st.none()
    | st.booleans()
    | st.integers(-MAX_INT, MAX_INT)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
)
CHOICES = st.lists(SCALARS, min_size=1, max_size=4, unique=True).map(
    lambda values: {"choices": values}
)
WHOLE = st.tuples(st.integers(-50, 50), st.integers(1, 6), st.integers(1, 3)).map(
    lambda t: {"low": t[0], "high": t[0] + t[1] * t[2], "step": t[2]}
)
STEPS = st.tuples(
    st.integers(-50, 50), st.integers(1, 6), st.sampled_from([0.1, 0.25, 0.3, 1e-7, 1e6])
).map(lambda t: {"low": t[0] * t[2], "high": round((t[0] + t[1] + 0.1) * t[2], 9), "step": t[2]})


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    """Any space that can be counted, with conditions on parameters before, in any order."""
    said: dict[str, Any] = {}
    values: dict[str, list[Scalar]] = {}
    for number in range(draw(st.integers(1, 5))):
        name = f"p{number}"
        said[name] = dict(draw(CHOICES | WHOLE | STEPS))
        (alone,) = read_space({name: said[name]}).parameters
        others = draw(st.lists(st.sampled_from(list(values)), max_size=2)) if values else ()
        if others:
            said[name]["when"] = {
                other: draw(st.lists(st.sampled_from(values[other]), min_size=1, max_size=3))
                for other in others
            }
        if isinstance(alone.values, Choice) or alone.values.is_int:
            values[name] = list(alone.points() or ())
    return read_space({key: said[key] for key in draw(st.permutations(list(said)))})


@sampled(80, 1000, spaces())
def test_every_point_of_a_space_is_one_and_there_is_none_twice(space: Space) -> None:
    points = list(space.points())
    assert len(points) == space.number_of_combinations()
    assert len({tuple((k, repr(v)) for k, v in point.items()) for point in points}) == len(points)
    for point in points:
        assert space.complaint(point) is None


@sampled(80, 1000, space=spaces(), data=st.data())
def test_what_is_accepted_is_a_point(space: Space, data: st.DataObject) -> None:
    points = list(space.points())
    params: dict[str, Any] = dict(data.draw(st.sampled_from(points)))
    of_others = st.sampled_from([value for each in points for value in each.values()])
    for name in data.draw(st.lists(st.sampled_from([*params, "other"]), max_size=2)):
        if data.draw(st.booleans()):
            params.pop(name, None)
        else:
            params[name] = data.draw(of_others | SCALARS)
    is_point = any(is_meant(params, point, space) for point in points)
    assert (space.complaint(params) is None) is is_point


def is_meant(params: dict[str, Any], point: dict[str, Any], space: Space) -> bool:
    """Whether a person who wrote ``params`` means ``point``."""
    return params.keys() == point.keys() and all(
        is_value(params[each.name], point[each.name], each)
        for each in space.parameters
        if each.name in point
    )


def is_value(value: object, of_point: Any, parameter: Parameter) -> bool:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return type(value) is type(of_point) and value == of_point
    if isinstance(of_point, bool) or not isinstance(of_point, (int, float)):
        return False
    values = parameter.values
    if isinstance(values, Range) and values.step is not None and not values.is_int:
        return abs(value - of_point) < 2e-6 * values.step and values.low <= value <= values.high
    return value == of_point and (isinstance(values, Choice) or isinstance(value, int))
