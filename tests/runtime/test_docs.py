"""The programs in the documentation run, and survive an interruption, as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hpcflow import runtime
from hpcflow.runtime.job import job_from
from tests.runtime.harness import RunFolder, differing, run, weights

ROOT = Path(__file__).resolve().parents[2]


def program(page: str, language: str, path: Path) -> Path:
    """The only program of a page, written to ``path``."""
    (code,) = re.findall(
        rf"^```{language}\n(.*?)^```$", (ROOT / "docs" / page).read_text(), re.S | re.M
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code)
    return path


def test_the_training_script_resumes_bit_for_bit(folder: RunFolder) -> None:
    script = program("training.md", "python", folder.path / "train.py")
    whole = RunFolder(folder.path / "whole", variables={"PROGRAM": str(script)})
    folder.variables = whole.variables
    assert run(whole) == [0]

    (folder.path / "attempts/0001").mkdir(parents=True)
    (folder.path / "attempts/0001/notice").touch()
    assert run(folder) == [75]
    assert folder.complete() == [1]
    folder.attempt = 2
    assert run(folder) == [0]

    last = whole.complete()[-1]
    one, other = (
        {name: value for name, value in weights(each, last).items() if "rng." not in name}
        for each in (whole, folder)
    )
    assert differing(one, other) == []
    assert whole.events("finished")[0]["metrics"]["accuracy"] > 0.9


def test_the_shell_script_resumes(folder: RunFolder) -> None:
    script = program("unmodified.md", "bash", folder.path / "root.sh")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environ = {**os.environ, **folder.environ(), "PYTHONPATH": str(ROOT), "PATH": path}

    def attempt() -> int:
        command = ["/bin/bash", str(script)]
        return subprocess.run(command, env=environ, cwd=folder.path, check=False).returncode

    (folder.attempt_dir / "notice").touch()
    assert attempt() == 75
    assert folder.complete() == [1]
    (folder.attempt_dir / "notice").unlink()
    assert attempt() == 0

    assert folder.complete() == [1, 10, 20, 30]
    (finished,) = folder.events("finished")
    assert finished["metrics"]["root"] == pytest.approx(2**0.5, abs=0.05)


def test_the_shell_script_does_not_begin_anew_because_a_disk_cannot_be_read(
    folder: RunFolder,
) -> None:
    script = program("unmodified.md", "bash", folder.path / "root.sh")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environ = {**os.environ, **folder.environ(), "PYTHONPATH": str(ROOT), "PATH": path}
    folder.checkpoints.write_text("no folder")
    done = subprocess.run(["/bin/bash", str(script)], env=environ, cwd=folder.path, check=False)
    assert done.returncode == 1
    assert (folder.path / "state" / "root").read_text() == "1.0 0\n"


def test_the_pages_name_every_call_and_variable_that_there_is() -> None:
    training = (ROOT / "docs" / "training.md").read_text()
    unmodified = (ROOT / "docs" / "unmodified.md").read_text()

    for name in vars(runtime.Run):
        if not name.startswith("_"):
            assert f"run.{name}(" in training, name
    known = re.findall(
        r'"([A-Z_]+)"', Path(str(sys.modules[job_from.__module__].__file__)).read_text()
    )
    assert len(known) > 10
    for name in known:
        assert f"`{name}`" in unmodified, name
