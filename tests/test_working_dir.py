"""Nothing is imported or configured from the working directory, which may be another user's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import hpcflow
from hpcflow.config.function_sweep import load_function_sweep
from hpcflow.resources import resource_dir
from hpcflow.schedulers.slurm import pyslurm
from hpcflow.sweeps.api import _around_the_call
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
    assert "Slurm batch job" in done.stderr


OBJECTIVE = """
import os
import hpcflow.runtime, torch
from beside import loss

def objective(lr, run):
    print("from", hpcflow.runtime.__file__, torch.__version__)
    return loss(lr)
"""


@pytest.fixture
def job(strange: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of a job that calls a function; what the function imports is in ``strange``."""
    for name in ("torch/__init__.py", "torch/distributed.py", "cloudpickle.py", "submitit.py"):
        (strange / name).parent.mkdir(exist_ok=True)
        (strange / name).write_text(PLANTED)
    for name in ("click.py", "json.py", "socket.py"):  # those that torch imports are the function's
        (strange / name).unlink()
    (strange / "beside.py").write_text("def loss(lr): return lr + 1\n")
    (strange / "objective.py").write_text(OBJECTIVE)
    run_dir = tmp_path_factory.mktemp("run")
    (run_dir / "params.json").write_text('{"lr": 0.5}')
    places = {"RUN_ID": "a", "RUN_DIR": "", "ATTEMPT_DIR": "", "ATTEMPT": "1"}
    places |= {"EVENTS": "events.jsonl", "CHECKPOINT_DIR": "checkpoints", "PARAMS": "params.json"}
    of_job = {
        f"HPCFLOW_{name}": str(run_dir / value) if name not in ("RUN_ID", "ATTEMPT") else value
        for name, value in places.items()
    }
    return environ() | of_job


def called(command: list[str], strange: Path, job: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=strange, env=job, capture_output=True, text=True)
    assert "planted" not in done.stderr
    assert done.returncode == 0, done.stderr
    events = Path(job["HPCFLOW_EVENTS"]).read_text()
    assert '"value": 1.5' in events
    return done.stdout


@pytest.mark.parametrize("safe_path", ["", "1"])
def test_so_is_a_function_in_a_file(strange: Path, job: dict[str, str], safe_path: str) -> None:
    """Before Python 3.11, PYTHONSAFEPATH is not known."""
    spec = load_function_sweep(
        strange / "objective.py",
        "objective",
        space="{lr: {low: 0, high: 1}}",
        base=None,
        metrics=[],
        directions=["minimize"],
        name=None,
        overrides=["budget.trials=1"],
    ).base.spec
    assert spec.command is not None
    command = [sys.executable, *spec.command[1:]]
    assert str(Path(hpcflow.__file__).parent) in called(
        command, strange, job | {"PYTHONSAFEPATH": safe_path}
    )


@pytest.mark.parametrize("safe_path", ["", "1"])
def test_so_is_one_that_was_sent_from_python(
    strange: Path, job: dict[str, str], safe_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever typed it at a prompt of Python has the working directory in sys.path."""
    import cloudpickle
    from submitit.core.utils import DelayedSubmission

    def objective(lr: float) -> float:
        import torch

        import hpcflow.runtime

        print("from", hpcflow.runtime.__file__, torch.__version__)
        from beside import loss  # type: ignore[import-not-found]

        return float(loss(lr))

    content = cloudpickle.dumps(DelayedSubmission(objective))
    pickled = strange / "function.pkl"
    pickled.write_bytes(content)
    monkeypatch.chdir(strange)
    monkeypatch.syspath_prepend("")
    command = function_command(pickled, content, ["value"])
    around = _around_the_call({}).data["environment"]["variables"]
    assert str(Path(hpcflow.__file__).parent) in called(
        command, strange, job | around | {"PYTHONSAFEPATH": safe_path}
    )


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
    "a sweep's picture": "import hpcflow.sweeps.plots.drawing as p; p._canvas().__enter__()",
    "a sweep's page": (
        "import hpcflow.sweeps.plots.drawing as p; from contextlib import suppress\n"
        "with suppress(AttributeError): p.page(None)"
    ),
}


@pytest.mark.parametrize(
    ("what", "kind"),
    [("a sweep's picture", "settings"), ("a sweep's page", "settings"), ("a sweep's page", "pipe")],
)
def test_matplotlib_takes_no_settings_of_it(tmp_path: Path, what: str, kind: str) -> None:
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
        [sys.executable, "-c", f"{LEAVE_IT}\n{MATPLOTLIB[what]}{after}"],
        cwd=tmp_path,
        env=environ() | {"MPLCONFIGDIR": str(tmp_path / "own")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.stderr, done.stdout) == ("", f"figure {tmp_path}\n")
