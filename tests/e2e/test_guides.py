"""The commands of the first tutorial, and of the guides that need Slurm, run on a real cluster."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Final

import pytest

from tests.e2e.conftest import Hpcflow
from tests.fenced import Shell, blocks_of


@pytest.fixture
def reader(hpcflow: Hpcflow) -> Iterator[Shell]:
    """The shell of a user who has never used hpcflow, in a clone of this repository."""
    process = hpcflow.user.popen(
        ["/bin/bash", "--noprofile", "--norc"],
        cwd=hpcflow.home.parent,
        env={**hpcflow.env, "HOME": str(hpcflow.home.parent)},
        stdin=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    with Shell(process) as shell:
        shell.must(f"ln -s {hpcflow.software.examples} .")
        yield shell


#: How-to guides with commands that need Slurm.
ON_A_CLUSTER: Final = ("docs/sites.md",)


@pytest.mark.cluster
@pytest.mark.parametrize("page", ["docs/tutorial.md", *ON_A_CLUSTER])
def test_the_commands_of_a_page_run(page: str, reader: Shell) -> None:
    for block in blocks_of(page):
        reader.follow(block)
