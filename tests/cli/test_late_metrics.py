"""The best checkpoint, by every command that names it, where validation follows an epoch."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from hpcflow.runtime.manifest import read_manifest
from tests.cli.desk import Desk
from tests.runtime.validated import BATCHES, LAST, write_script

CONFIG = """
name: digits
command: {command}
launch: {{framework: none, launcher: none}}
checkpoint: {{every_train_steps: {every}, keep_best: {{metric: val_loss, mode: min}}}}
"""


@pytest.mark.parametrize(
    ("losses", "best"),
    [
        ((0.5, 0.4, 0.3, 0.2, 0.1), LAST),  # its validation comes after the final state was saved
        ((0.5, 0.4, 0.1, 0.3, 0.2), 3 * BATCHES),  # a later checkpoint is begun with its value
    ],
)
def test_they_agree_on_the_one_that_was_validated(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, losses: tuple[float, ...], best: int
) -> None:
    monkeypatch.setenv("VAL_LOSSES", " ".join(map(str, losses)))
    script, config = write_script(desk.folder / "train.py"), desk.folder / "digits.yaml"
    command = json.dumps([sys.executable, str(script)])
    config.write_text(CONFIG.format(command=command, every=BATCHES))
    run = desk.json("run", str(config), "--wait")
    assert run["state"] == "completed", Path(run["run_dir"], "attempts/0001/out.log").read_text()

    desk.say("checkpoint", "export", "digits", "--best", str(desk.folder / "best"))
    manifest = read_manifest(desk.folder / "best")
    assert (manifest["train_step"], manifest["metrics"]["val_loss"]) == (best, 0.1)
    (listed,) = desk.json("ls")["runs"]
    assert listed["best_metric"] == 0.1
    shown = {each["train_step"]: each for each in desk.json("show", "digits")["checkpoints"]}
    assert [step for step, each in shown.items() if each["is_best"]] == [best]
    assert shown[best]["metrics"] == manifest["metrics"]
    assert "accuracy" in shown[LAST]["metrics"]
    kept = {
        each["train_step"]: each["kept"]
        for each in desk.json("checkpoint", "ls", "digits")["checkpoints"]
    }
    assert "best: val_loss 0.1" in kept[best]
    assert desk.say("checkpoint", "prune", "digits") == "nothing to remove\n"
    assert desk.json("ledger", "check") == {"format": 1, "runs": 1, "differences": []}
