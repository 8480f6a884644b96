"""What README tells a newcomer to write, and to type, works as it stands there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hpcflow.cli.main import COMMANDS, main
from hpcflow.config import load_spec

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
TRAINING = (ROOT / "docs" / "training.md").read_text()


@pytest.fixture
def desk(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """README's first config, with the complete script of docs/training.md beside it."""
    assert not home.exists()
    (config,) = re.findall(r"^```yaml\n(.*?)^```$", README, re.S | re.M)
    (script,) = re.findall(r"^```python\n(.*?)^```$", TRAINING, re.S | re.M)
    (tmp_path / "config.yaml").write_text(config)
    (tmp_path / "train.py").write_text(script)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HPCFLOW_SITE", "local")
    return tmp_path


def test_the_first_config_is_right_and_fits_the_script_of_the_training_page(desk: Path) -> None:
    spec = load_spec(desk / "config.yaml").spec
    assert spec.resources.nodes * spec.resources.ranks_per_node == 1, "the script is for one rank"
    assert spec.args == [], "the script takes none"
    defaults = re.search(r"runtime\.start\((\{.*?\})\)", TRAINING)
    assert defaults is not None
    assert spec.params.keys() <= json.loads(defaults[1]).keys()


@pytest.mark.usefixtures("desk")
def test_the_first_config_trains(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "config.yaml", "--wait", "--json"]) == 0
    run = json.loads(capfd.readouterr().out)
    assert run["name"] == "digits"
    assert run["metrics"]["accuracy"] > 0.9
    assert run["train_step"] == 100 * -(-1797 // 64)


def test_readme_names_no_command_that_is_not_there() -> None:
    named = re.findall(r"^hpcflow ([a-z]+)|`hpcflow ([a-z]+)", README, re.M)
    assert len(named) > 10
    assert {first or second for first, second in named} <= COMMANDS.keys()
