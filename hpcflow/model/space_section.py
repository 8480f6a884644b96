"""The section ``space`` of a sweep's YAML, read into a :class:`~hpcflow.model.space.Space`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, ValidationError, WithJsonSchema
from pydantic_core import InitErrorDetails

from hpcflow.model.kinds import Kind, WrongKey
from hpcflow.model.scalars import shown
from hpcflow.model.space import MAX_POINTS, Choice, Parameter, Range, Scalar, Space

MAX_CHOICES: Final = 10_000
#: More than any sampler supports.
MAX_PARAMETERS: Final = 1000
#: Beyond it, a double cannot tell neighbouring integers apart.
MAX_INT: Final = 2**53
#: Beyond it, the width of a range may overflow.
MAX_FLOAT: Final = 1e300
MAX_TEXT_CHARS: Final = 500
MAX_NAME_CHARS: Final = 100
#: A smaller step, relative to the bounds, is lost in the rounding of a double.
_LEAST_STEP: Final = 1e-12
#: The keys of a parameter.
KEYS: Final = ("choices", "low", "high", "step", "log", "value", "when")


def all_wrong(problems: Sequence[WrongKey], value: object) -> ValueError:
    """Return all ``problems`` of keys below ``value`` as one error for pydantic to list."""
    if len(problems) == 1:
        return problems[0]
    return ValidationError.from_exception_data(
        "several",
        [
            InitErrorDetails(type="value_error", loc=(), input=value, ctx={"error": each})
            for each in problems
        ],
    )


def read_space(value: object) -> Space:
    """Return the space that the YAML section ``space`` describes.

    Raises:
        ValueError: it describes none; all wrong keys at once: see :func:`all_wrong`.
    """
    if isinstance(value, Space):
        return value
    if not isinstance(value, dict) or not value:
        raise ValueError("expected parameters, such as `lr: {low: 1e-5, high: 1e-1, log: true}`")
    if len(value) > MAX_PARAMETERS:
        raise ValueError(f"more than {MAX_PARAMETERS:,} parameters")
    found: dict[str, Parameter] = {}
    constants: dict[str, Scalar] = {}
    problems: list[WrongKey] = []
    for name, said in value.items():
        try:
            _read_one(str(name), said, found, constants)
        except WrongKey as problem:  # noqa: PERF203 - report all
            problems.append(problem)
    if not problems:
        problems = _wrong_conditions(found, constants)
    if problems:
        raise all_wrong(problems, value)
    if not found:
        raise ValueError("nothing varies: give a parameter `choices`, or `low` and `high`")
    return Space(tuple(_in_dependency_order(found)), constants)


def _read_one(
    name: str, said: object, found: dict[str, Parameter], constants: dict[str, Scalar]
) -> None:
    if len(name) > MAX_NAME_CHARS or not (name.isascii() and name.isidentifier()):
        raise WrongKey(
            f"not a name: use at most {MAX_NAME_CHARS} letters, digits and _, like learning_rate",
            name,
        )
    if not isinstance(said, dict):
        constants[name] = _scalar(said, name)
    elif "value" in said:
        _require_only(said, ("value",), name)
        constants[name] = _scalar(said["value"], name, "value")
    else:
        found[name] = _parameter(name, said)


def _parameter(name: str, said: dict[str, Any]) -> Parameter:
    unknown = [key for key in said if key not in KEYS]
    if unknown:
        raise WrongKey(f"unknown key; there are: {', '.join(KEYS)}", name, str(unknown[0]))
    if "choices" in said:
        _require_only(said, ("choices", "when"), name)
        values: Choice | Range = _choice(said["choices"], name)
    else:
        values = _range(said, name)
    return Parameter(name, values, _when(said.get("when"), name))


def _require_only(said: dict[str, Any], keys: tuple[str, ...], name: str) -> None:
    for key in said:
        if key not in keys:
            raise WrongKey(f"cannot be combined with `{keys[0]}`", name, str(key))


def _choice(value: object, name: str) -> Choice:
    if not isinstance(value, list) or not value:
        raise WrongKey("expected a list such as [adam, sgd]", name, "choices")
    if len(value) > MAX_CHOICES:
        raise WrongKey(f"more than {MAX_CHOICES:,}", name, "choices")
    # As Python, and therefore Optuna, compares: 1 and true are the same choice.
    choices: dict[Scalar, Scalar] = {}
    for index, each in enumerate(value):
        scalar = _scalar(each, name, "choices", index)
        if scalar in choices:
            twin = shown(choices[scalar])
            kept_apart = "" if shown(scalar) == twin else f"equals {twin}, which "
            raise WrongKey(
                f"{shown(scalar)} {kept_apart}is already a choice", name, "choices", index
            )
        choices[scalar] = scalar
    return Choice(tuple(choices.values()))


def _scalar(value: object, name: str, *place: str | int) -> Scalar:
    """Return a single value in plain types, without the notation that the YAML reader keeps."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, name, *place)
    if isinstance(value, int):
        if abs(value) > MAX_INT:
            raise WrongKey("too large a number; write it as a text", name, *place)
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise WrongKey("not finite, so JSON cannot hold it; give it as a text", name, *place)
        return float(value)
    hint = (
        "write `choices: […]` to vary it"
        if isinstance(value, list) and not place
        else "give a name, and let the program make the list or mapping"
    )
    raise WrongKey(f"expected a single value, got {shown(value)}; {hint}", name, *place)


