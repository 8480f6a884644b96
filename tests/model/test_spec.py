"""The spec as a value: frozen into run.json and read back, years later, the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from hpcflow.model.checkpointing import Checkpoint
from hpcflow.model.execution import Resources
from hpcflow.model.retry import Retry
from hpcflow.model.scalars import read_plain
from hpcflow.model.spec import RunSpec, frozen, thaw
from tests.sampled import sampled
from tests.valid_specs import CONFIGS


def spec_of(config: dict[str, Any]) -> RunSpec:
    """As :func:`hpcflow.documents.validate` does it."""
    return RunSpec.model_validate(config, by_alias=True, by_name=False)


@sampled(100, 1000, CONFIGS)
def test_every_valid_spec_survives_run_json(config: dict[str, Any]) -> None:
    spec = spec_of(config)
    text = json.dumps(frozen(spec), allow_nan=False)
    assert thaw(json.loads(text)) == spec


def test_units_are_in_the_names_once_a_spec_is_frozen() -> None:
    spec = RunSpec(
        name="a",
        command=["true"],
        resources=Resources.model_validate({"mem": "2G", "time_limit": "90s"}),
        checkpoint=Checkpoint.model_validate({"interval": "never", "notice": "1m"}),
    )
    data = frozen(spec)
    assert data["resources"]["mem_mb"] == 2048
    assert data["resources"]["time_limit_min"] == 2
    assert data["checkpoint"]["interval_s"] is None
    assert data["checkpoint"]["notice_s"] == 60


def test_a_run_of_before_there_were_stalls_has_the_usual_ones() -> None:
    never = Retry.model_validate({"stall_after": "never"})
    assert thaw(frozen(RunSpec(name="a", command=["true"], retry=never))).retry == never
    data = frozen(RunSpec(name="a", command=["true"]))
    for name in ("stall_after_s", "stall_factor", "stall_log"):
        del data["retry"][name]
    assert thaw(data).retry == Retry()


@pytest.mark.parametrize(
    "damage",
    [
        {"resources": {"mem_mb": "a lot"}},
        {"resources": {"mem_mb": True}},
        {"resources": {"mem_mb": -1}},
        {"resources": 3},
        {"checkpoint": []},
        {"name": "../../etc"},
        {"more": 1},
    ],
)
def test_what_was_not_frozen_by_us_is_not_thawed(damage: dict[str, Any]) -> None:
    good = frozen(RunSpec(name="a", command=["true"]))
    with pytest.raises(ValidationError):
        thaw({**good, **damage})


def test_names_with_units_are_not_keys_of_the_yaml() -> None:
    with pytest.raises(ValidationError, match="extra_forbidden"):
        spec_of({"name": "a", "command": ["x"], "resources": {"mem_mb": "2G"}})


def test_a_program_gets_numbers_as_they_were_written() -> None:
    written = [read_plain(text) for text in ("1e-3", "3.10", "007", "12", "+1")]
    spec = spec_of({"name": "a", "command": ["x", *written]})
    assert spec.program == ["x", "1e-3", "3.10", "007", "12", "+1"]


def test_params_are_plain_numbers_so_that_a_resumed_run_sees_the_same() -> None:
    spec = spec_of({"name": "a", "command": ["x"], "params": {"lr": read_plain("1e-3")}})
    assert type(spec.params["lr"]) is float
    assert spec.params == {"lr": 0.001}


def test_a_script_is_run_by_python_and_its_output_is_seen_at_once() -> None:
    assert RunSpec(name="a", script="/x/train.py").program == ["python3", "-u", "/x/train.py"]


@pytest.mark.parametrize(
    ("resources", "ranks"),
    [({}, 1), ({"gpus_per_node": 4}, 4), ({"gpus_per_node": 4, "tasks_per_node": 1}, 1)],
)
def test_one_rank_per_gpu_unless_told_otherwise(resources: dict[str, int], ranks: int) -> None:
    assert Resources(**resources).ranks_per_node == ranks


def command_of(text: str) -> list[str] | None:
    return spec_of({"name": "a", "command": text}).command


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("python3 train.py --lr 0.1", ["python3", "train.py", "--lr", "0.1"]),
        ("./run 'two words' \"it's\" a\\ b", ["./run", "two words", "it's", "a b"]),
        ("./run {{ params.lr }} --x={{run.id}}", ["./run", "{{params.lr}}", "--x={{run.id}}"]),
        ("./run '|' \"a > b\" 'a;b'", ["./run", "|", "a > b", "a;b"]),
        ("./run '$HOME' \\$HOME *.txt #1", ["./run", "$HOME", "$HOME", "*.txt", "#1"]),
        ("  ./run\t'' ", ["./run", ""]),
        ("./run --cost=5$ 100%", ["./run", "--cost=5$", "100%"]),
        ('./run "\\$HOME \\`a\\` \\n" "(a) 5$"', ["./run", "$HOME `a` \\n", "(a) 5$"]),
        ("./run '\\$HOME'", ["./run", "\\$HOME"]),
    ],
)
def test_a_command_may_be_one_text_that_is_split_as_a_shell_would(
    text: str, words: list[str]
) -> None:
    assert command_of(text) == words


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("./a | ./b", "'|'"),
        ("./a && ./b", "'&'"),
        ("./a; ./b", "';'"),
        ("./a > out", "'>'"),
        ("./a $HOME/x", "'$H'"),
        ("./a ${X}", "'${'"),
        ("./a $(date)", "'$('"),
        ("./a `date`", "'`'"),
        ('./a "$HOME/x"', "'$H'"),
        ('./a "it is ${X}"', "'${'"),
        ('./a "$(date)"', "'$('"),
        ('./a "`date`"', "'`'"),
        ('./a \'ok\' "a \\" $X"', "'$X'"),
        ("./a\n./b", "a line end"),
        ("./a 'unclosed", "no closing quotation"),
        ("./a \\", "no escaped character"),
    ],
)
def test_a_command_that_only_a_shell_can_run_is_refused(text: str, shown: str) -> None:
    with pytest.raises(ValidationError) as caught:
        command_of(text)
    assert shown in str(caught.value)


@pytest.mark.parametrize("text", ["", "  ", "''"])
def test_a_command_has_a_program(text: str) -> None:
    for config in ({"command": text}, {"command": "true", "before": [text]}):
        with pytest.raises(ValidationError):
            spec_of({"name": "a", **config})
