"""`hpcflow sweep` as a person types it, over real trials on this machine."""

from __future__ import annotations

import csv
import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpcflow.testing.cluster import poll
from tests.cli.desk import Desk
from tests.cli.test_live_view import at_a_terminal

TRAIN = """\
import json, os, sys
from hpcflow import runtime

run = runtime.start()
run.restore()
lr = float(sys.argv[1])
assert lr == run.params.lr == float(os.environ.get("HPCFLOW_PARAM_lr", lr))
assert json.load(open(os.environ["HPCFLOW_PARAMS"]))["lr"] == lr
for step in run.train_steps(4):
    run.log(score=-abs(lr - 0.3) - 1 / step)
run.finish(score=-abs(lr - 0.3))
"""
CONFIG = """\
name: base
script: train.py
args: ["{{ params.lr }}"]
launch: {framework: none, launcher: none}
retry: {failures: 0}
"""
SWEEP = """\
name: quick
base: config.yaml
space:
  lr: {low: 0.0, high: 1.0, step: 0.1}
  size: 3
objective: {metric: score, direction: maximize}
sampler: {type: random, seed: 4}
start_from: [{lr: 0.3}]
parallel: 3
budget: {trials: 5}
"""


@pytest.fixture
def sweep(desk: Desk) -> Path:
    """The file of a sweep."""
    for name, text in (("train.py", TRAIN), ("config.yaml", CONFIG), ("sweep.yaml", SWEEP)):
        (desk.folder / name).write_text(text)
    return desk.folder / "sweep.yaml"


def until_over(desk: Desk, name: str = "quick") -> Any:
    """Rounds, as cron makes them, until it is at rest."""

    def over() -> Any:
        seen = desk.json("sweep", "status", name)
        if seen["state"] in ("over", "stopped"):
            return seen
        desk.say("sweep", "tick")
        return None

    return poll(over, 300, lambda: desk.say("sweep", "status", name))


def test_trials_that_would_all_crash_are_not_started(desk: Desk, sweep: Path) -> None:
    config = desk.folder / "config.yaml"
    config.write_text(CONFIG + "environment:\n  venv: ./gone\n")
    said = desk.error("sweep", "start", str(sweep))
    assert f"{config}:7, environment.venv: there is no virtual environment" in said
    config.write_text(CONFIG)
    (desk.folder / "train.py").write_text("def train(:\n")
    said = desk.error("sweep", "start", str(sweep), "--dry-run")
    assert f"{config}:2, script: {desk.folder / 'train.py'}:1 does not compile with " in said
    assert desk.json("sweep", "ls")["sweeps"] == []


def test_from_the_start_to_the_best_trial_trained_again(desk: Desk, sweep: Path) -> None:
    assert "trials                       5" in desk.say("sweep", "start", str(sweep), "--dry-run")
    assert desk.json("sweep", "ls")["sweeps"] == [], "nothing was created"
    started = desk.json("sweep", "start", str(sweep))
    assert started["first_round"]["asked"] == [0, 1, 2]
    (listed,) = desk.json("sweep", "ls")["sweeps"]
    assert listed["sweep_id"] == started["sweep_id"]
    assert "quick" in desk.say("sweep", "ls")
    seen = until_over(desk)
    assert (seen["complete"], seen["why"]) == (5, "the budget of 5 trials is used up")
    assert desk.json("sweep", "ls")["sweeps"] == []
    assert len(desk.json("sweep", "ls", "--all")["sweeps"]) == 1
    status = desk.say("sweep", "status", "quick")
    assert "5/5" in status
    assert "best      trial 0: score 0  (size=3  lr=0.3)" in status
    (best,) = desk.json("sweep", "best", "quick")["trials"]
    assert best["params"] == {"size": 3, "lr": 0.3}
    table = desk.say("sweep", "trials", "quick").splitlines()
    assert table[0].split() == ["TRIAL", "STATE", "size", "lr", "score", "AT", "TOOK", "WHY"]
    assert len(table) == 6
    assert len(desk.json("sweep", "trials", "quick", "--state", "failed")["trials"]) == 0

    config = desk.say("sweep", "best", "quick", "--render")
    assert yaml.safe_load(config)["params"] == {"size": 3, "lr": 0.3}
    (desk.folder / "best.yaml").write_text(config)
    again = desk.json("run", str(desk.folder / "best.yaml"), "--wait")
    assert again["metrics"]["score"] == 0.0
    launched = desk.json("sweep", "best", "quick", "--run")
    desk.say("wait", launched["run_id"])
    shown = desk.json("show", launched["run_id"])
    assert (shown["name"], shown["metrics"]["score"]) == ("quick-best", 0.0)
    assert shown["parent_sweep"] is None


