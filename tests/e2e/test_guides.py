"""The commands of the first tutorial, and of the guides that need Slurm, run on a real cluster."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from hpcflow.testing.cluster import poll
from tests.e2e.conftest import Hpcflow
from tests.fenced import Shell, blocks_of

CONFIG: Final = """\
name: digits
command: [echo, done]
launch: {framework: none}
"""


@pytest.fixture
def reader(hpcflow: Hpcflow) -> Iterator[Shell]:
    """The shell of a user who has never used hpcflow, in a clone of this repository."""
    software = hpcflow.software
    process = hpcflow.user.popen(
        ["/bin/bash", "--noprofile", "--norc"],
        cwd=hpcflow.home.parent,
        env={**hpcflow.env, "HOME": str(hpcflow.home.parent)},
        stdin=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    with Shell(process) as shell:
        shell.must(f"ln -s {software.examples} {software.sbatch} .")
        shell.must(f"mkdir venvs && ln -s {software.venv} venvs/hpcflow")
        yield shell


def nothing(_: Shell) -> None:
    """The commands have proved enough."""


def both_runs_are_completed(reader: Shell) -> None:
    def states() -> Any:
        reader.run("sleep 1")
        runs = json.loads(reader.must("hpcflow ls --json"))["runs"]
        return [run["state"] for run in runs] == ["completed", "completed"]

    poll(states, 240, lambda: reader.transcript)


#: Page -> what has to be true after it.
ON_A_CLUSTER: Final[dict[str, Callable[[Shell], None]]] = {
    "docs/by_hand.md": both_runs_are_completed,
    "docs/sites.md": nothing,
}


@pytest.mark.cluster
@pytest.mark.parametrize("page", ["docs/tutorial.md", *ON_A_CLUSTER])
def test_the_commands_of_a_page_run(page: str, reader: Shell) -> None:
    reader.must(f"cat > config.yaml <<'END'\n{CONFIG}END")
    for block in blocks_of(page):
        reader.follow(block)
    ON_A_CLUSTER.get(page, nothing)(reader)
