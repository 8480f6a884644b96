"""A ledger that hangs cannot hide what was sent: the answer stands before the ledger is touched."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hpcflow.cli.main import main

CONFIG = """\
name: small
command: [sh, -c, "test -e mended"]
launch: {framework: none, launcher: none}
"""


@pytest.fixture
def config(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The config of a run that fails; a first run of it has ended, and the ledger knows."""
    monkeypatch.setenv("HPCFLOW_SITE", "local")
    assert not home.exists()
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    assert main(["run", str(path), "--wait"]) == 1
    assert main(["ls"]) == 0  # the ledger has read all of it: nothing is to be written before
    return path


@contextmanager
def held(ledger: Path) -> Iterator[None]:
    """Somebody else writes to the ledger, and is not done for a while."""
    other = sqlite3.connect(ledger, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


@pytest.mark.parametrize("words", [["run", "CONFIG"], ["resume", "small"], ["cancel", "small"]])
def test_the_answer_comes_before_the_ledger_is_touched(
    config: Path, home: Path, words: list[str]
) -> None:
    argv = [str(config) if word == "CONFIG" else word for word in words]
    with held(home / "ledger.sqlite"):
        process = subprocess.Popen(
            [sys.executable, "-m", "hpcflow.cli.main", *argv, "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if line in ("}\n", "]\n"):
                break
    _, warnings = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "job_id" in str(json.loads(said))
    assert warnings == "", "it answered only when it had given the ledger up"
