"""Options of sbatch in a config: those that hpcflow says itself are refused, no other is."""

from __future__ import annotations

import re

import pytest
from pydantic import ValidationError

from hpcflow.model.execution import Resources
from hpcflow.model.sbatch import as_options
from hpcflow.rendering.quoting import directive
from tests.rendering.samples import a_run, a_site, a_spec, script_of


def refusal(options: dict[str, object]) -> str:
    with pytest.raises(ValidationError) as caught:
        Resources.model_validate({"sbatch": options})
    return str(caught.value)


def test_values_are_written_as_sbatch_takes_them() -> None:
    given = {"reservation": "course", "tmp": 500, "spread-job": True, "licenses": "a:1,b@db:2"}
    options = as_options(Resources.model_validate({"sbatch": given}).sbatch)
    assert options == ["--reservation=course", "--tmp=500", "--spread-job", "--licenses=a:1,b@db:2"]
    assert [directive(option) for option in options] == options


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("mem", "resources.mem"),
        ("mem-per-cpu", "resources.mem"),
        ("time", "resources.time_limit"),
        ("ti", "resources.time_limit"),
        ("nodes", "resources.nodes"),
        ("gpus", "resources.gpus_per_node"),
        ("begin", "resources.begin"),
        ("priority", "resources.nice"),
        ("requeue", "retry"),
        ("wrap", "command"),
        ("output", "hpcflow sets --output"),
    ],
)
def test_what_hpcflow_says_itself_is_refused_with_the_key_to_use(name: str, key: str) -> None:
    assert key in refusal({name: "1"})


def test_no_option_that_hpcflow_says_can_be_taken_back() -> None:
    """Whatever a script of ours says to sbatch, a config cannot say by that name."""
    resources = {
        "nodes": 2, "gpus_per_node": 4, "mem": "1G", "account": "a", "qos": "q", "constraint": "c",
        "exclude": "n1", "dependency": "singleton", "begin": "now", "nice": 1, "time_limit": "1h",
    }  # fmt: skip
    script = script_of(a_run(a_spec(resources=resources)), a_site())
    said = set(re.findall(r"^#SBATCH --([a-z-]+)", script, re.MULTILINE)) - {"gres", "propagate"}
    assert len(said) >= 18
    for name in said:
        assert f"--{name}" in refusal({name: "1"})
    assert "resources.gpus_per_node" in refusal({"gres": "gpu:8"})


@pytest.mark.parametrize(
    "options",
    [
        {"--licenses": "a"},
        {"mail_type": "END"},
        {"J": "x"},
        {"comment": "two words"},
        {"comment": "$(touch owned)"},
        {"comment": "a\n#SBATCH --wrap=x"},
        {"licenses": False},
        {"licenses": None},
        {"licenses": ["a"]},
    ],
)
def test_what_is_no_option_is_refused(options: dict[str, object]) -> None:
    refusal(options)
