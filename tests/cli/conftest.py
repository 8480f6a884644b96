"""What the tests of the commands have in common."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from hpcflow.testing.cluster.processes import environment, pids
from tests.cli.desk import Desk


@pytest.fixture
def desk(
    weird_tmp_path: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Iterator[Desk]:
    assert not home.exists()
    monkeypatch.setenv("HPCFLOW_SITE", "local")
    # What waits for a local job looks more often.
    for name in ("look.follow", "look.logs", "sweeps.look"):
        monkeypatch.setattr(f"hpcflow.cli.{name}._POLL_S", 0.1)
    yield Desk(weird_tmp_path, capfd)
    _end_jobs(home)


def _end_jobs(home: Path) -> None:
    """End what still runs: the next test may get a folder of the same name."""
    for pid in pids():
        if environment(pid).get("HPCFLOW_HOME") == str(home):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
