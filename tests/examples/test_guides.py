"""The commands of the how-to guides run on a machine without Slurm.

tests/e2e/test_guides.py has the guides that need a cluster.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from hpcflow.testing.cluster import poll
from tests.e2e.test_guides import ON_A_CLUSTER
from tests.fenced import ROOT, Block, Shell, blocks_of, pages_of, shell

CONFIG: Final = """\
name: digits
project: vision
command: [echo, done]
launch: {framework: none, launcher: none}
"""


def nothing(_: Shell) -> None:
    """For a guide that begins from nothing."""


def one_run(reader: Shell) -> None:
    """A completed run."""
    write(reader, "config.yaml", CONFIG)
    reader.must("hpcflow run config.yaml --wait")


def trained(reader: Shell) -> None:
    """A completed run of the script of the guide."""
    (script,) = [each.text for each in blocks_of("docs/training.md") if each.language == "python"]
    write(reader, "train.py", script)
    write(reader, "config.yaml", "name: digits\nscript: train.py\n")
    reader.must("hpcflow run config.yaml --wait")


def one_sweep(reader: Shell) -> None:
    """A sweep that is over, after two trials."""
    reader.must(f"cp -r {ROOT}/examples/sweep search && cd search")
    reader.must("hpcflow sweep start sweep.yaml --set parallel=2 --set budget.trials=2")
    until_over(reader, "digits-tpe")


def until_over(reader: Shell, sweep: str) -> None:
    """Rounds, as cron makes them."""

    def is_over() -> bool:
        reader.must("hpcflow sweep tick")
        seen = json.loads(reader.must(f"hpcflow sweep status {sweep} --json"))
        return str(seen["state"]) == "over"

    poll(is_over, 180, lambda: reader.transcript)


def a_function(reader: Shell) -> None:
    """The function of the guide, and a space of its parameter."""
    blocks = blocks_of("docs/sweeps_objective.md")
    write(reader, "objective.py", next(each.text for each in blocks if each.language == "python"))
    write(reader, "space.yaml", "c: {low: 0.1, high: 100.0, log: true}\n")


def the_example_is_found(reader: Shell, block: Block) -> None:
    """The first sweep of the page comes to its end, before the next one of its name."""
    if "budget.trials=4 " in block.text:
        until_over(reader, "objective")
        (best,) = json.loads(reader.must("hpcflow sweep best objective --json"))["trials"]
        assert best["values"]["accuracy"] > 0.8


#: Page -> what its reader has before it begins.
GIVEN: Final[dict[str, Callable[[Shell], None]]] = {
    "docs/budgets.md": nothing,
    "docs/costs.md": one_run,
    "docs/efficiency.md": one_run,
    "docs/operations.md": one_run,
    "docs/sweeps.md": one_sweep,
    "docs/sweeps_objective.md": a_function,
    "docs/training.md": trained,
}
#: Page -> what happens after each of its blocks.
AFTER: Final = {"docs/sweeps_objective.md": the_example_is_found}


def write(reader: Shell, name: str, text: str) -> None:
    reader.must(f"cat > {name} <<'END'\n{text}END")


def test_every_guide_with_commands_is_followed() -> None:
    with_commands = {
        page for page in pages_of("How-to guides") if any(each.is_run for each in blocks_of(page))
    }
    assert with_commands == {*GIVEN, *ON_A_CLUSTER}


@pytest.mark.parametrize("page", GIVEN)
def test_the_commands_of_a_guide_run(page: str, tmp_path: Path, home: Path) -> None:
    assert not home.exists()
    with shell(tmp_path, HPCFLOW_SITE="local") as reader:
        GIVEN[page](reader)
        for block in blocks_of(page):
            reader.follow(block)
            if page in AFTER:
                AFTER[page](reader, block)
        for sweep in json.loads(reader.must("hpcflow sweep ls --json"))["sweeps"]:
            reader.must(f"hpcflow sweep stop {sweep['sweep_id']} --cancel")
