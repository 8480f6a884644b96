"""A run whose config leaves it to hpcflow how often to save, from the YAML to its events."""

from __future__ import annotations

import json

from hpcflow.settings import load_settings
from hpcflow.storage.rundir import read_run
from tests.cli.desk import Desk

TRAIN = """
from hpcflow import runtime
from hpcflow.settings import load_settings

run = runtime.start()
state = {"sum": 0}
run.restore(state=state)
for train_step in run.train_steps(6):
    state["sum"] += train_step
run.finish()
"""

CONFIG = """
name: digits
script: train.py
launch: {framework: none}
checkpoint: {interval: auto, every_train_steps: 2}
"""


def test_the_job_adapts_the_interval_to_what_its_saves_cost(desk: Desk) -> None:
    (desk.folder / "train.py").write_text(TRAIN)
    config = desk.folder / "digits.yaml"
    config.write_text(CONFIG)
    said = desk.json("run", str(config), "--wait")
    run_dir = load_settings().home.run_dir(said["run_dir"])
    assert "export HPCFLOW_MTBF_S=86400\n" in run_dir.attempt(1).script.read_text()
    events = [json.loads(line) for line in run_dir.attempt(1).events.read_text().splitlines()]
    saved = [each for each in events if each["event"] == "checkpoint"]
    assert [each["train_step"] for each in saved] == [2, 4, 6]
    for each in saved:
        assert 60 <= each["interval_s"] <= 600
    assert read_run(run_dir).spec.checkpoint.interval_s == "auto"