def test_its_trials_can_be_taken_elsewhere(desk: Desk, sweep: Path) -> None:
    desk.say("sweep", "start", str(sweep), "--set", "budget.trials=3")
    until_over(desk)
    rows = list(csv.DictReader(io.StringIO(desk.say("sweep", "export", "quick"))))
    assert [row["trial"] for row in rows] == ["0", "1", "2"]
    assert rows[0]["params.lr"] == "0.3"
    assert float(rows[0]["values.score"]) == 0.0
    best = desk.say("sweep", "export", "quick", "--start-from", "--best", "2")
    assert yaml.safe_load(best)[0] == {"lr": 0.3}
    study = desk.folder / "study.log"
    said = desk.say("sweep", "export", "quick", "--study", str(study))
    assert said.startswith("3 trials of quick-")
    assert shlex.split(said.splitlines()[1])[-1] == str(study)
    assert study.is_file()
    assert "excludes other" in desk.error("sweep", "export", "quick", "--study", "x", "--best=1")
    other = yaml.safe_load(SWEEP) | {"name": "other", "start_from": yaml.safe_load(best)}
    sweep.write_text(yaml.safe_dump(other))
    desk.say("sweep", "start", str(sweep))
    trials = desk.json("sweep", "trials", "other")["trials"]
    assert [{"lr": trial["params"]["lr"]} for trial in trials[:2]] == yaml.safe_load(best)


def test_stopped_and_gone_on_with_more(desk: Desk, sweep: Path) -> None:
    desk.say("sweep", "start", str(sweep))
    assert "hpcflow sweep resume" in desk.say("sweep", "stop", "quick")
    assert until_over(desk)["state"] == "stopped"
    assert len(desk.json("sweep", "trials", "quick")["trials"]) == 3
    desk.say("sweep", "resume", "quick", "--set", "budget.trials=4", "--parallel", "1")
    assert until_over(desk)["complete"] == 4
    said = desk.error("sweep", "resume", "quick")
    assert "has nothing left to do: the budget of 4 trials is used up" in said
    said = desk.error("sweep", "resume", "quick", "--set", "space.lr=2")
    assert "only the budget of a sweep can change" in said
    assert "--start-from" in said
    assert "is over" in desk.error("sweep", "stop", "quick")


def test_a_changed_file_under_the_same_name_is_refused_while_it_is_under_way(
    desk: Desk, sweep: Path
) -> None:
    started = desk.json("sweep", "start", str(sweep))
    sweep.write_text(SWEEP.replace("high: 1.0", "high: 2.0"))
    said = desk.error("sweep", "start", str(sweep))
    assert f"sweep {started['sweep_id']} has this name and is active, started from a file" in said
    assert f"hpcflow sweep stop {started['sweep_id']}" in said
    desk.say("sweep", "stop", "quick", "--cancel")
    assert until_over(desk)["state"] == "stopped"


def test_a_damaged_sweep_is_in_the_way_of_no_other(desk: Desk, sweep: Path, home: Path) -> None:
    broken = desk.json("sweep", "start", str(sweep), "--set", "name=broken")["sweep_id"]
    (home / "sweeps" / broken / "sweep.json").write_text("{}")
    again = desk.json("sweep", "start", str(sweep), "--set", "name=broken")["sweep_id"]
    assert [each["sweep_id"] for each in desk.json("sweep", "ls")["sweeps"]] == [again]
    said = desk.error("sweep", "ls", code=0)
    assert f"{broken}: " in said
    command = said.partition("this one away: ")[2].splitlines()[0]
    subprocess.run(shlex.split(command), check=True)
    assert desk.error("sweep", "ls", code=0) == ""
    other = desk.json("sweep", "start", str(sweep), "--set", "name=other")["sweep_id"]
    with (home / "sweeps" / other / "journal.jsonl").open("a") as journal:
        closed = {"record": "closed", "at": "2026-03-01T12:00:00Z", "trial": 0, "cost_usd": "12.5,"}
        journal.write(json.dumps(closed) + "\n")
    for option in ([], ["--all"]):
        assert [each["sweep_id"] for each in desk.json("sweep", "ls", *option)["sweeps"]] == [again]
        assert f"the journal of sweep {other} is damaged" in desk.error("sweep", "ls", code=0)
    desk.say("sweep", "stop", again, "--cancel")


def test_what_there_is_not_is_said_with_what_there_is(desk: Desk, sweep: Path) -> None:
    assert "no sweep 'quik'" in desk.error("sweep", "status", "quik")
    desk.say("sweep", "start", str(sweep), "--set", "budget.trials=1")
    assert "did you mean quick" in desk.error("sweep", "status", "quik")
    until_over(desk)
    sweep.write_text(SWEEP.replace("score", "scroe").replace("name: quick", "name: wrong"))
    desk.say("sweep", "start", str(sweep), "--set", "parallel=1")
    said = poll(lambda: desk.say("sweep", "tick"), 300, "it says nothing")
    assert "never reported 'scroe'" in said
    assert "did you mean 'score'?" in said
    assert "no trial of wrong-" in desk.error("sweep", "best", "wrong")


def test_the_daemon_drives_it_and_a_terminal_shows_it(desk: Desk, sweep: Path, home: Path) -> None:
    desk.say("sweep", "start", str(sweep))
    env = {**os.environ, "COLUMNS": "160", "TERM": "xterm"}
    daemon = subprocess.Popen(
        [sys.executable, "-m", "hpcflow.cli.main", "daemon", "--interval", "1"],
        env=env,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        shown = at_a_terminal("sweep", "status", "quick", "--follow", env=env, cwd=desk.folder)
    finally:
        daemon.terminate()
        said, _ = daemon.communicate(timeout=120)
    assert "5/5" in shown
    assert "best" in shown
    assert "over" in shown
    assert "asked 3" in said
    assert home.exists()
    lines = desk.say("sweep", "status", "quick", "--follow").splitlines()
    assert lines == ["over  5/5 ended, 0 under way  best score 0"]
