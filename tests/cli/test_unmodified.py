"""A script that never heard of hpcflow, run, stopped and resumed by commands on this machine."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from hpcflow.testing.cluster import poll
from tests.cli.desk import Desk
from tests.runtime.adoption import writer

CONFIG = """
name: {name}
command: ["{python}", "{program}", overwritten, out, "{count}"]
resume_args: [--init_from=resume]
launch: {{framework: none, launcher: none}}
checkpoint: {{adopt: {{like: nanogpt, stable: 1s}}, keep_last: 2}}
"""


def config(desk: Desk, name: str, count: int) -> str:
    path = desk.folder / f"{name}.yaml"
    fields = {"name": name, "python": sys.executable, "program": writer.__file__, "count": count}
    path.write_text(CONFIG.format(**fields))
    return str(path)


def test_it_resumes_from_what_it_wrote_and_from_the_copy_when_that_is_gone(desk: Desk) -> None:
    run = desk.json("run", config(desk, "nano", 12))
    run_dir = Path(run["run_dir"])
    out = desk.folder / "out" / "ckpt.pt"

    def stop(attempt: int, saved: int) -> str:
        """Kill the program of an attempt in the middle of a save; what it printed."""
        folder = run_dir / "attempts" / f"{attempt:04d}"
        log = folder / "out.log"
        poll(lambda: log.exists() and f"saved {saved}" in log.read_text(), 120, "it never saved")
        os.kill(int((folder / "program").read_text().split()[0]), signal.SIGKILL)
        shown = desk.json("wait", "nano", code=1)
        assert shown["state"] == "failed"
        return log.read_text()

    assert "begins at 0" in stop(1, 3)
    saved = desk.json("show", "nano")["checkpoints"]
    assert saved, "nothing was adopted"
    assert all(each["complete"] for each in saved)

    desk.json("resume", "nano")
    said = stop(2, 6)
    began = int(said.split("begins at ")[1].split()[0])
    assert began >= 2, said

    shutil.rmtree(out.parent)
    done = desk.json("resume", "nano", "--wait")
    assert done["state"] == "completed"
    said = (run_dir / "attempts/0003/out.log").read_text()
    assert int(said.split("begins at ")[1].split()[0]) >= began
    assert "was replaced by the checkpoint of train step" in said
    newest = max((run_dir / "checkpoints").glob("0*"))
    assert writer.load("overwritten", newest / "adopted" / "ckpt.pt") == 12

    listed = desk.json("checkpoint", "ls", "nano")
    assert _train_steps(listed) == [int(newest.name) - 1, int(newest.name)]
    desk.say("checkpoint", "verify", "nano")
    assert desk.json("ledger", "check") == {"format": 1, "runs": 1, "differences": []}


def _train_steps(listed: Any) -> list[int]:
    rows = listed["checkpoints"] if isinstance(listed, dict) else listed
    return sorted(each["train_step"] for each in rows)


def test_a_run_that_is_told_to_do_both_is_told_what_to_take_away(desk: Desk) -> None:
    path = Path(config(desk, "both", 1))
    path.write_text(path.read_text().replace("keep_last: 2", "every_train_steps: 5"))
    said = desk.error("run", str(path))
    assert "every_train_steps" in said
    assert "remove this key or `adopt`" in said
