"""What the tests of the commands have in common."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.desk import Desk


@pytest.fixture
def desk(
    weird_tmp_path: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Desk:
    assert not home.exists()
    monkeypatch.setenv("HPCFLOW_SITE", "local")
    # What waits for a local job looks more often.
    for name in ("look.follow", "look.logs", "sweeps.follow"):
        monkeypatch.setattr(f"hpcflow.cli.{name}._POLL_S", 0.1)
    return Desk(weird_tmp_path, capfd)
