"""The tutorials of docs/: every command, in its order, prints what the page shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fenced import ROOT, Shell, blocks_of, shell


@pytest.fixture
def desk(tmp_path: Path, home: Path) -> Path:
    """A user who has never used hpcflow, in a clone of this repository."""
    assert not home.exists()
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


def follow(reader: Shell, page: str) -> None:
    for block in blocks_of(page):
        reader.follow(block)


def test_the_first_run(desk: Path) -> None:
    with shell(desk, HPCFLOW_SITE="local") as reader:
        follow(reader, "docs/tutorial.md")
        _, shown = reader.run("hpcflow history first --json")
    first, second = json.loads(shown)["attempts"]
    assert (first["cause"], second["cause"]) == ("cancelled", "completed")
    assert (first["lost_train_steps"], second["reached_train_step"]) == (0, 2300)


def test_the_first_sweep(desk: Path) -> None:
    with shell(desk, HPCFLOW_SITE="local") as reader:
        follow(reader, "docs/sweep_tutorial.md")
        _, best = reader.run("hpcflow sweep best digits-tpe")
    (figures,) = desk.glob("search/digits-tpe-*-plots")
    assert (figures / "history.png").read_bytes().startswith(b"\x89PNG")
    assert "accuracy 0.9" in best