def _text(value: str, name: str, *place: str | int) -> str:
    if len(value) > MAX_TEXT_CHARS or "\0" in value:
        raise WrongKey(
            f"expected a text of at most {MAX_TEXT_CHARS} characters, without NUL", name, *place
        )
    return str(value)


def _range(said: dict[str, Any], name: str) -> Range:
    for key in ("low", "high"):
        if key not in said:
            hint = "" if "low" in said or "high" in said else ", or give `choices`, or a value"
            raise WrongKey(f"`{key}` is missing{hint}", name)
    low, high = (_number(said[key], name, key) for key in ("low", "high"))
    step = _number(said["step"], name, "step") if said.get("step") is not None else None
    is_log = said["log"] if said.get("log") is not None else False
    if not isinstance(is_log, bool):
        raise WrongKey(f"expected true or false, got {shown(is_log)}", name, "log")
    is_int = all(isinstance(each, int) for each in (low, high, step) if each is not None)
    if low >= high:
        raise WrongKey(f"must be more than `low`, {shown(low)}", name, "high")
    if is_log and low <= 0:
        raise WrongKey("must be more than 0 where `log` is true", name, "low")
    if step is not None:
        _check_step(step, low, high, is_log=is_log, name=name)
    return Range(low, high, step, is_log, is_int)


def _check_step(step: float, low: float, high: float, *, is_log: bool, name: str) -> None:
    if is_log:
        raise WrongKey("a `log` range has no steps; remove one of the two", name, "step")
    # As decimals, because from 0.8 to 0.9 is one step of 0.1.
    width = Decimal(repr(high)) - Decimal(repr(low))
    if step <= 0 or width < Decimal(repr(step)):
        raise WrongKey("must be more than 0, and at most `high` minus `low`", name, "step")
    if width / Decimal(repr(step)) > MAX_POINTS:
        raise WrongKey(f"makes more than {MAX_POINTS:,} values", name, "step")
    if step < _LEAST_STEP * max(abs(low), abs(high)):
        raise WrongKey("too small relative to `low` and `high`", name, "step")


def _number(value: object, *place: str) -> int | float:
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or (isinstance(value, float) and not math.isfinite(value))
    ):
        raise WrongKey(f"expected a number, got {shown(value)}", *place)
    most = MAX_INT if isinstance(value, int) else MAX_FLOAT
    if abs(value) > most:
        raise WrongKey(f"too large a number, the largest is {most:,}", *place)
    return int(value) if isinstance(value, int) else float(value)


def _when(value: object, name: str) -> dict[str, tuple[Scalar, ...]]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not value:
        raise WrongKey("expected another parameter and its value: {optimizer: sgd}", name, "when")
    found: dict[str, tuple[Scalar, ...]] = {}
    for other, values in value.items():
        listed = values if isinstance(values, list) else [values]
        if not listed:
            raise WrongKey("must not be empty", name, "when", str(other))
        if len(listed) > MAX_CHOICES:
            raise WrongKey(f"more than {MAX_CHOICES:,}", name, "when", str(other))
        found[str(other)] = tuple(_condition(each, name, str(other)) for each in listed)
    return found


