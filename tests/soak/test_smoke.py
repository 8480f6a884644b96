"""The long proofs themselves work: a few tries of each. The rest is ``make soak``."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.soak.__main__ import PARTS, main


@pytest.mark.parametrize("own_project", [False, True])
def test_a_few_tries_of_each_part_find_nothing(own_project: bool) -> None:
    """In a process of its own: a part forks, and a fork of one that has used a store's library has
    that library's threads no more. Most parts share a project there."""
    parts = [name for name in PARTS if (name == "postgres") is own_project]
    argv = [sys.executable, "-m", "tests.soak", *parts, "--seed", "3", "--tries", "2"]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for part in parts:
        assert f"{part}: 2 tries in" in done.stdout


def test_a_part_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["corrupt"])
    assert refused.value.code == 2
    assert "no part corrupt; there are: corruptions" in capsys.readouterr().err
