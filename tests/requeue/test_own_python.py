"""Nothing is imported from the working directory, which may be another user's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import hpcflow
from hpcflow.requeue.own_python import own_python
from hpcflow.resources import resource_dir

PLANTED = "raise SystemExit('planted')"


@pytest.fixture
def strange(tmp_path: Path) -> Path:
    """A folder with modules that others have put there."""
    for name in ("hpcflow/__init__.py", "click.py", "runpy.py", "json.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(PLANTED)
    return tmp_path


def environ() -> dict[str, str]:
    package = str(Path(hpcflow.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": package, "HPCFLOW_PYTHON": sys.executable}


def test_a_module_is_started_without_the_working_directory(strange: Path) -> None:
    done = subprocess.run(
        own_python("hpcflow.cli.main", "version"),
        cwd=strange,
        env=environ(),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert hpcflow.__version__ in done.stdout


@pytest.mark.parametrize("name", ["train", "daemon"])
def test_so_is_that_of_a_wrapper_script(strange: Path, name: str) -> None:
    script = resource_dir("sbatch") / f"{name}.sbatch"
    variables = {key: value for key, value in environ().items() if not key.startswith("SLURM")}
    done = subprocess.run(
        ["bash", str(script), "config.yaml"],
        cwd=strange,
        env={**variables, "SLURM_JOB_NAME": "x", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert "planted" not in done.stderr
    assert "batch job of Slurm" in done.stderr