def _condition(value: object, name: str, other: str) -> Scalar:
    try:
        return _scalar(value, other)
    except WrongKey as problem:
        raise WrongKey(str(problem), name, "when", other) from None


def _wrong_conditions(
    found: Mapping[str, Parameter], constants: Mapping[str, Scalar]
) -> list[WrongKey]:
    wrong: list[WrongKey] = []
    for parameter in found.values():
        for other, values in parameter.when.items():
            said = _complaint(parameter.name, other, values, found, constants)
            if said is not None:
                wrong.append(WrongKey(said, parameter.name, "when", other))
    if not wrong and (circle := _condition_cycle(found)):
        way = " → ".join([*circle, circle[0]])
        wrong.append(WrongKey(f"circular conditions: {way}", circle[0], "when"))
    return wrong


def _complaint(
    name: str,
    other: str,
    values: tuple[Scalar, ...],
    found: Mapping[str, Parameter],
    constants: Mapping[str, Scalar],
) -> str | None:
    """Return why the condition that ``other`` has one of ``values`` is wrong; None if it is not."""
    if other in constants:
        return "it is a constant, the same in all trials"
    if other not in found:
        known = ", ".join(each for each in found if each != name)
        return f"not a parameter that varies; there are: {known or 'no others'}"
    condition = found[other]
    if isinstance(condition.values, Range) and not condition.values.is_int:
        return "a condition needs `choices` or whole numbers, but this one can be any number"
    for value in values:
        if (said := condition.complaint(value)) is not None:
            return f"never true for {other}: {said}"
    return None


def _condition_cycle(found: Mapping[str, Parameter]) -> list[str]:
    """Return parameters whose conditions depend on each other in a circle."""
    left = dict(found)
    while ready := [each for each in left.values() if not any(name in left for name in each.when)]:
        for each in ready:
            del left[each.name]
    way: list[str] = []
    name = next(iter(left), None)
    while name is not None and name not in way:
        way.append(name)
        name = next(other for other in left[name].when if other in left)
    return way[way.index(name) :] if name is not None else []


def _in_dependency_order(found: dict[str, Parameter]) -> list[Parameter]:
    """Return each parameter after those that its ``when`` names, otherwise in file order."""
    ordered: list[Parameter] = []
    left = dict(found)
    while left:
        ready = next(e for e in left.values() if not any(name in left for name in e.when))
        ordered.append(ready)
        del left[ready.name]
    return ordered


def _space_schema() -> dict[str, Any]:
    number = {"type": "number", "minimum": -MAX_FLOAT, "maximum": MAX_FLOAT}
    single = {
        "anyOf": [
            {"type": ["number", "boolean", "null"]},
            {"type": "string", "maxLength": MAX_TEXT_CHARS},
        ]
    }
    when = {
        "type": ["object", "null"],
        "minProperties": 1,
        "additionalProperties": {
            "anyOf": [single, {"type": "array", "minItems": 1, "items": single}]
        },
    }
    values = {"type": "array", "minItems": 1, "maxItems": MAX_CHOICES, "items": single}
    span = {
        "low": number,
        "high": number,
        "step": {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "null"}]},
        "log": {"type": ["boolean", "null"]},
        "when": when,
    }
    options = [
        _mapping({"choices": values, "when": when}, "choices"),
        {**_mapping(span, "low", "high"), "not": _LOG_WITH_STEP},
        _mapping({"value": single}, "value"),
        single,
    ]
    return {
        "type": "object",
        "minProperties": 1,
        "maxProperties": MAX_PARAMETERS,
        "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$", "maxLength": MAX_NAME_CHARS},
        "additionalProperties": {"anyOf": options},
    }


#: A range that is logarithmic and has steps.
_LOG_WITH_STEP: Final = {
    "properties": {"log": {"const": True}, "step": {"type": "number"}},
    "required": ["log", "step"],
}


def _mapping(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


SpaceField = Annotated[
    Space,
    BeforeValidator(read_space),
    WithJsonSchema(_space_schema()),
    Kind("parameters"),
]
