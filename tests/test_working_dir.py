"""Nothing is imported or configured from the working directory, which may be another user's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import hpcflow
from hpcflow.resources import resource_dir
from hpcflow.schedulers.slurm import pyslurm
from hpcflow.sweeps.api import _command as function_command
from hpcflow.working_dir import LEAVE_IT, own_python
from tests.rendering.executed import Bench, written

PLANTED = "raise SystemExit('planted')"


@pytest.fixture
def strange(tmp_path: Path) -> Path:
    """A folder with modules that others have put there."""
    for name in ("hpcflow/__init__.py", "click.py", "runpy.py", "json.py", "socket.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(PLANTED)
    return tmp_path


@pytest.fixture
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A run directory whose script is executed with real bash."""
    return Bench(tmp_path_factory.mktemp("bench"))


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


def test_so_is_a_function_of_a_sweep(strange: Path) -> None:
    done = subprocess.run(
        function_command(strange / "function.pkl", b"", ["value"]),
        cwd=strange,
        env=environ(),
        capture_output=True,
        text=True,
    )
    assert "planted" not in done.stderr
    assert "cannot read the function of this sweep" in done.stderr


def test_so_is_torchrun(bench: Bench, strange: Path) -> None:
    bench.program("python3", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    shutil.copytree(strange, bench.work, dirs_exist_ok=True)
    (bench.work / "torch").mkdir()
    (bench.work / "torch/__init__.py").write_text(PLANTED)
    written(bench, "/bin/sh", "-c", "echo it is executed", launch={"launcher": "torchrun"})
    code = bench.execute()
    assert "planted" not in bench.log()
    assert (code, "it is executed" in bench.log()) == (0, True), bench.log()


def test_pyslurm_is_tried_without_it(strange: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (strange / "pyslurm.py").write_text(f"open({str(strange / 'planted')!r}, 'w')")
    monkeypatch.chdir(strange)
    pyslurm.works()
    assert not (strange / "planted").exists()


MATPLOTLIB = {
    "the page of costs": "import hpcflow.costs.plots as p; p.require_matplotlib()",
    "a sweep's picture": "import hpcflow.sweeps.plots.drawing as p; p._canvas().__enter__()",
    "a sweep's page": (
        "import hpcflow.sweeps.plots.drawing as p; from contextlib import suppress\n"
        "with suppress(AttributeError): p.page(None)"
    ),
}


@pytest.mark.parametrize("kind", ["settings", "pipe"])
@pytest.mark.parametrize("code", MATPLOTLIB.values(), ids=list(MATPLOTLIB))
def test_matplotlib_takes_no_settings_of_it(tmp_path: Path, code: str, kind: str) -> None:
    """Before 3.11 it executed parts of them; and for a pipe it waits."""
    pytest.importorskip("matplotlib")
    pytest.importorskip("optuna")
    settings = tmp_path / "matplotlibrc"
    if kind == "pipe":
        os.mkfifo(settings)
    else:
        settings.write_text("savefig.dpi: 17\n")
    after = "\nimport matplotlib, os; print(matplotlib.rcParamsOrig['savefig.dpi'], os.getcwd())"
    done = subprocess.run(
        [sys.executable, "-c", f"{LEAVE_IT}\n{code}{after}"],
        cwd=tmp_path,
        env=environ() | {"MPLCONFIGDIR": str(tmp_path / "own")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stderr, done.stdout) == ("", f"figure {tmp_path}\n")
