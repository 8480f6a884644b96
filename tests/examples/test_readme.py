"""What README tells a newcomer to write, and to type, works as it stands there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hpcflow.config import load_spec
from tests.fenced import ROOT, blocks_of, shell

README = blocks_of("README.md")
TRAINING = (ROOT / "docs" / "training.md").read_text()


@pytest.fixture
def desk(tmp_path: Path, home: Path) -> Path:
    """A folder with the script of docs/training.md; its user has never used hpcflow."""
    assert not home.exists()
    (script,) = [each.text for each in blocks_of("docs/training.md") if each.language == "python"]
    (tmp_path / "train.py").write_text(script)
    return tmp_path


def test_the_first_config_is_right_and_fits_the_script_of_the_training_page(desk: Path) -> None:
    (config,) = [block for block in README if block.file == "config.yaml"]
    (desk / "config.yaml").write_text(config.text)
    spec = load_spec(desk / "config.yaml").spec
    assert spec.resources.nodes * spec.resources.ranks_per_node == 1, "the script is for one rank"
    assert spec.args == [], "the script takes none"
    defaults = re.search(r"runtime\.start\((\{.*?\})\)", TRAINING)
    assert defaults is not None
    assert spec.params.keys() <= json.loads(defaults[1]).keys()


def test_a_newcomer_comes_from_nothing_to_the_best_checkpoint(desk: Path) -> None:
    with shell(desk, HPCFLOW_SITE="local") as reader:
        for block in README:
            reader.follow(block)
        _, shown = reader.run("hpcflow show digits --json")
    run = json.loads(shown)
    assert run["state"] == "completed"
    assert run["metrics"]["accuracy"] > 0.9
    assert run["train_step"] == 20 * -(-1797 // 64)
    best = json.loads((desk / "best" / "manifest.json").read_text())
    (chosen,) = [each for each in run["checkpoints"] if each["is_best"]]
    assert best["train_step"] == chosen["train_step"]
