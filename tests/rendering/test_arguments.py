"""What is filled into a program's words, and what is refused."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from hpcflow.errors import SpecError
from hpcflow.model.run import Run
from hpcflow.rendering.arguments import program_argv
from tests.growth import require_no_square
from tests.rendering.samples import RUN_ID, a_run, a_spec

PARAMS = {"lr": 0.001, "layers": [64, 32], "name": "a {{ params.lr }}", "on": True, "opt": {"b": 2}}


def argv(*args: str, params: dict[str, Any] | None = None) -> list[str]:
    """The words after the script."""
    return program_argv(a_run(a_spec(args=args, params=PARAMS if params is None else params)))[3:]


@pytest.mark.parametrize(
    ("word", "filled"),
    [
        ("{{ params.lr }}", "0.001"),
        ("{{params.lr}}", "0.001"),
        ("--lr={{ params.lr }},{{ params.on }}", "--lr=0.001,true"),
        ("{{ params.layers }}", "[64, 32]"),
        ("{{ params.opt.b }}", "2"),
        ("{{ params.opt }}", '{"b": 2}'),
        ("{{ run.id }}", RUN_ID),
        ("{{ run.name }}", "digits"),
        ("{{ run.dir }}/x", f"/scratch/ada/hpcflow/default/{RUN_ID}/x"),
        ("{% raw %} {# x #} ${HOME}", "{% raw %} {# x #} ${HOME}"),
        ('{"a": {"b": 1}}', '{"a": {"b": 1}}'),
        ("", ""),
    ],
)
def test_names_are_filled_in_and_the_rest_stays(word: str, filled: str) -> None:
    assert argv(word) == [filled]


def test_what_is_filled_in_is_not_looked_at_again() -> None:
    assert argv("{{ params.name }}") == ["a {{ params.lr }}"]


@pytest.mark.parametrize("piece", ["{{", "}}{{", "{{ ", "{"])
def test_no_word_takes_long(piece: str) -> None:
    def fill_in(size: int) -> None:
        with suppress(SpecError):
            argv((piece * size)[:size])

    require_no_square(fill_in, 100_000)


def test_a_name_like_thousands_takes_no_long_time() -> None:
    def look_for(count: int) -> None:
        params = {f"{'a' * 190}{number}": 1 for number in range(count)}
        with pytest.raises(SpecError, match="there is no params"):
            argv("{{ params." + "a" * 196 + " }}", params=params)

    require_no_square(look_for, 5000)


def test_a_resumed_run_gets_the_same_words() -> None:
    """run.json does not know how a number was written, so the words must not depend on that."""
    run = a_run(a_spec(args=["{{ params.lr }}"], params={"lr": 1e-3}))
    assert program_argv(Run.model_validate_json(run.model_dump_json())) == program_argv(run)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("{{ params.lrr }}", r"args\[1\]: there is no params\.lrr\n.*\{\{ params\.lr \}\}"),
        ("{{ prams.lr }}", r"there is no prams\n.*\{\{ params.lr \}\}"),
        ("{{ run.zzz }}", r"there is no run\.zzz\n.*write one of: code, dir, id, name"),
        ("{{ params.lr.x }}", r"there is no params\.lr\.x"),
        ("{{ params.opt.c }}", r"there is no params\.opt\.c"),
        ("{{ params }}", "name one key in it"),
        ("{{ }}", "is not a name"),
        ("{{ params.lr * 2 }}", "is not a name"),
        ("{{ params['lr'] }}", "is not a name"),
        ("{{ run.id.upper() }}", "is not a name"),
        ("{{ params.__class__ }}", "there is no params.__class__"),
        ("{{ ''.join(params) }}", "is not a name"),
        ("{{ params.lr | sh }}", "is not a name"),
        ("{{ params.\nlr }}", "is not a name"),
    ],
)
def test_what_is_no_name_or_a_wrong_one_is_refused(word: str, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        argv("fine", word)
    assert "/home/ada/config.yaml" in str(caught.value)


def test_a_run_without_params_is_told_to_add_them() -> None:
    with pytest.raises(SpecError, match="add `lr` to the run's `params`"):
        argv("{{ params.lr }}", params={})


def test_a_command_is_filled_in_too_and_its_key_is_named() -> None:
    spec = a_spec(script=None, command=["./go", "{{ run.id }}"], args=["x"])
    assert program_argv(a_run(spec)) == ["./go", RUN_ID, "x"]
    with pytest.raises(SpecError, match=r"command\[1\]"):
        program_argv(a_run(a_spec(script=None, command=["./go", "{{ run.ip }}"])))
