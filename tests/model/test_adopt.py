"""What a config may say of checkpoints of an unmodified program, and what the job makes of it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from hpcflow.model.adopt import WRITERS, Adopt, Writer
from hpcflow.model.checkpointing import Checkpoint
from hpcflow.runtime.adoption.rule import AdoptRule, parse_adopt_rule


def adopt(**keys: Any) -> Adopt:
    return Adopt.model_validate(keys, by_alias=True, by_name=False)


def rule(**keys: Any) -> AdoptRule:
    return parse_adopt_rule(adopt(**keys).rule("/out"))


def test_the_job_understands_what_the_config_says() -> None:
    given = rule(
        pattern="a/step-*",
        marker=".done",
        stable="1m",
        train_step="state.json:step",
        put_back=True,
    )
    assert given.pattern == "a/step-*"
    assert (given.marker, given.stable_s, given.renamed) == (".done", 60, False)
    assert (given.train_step, given.put_back) == ("state.json:step", True)
    assert str(given.folder) == "/out"


def test_a_pattern_alone_is_enough() -> None:
    given = rule(pattern="step-*")
    assert (given.marker, given.stable_s, given.renamed) == (None, 30, False)
    assert (given.train_step, given.put_back) == ("name", False)
    assert adopt(pattern="step-*").get("folder") == "."


@pytest.mark.parametrize("writer", Writer)
def test_every_known_program_is_described_in_keys_that_there_are(writer: Writer) -> None:
    assert set(WRITERS[writer]) <= set(Adopt.model_fields) - {"like"}
    assert rule(like=writer.value).pattern == WRITERS[writer]["pattern"]


def test_what_is_said_goes_before_what_is_known() -> None:
    given = rule(like="huggingface", marker="done", stable="1m")
    assert (given.pattern, given.marker, given.stable_s) == ("checkpoint-*", "done", 60)
    assert not rule(like="nanogpt", put_back=False).put_back
    assert rule(like="huggingface", renamed=True).marker is None


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "`pattern` is missing"),
        ({"folder": "out"}, "`pattern` is missing"),
        ({"pattern": "/out/*"}, "must be below the folder"),
        ({"pattern": "../*"}, "must be below the folder"),
        ({"pattern": "a//b"}, "must be below the folder"),
        ({"pattern": ""}, "at least 1 character|must be below"),
        ({"pattern": "**/x"}, "is not supported"),
        ({"pattern": ".x*"}, "hidden names"),
        ({"pattern": "x", "marker": "../done"}, "must be below the folder"),
        ({"pattern": "x", "marker": "done", "renamed": True}, "give either `renamed` or `marker`"),
        ({"pattern": "x", "stable": "0s"}, "longer than zero"),
        ({"pattern": "x", "stable": 30}, "without a unit"),
        ({"pattern": "x", "train_step": "size"}, "not `name`, `count`, or FILE:KEY"),
        ({"pattern": "x", "train_step": "/etc/x:y"}, "not `name`, `count`, or FILE:KEY"),
        ({"pattern": "x", "folder": "~/out"}, "write the whole path"),
        ({"like": "keras"}, "huggingface"),
    ],
)
def test_what_makes_no_sense_is_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        adopt(**keys)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"every_train_steps": 5}, "remove this key or `adopt`"),
        ({"interval": "5m"}, "remove this key or `adopt`"),
        ({"interval": "auto"}, "remove this key or `adopt`"),
        ({"when_busy": "skip"}, "remove this key or `adopt`"),
        ({"keep_best": {"metric": "loss", "mode": "min"}}, "have no metrics"),
    ],
)
def test_either_the_program_saves_or_hpcflow_does(keys: dict[str, Any], message: str) -> None:
    given = {"adopt": {"like": "nanogpt"}, **keys}
    with pytest.raises(ValidationError, match=message):
        Checkpoint.model_validate(given, by_alias=True, by_name=False)
    Checkpoint.model_validate(keys, by_alias=True, by_name=False)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"folder": "out", "pattern": "x"}', '{"folder": "/", "patern": "x"}']
)
def test_what_is_no_rule_is_refused_by_the_job(text: str) -> None:
    with pytest.raises(ValueError):
        parse_adopt_rule(text)
