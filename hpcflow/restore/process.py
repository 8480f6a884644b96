"""Run ``hpcflow restore`` as a background process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import hpcflow
from hpcflow.settings import Settings

#: Processes that may still run.
_STARTED: Final[list[subprocess.Popen[bytes]]] = []


def start_restore(settings: Settings, run_id: str) -> None:
    """Start ``hpcflow restore`` for a run in its own session, without waiting. Raise OSError."""
    reap()
    package, path = str(Path(hpcflow.__file__).parents[1]), settings.environ.get("PYTHONPATH")
    environ = {
        **settings.environ,
        "HPCFLOW_HOME": str(settings.home.path),
        "PYTHONPATH": f"{package}{os.pathsep}{path}" if path else package,  # this hpcflow
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "hpcflow.cli.main", "restore", "--unattended", run_id],
        cwd="/",
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    _STARTED.append(process)


def reap() -> None:
    _STARTED[:] = [process for process in _STARTED if process.poll() is None]
