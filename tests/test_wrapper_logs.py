"""The logs of the scripts in ``sbatch/``: sent from a folder where others can put a link."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from hpcflow.resources import resource_dir

_SHIPPED = sorted(resource_dir("sbatch").glob("*.sbatch"))
_OUTPUT = "#SBATCH --output="


def as_slurm_starts_it(wrapper: str, folder: Path, python: str) -> int:
    """Exit code of a wrapper whose Python does this, with ``folder`` as the working directory."""
    program = folder.parent / "python"
    program.write_text(f"#!/bin/bash\n{python}\n")
    program.chmod(0o755)
    home = folder.parent / "home"
    environ = {
        "PATH": os.environ["PATH"],
        "HPCFLOW_HOME": str(home),
        "HPCFLOW_PYTHON": str(program),
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NAME": "by-hand",
        "SLURM_JOB_PARTITION": "serial",
    }
    script = resource_dir("sbatch") / f"{wrapper}.sbatch"
    return subprocess.run(
        ["bash", str(script)],
        env=environ,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=120,
    ).returncode


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("script", _SHIPPED, ids=lambda path: path.name)
def test_slurm_opens_no_file_in_the_working_directory(script: Path) -> None:
    lines = script.read_text().splitlines()
    assert [line for line in lines if line.startswith(_OUTPUT)] == [f"{_OUTPUT}/dev/null"]
    assert not [line for line in lines if line.startswith("#SBATCH --error")]


@pytest.mark.parametrize(
    ("wrapper", "python"),
    [
        ("daemon", "echo said"),
        ("mirror", "echo said; kill -TERM $PPID"),  # as Slurm does when its time is up
    ],
)
def test_daemon_and_mirror_write_their_log_into_the_home(
    shared: Path, wrapper: str, python: str
) -> None:
    assert as_slurm_starts_it(wrapper, shared, python) == 0
    log = shared.parent / "home" / "daemon" / f"{wrapper}.log"
    assert log.read_text().startswith("said\n")
    assert log.parent.stat().st_mode & 0o077 == 0
    assert list(shared.iterdir()) == []


def test_what_a_run_by_hand_says_before_it_exists_is_in_the_working_directory(shared: Path) -> None:
    assert as_slurm_starts_it("train", shared, "echo wrong config >&2; exit 2") == 2
    assert (shared / "hpcflow-7.log").read_text() == "wrong config\n"


@pytest.mark.parametrize("place", ["a file", "a link to a file", "a link to nothing", "a pipe"])
def test_a_run_by_hand_writes_into_nothing_that_is_there_already(shared: Path, place: str) -> None:
    log, private = shared / "hpcflow-7.log", shared.parent / "private"
    if place == "a pipe":
        os.mkfifo(log)
    elif place == "a file":
        log.write_text("mine\n")
    else:
        log.symlink_to(private)
    if place == "a link to a file":
        private.write_text("mine\n")
    assert as_slurm_starts_it("train", shared, "echo out") != 0
    if "to a file" in place or place == "a file":
        assert log.read_text() == "mine\n"
    assert private.exists() == (place == "a link to a file")
