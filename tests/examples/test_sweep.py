"""The example of a sweep learns; tests/examples/test_tutorial.py searches with it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import yaml

from hpcflow.config.sweep import load_sweep
from tests.fenced import ROOT, blocks_of
from tests.runtime.harness import RunFolder

EXAMPLE = ROOT / "examples" / "sweep"


def run_example(folder: RunFolder, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLE / "train.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        cwd=folder.path,
        capture_output=True,
        text=True,
        check=True,
    )


def test_it_is_a_plain_script_too(tmp_path: Path) -> None:
    run_example(RunFolder(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_it_learns_and_says_so_in_the_words_of_the_sweep(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    run_example(folder, **folder.environ())
    (finished,) = folder.events("finished")
    (goal,) = load_sweep(EXAMPLE / "sweep.yaml").spec.goals
    assert finished["metrics"][goal.metric] > 0.95
    assert goal.metric in folder.events("progress")[0]["metrics"], "by this trials are pruned"


def test_it_has_every_parameter_that_the_sweep_varies() -> None:
    loaded = load_sweep(EXAMPLE / "sweep.yaml")
    varied = {each.name for each in loaded.spec.space.parameters}
    source = (EXAMPLE / "train.py").read_text()
    defaults = set(re.findall(r'^    "(\w+)": ', source, re.M))
    assert varied
    assert varied | loaded.base.spec.params.keys() <= defaults
    assert (EXAMPLE / str(loaded.base.spec.script)).exists()


def test_the_page_shows_the_sweep_of_the_example() -> None:
    (shown,) = [each for each in blocks_of("docs/sweep_tutorial.md") if each.language == "yaml"]
    assert yaml.safe_load(shown.text) == yaml.safe_load((EXAMPLE / "sweep.yaml").read_text())


def test_the_program_in_shell_reports_what_it_computed(tmp_path: Path) -> None:
    programs = [each for each in blocks_of("docs/sweeps.md") if each.text.startswith("#!")]
    (script,) = [each.text for each in programs]
    folder = RunFolder(tmp_path)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environ = {**os.environ, **folder.environ(), "PYTHONPATH": str(ROOT), "PATH": path}
    subprocess.run(
        ["/bin/bash", "-c", script, "trial.sh", "4"],
        env={**environ, "HPCFLOW_PARAM_y": "-1"},
        cwd=tmp_path,
        check=True,
    )
    assert folder.events("finished")[0]["metrics"] == {"value": 10.0}
