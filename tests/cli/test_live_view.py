"""What a person at a terminal sees of a run that goes on: a bar, state, train step, loss, ETA."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

TRAINING = """\
import time
from hpcflow import runtime

run = runtime.start()
run.restore()
for epoch in run.epochs(4):
    for batch in run.batches(range(10)):
        time.sleep(0.1)
        run.log(loss=1 / (batch + 1))
run.finish()
"""

CONFIG = """\
name: watched
script: train.py
launch: {framework: none, launcher: none}
"""


def at_a_terminal(*args: str, env: dict[str, str], cwd: Path) -> str:
    """What ``hpcflow`` shows on a terminal of 160 columns."""
    main, worker = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "hpcflow.cli.main", *args],
        stdin=worker,
        stdout=worker,
        stderr=worker,
        env=env,
        cwd=cwd,
    )
    os.close(worker)
    shown = b""
    while True:
        try:
            data = os.read(main, 65536)
        except OSError:  # the other end is closed: the program has ended
            break
        shown += data
    os.close(main)
    assert process.wait(120) == 0, shown.decode()
    return shown.decode()


def test_follow_is_a_live_view_on_a_terminal(tmp_path: Path, home: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    (tmp_path / "config.yaml").write_text(CONFIG)
    env = {
        **{name: os.environ[name] for name in ("PATH", "HOME")},
        "HPCFLOW_HOME": str(home),
        "TERM": "xterm-256color",
        "COLUMNS": "160",
    }
    shown = at_a_terminal(
        "run", "config.yaml", "--site", "local", "--follow", env=env, cwd=tmp_path
    )
    assert "\x1b[" in shown, "no colours, no movement"
    assert "running" in shown
    assert "ETA" in shown
    assert "loss" in shown
    assert "40/40" in shown
    assert "completed" in shown


@pytest.mark.parametrize("words", [("ls",), ("show", "watched")])
def test_tables_survive_a_narrow_terminal(
    tmp_path: Path, home: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "train.py").write_text("print('done')\n")
    (tmp_path / "config.yaml").write_text(CONFIG)
    env = {
        **{name: os.environ[name] for name in ("PATH", "HOME")},
        "HPCFLOW_HOME": str(home),
        "TERM": "xterm",
        "COLUMNS": "40",
    }
    at_a_terminal("run", "config.yaml", "--site", "local", "--wait", env=env, cwd=tmp_path)
    shown = at_a_terminal(*words, env=env, cwd=tmp_path)
    assert "watched" in shown
    assert "completed" in shown
