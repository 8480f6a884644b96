"""A round is killed before or after anything that it does, and the next one makes it good: no trial
is lost, none is asked for twice, none is sent twice."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from hpcflow.cli.main import main
from hpcflow.storage.layout import Home
from hpcflow.storage.locks import try_lock
from hpcflow.storage.sweeps import list_sweeps
from hpcflow.sweeps.rounds import tick_all
from hpcflow.sweeps.state import SweepState
from hpcflow.sweeps.view import look
from tests.requeue.killing import Killer
from tests.sweeps.killing import assert_once, killed_at_each
from tests.sweeps.searched import Searched

CONFIG = "retry: {failures: 0}\n"


def test_the_first_trials_are_asked_for_and_sent_once(tmp_path: Path, killer: Killer) -> None:
    for moment, desk in killed_at_each(killer, tmp_path):
        desk.begin("parallel: 2\nbudget: {trials: 3}")
        with killer.armed():
            desk.round()
        for _ in range(2):
            desk.clock.advance(400)
            desk.round()
        assert desk.running() == [0, 1], f"killed at moment {moment}"
        assert_once(desk, moment)
    assert moment > 16


def test_what_ends_is_told_once_and_what_is_pruned_is_ended(tmp_path: Path, killer: Killer) -> None:
    for moment, desk in killed_at_each(killer, tmp_path):
        desk.config.write_text(desk.config.read_text() + CONFIG)
        desk.begin(
            "parallel: 3\nbudget: {trials: 4}\nretries: 1\npruner: {type: threshold, lower: 0.3}\n"
        )
        desk.round()
        desk.reports(0, 50, 0.1)
        desk.completes(1, 0.5)
        desk.slurm.end(desk.job(2), "FAILED", exit_code=1)
        with killer.armed():
            desk.round()
        for _ in range(3):
            desk.clock.advance(400)
            desk.round()
        states = desk.states()
        assert states[:2] == ["pruned", "complete"], f"killed at moment {moment}"
        assert states[2:] == ["running", "running"], f"killed at moment {moment}"
        assert desk.run_dir(0).cancel.read_text() == "pruned\n"
        assert len(desk.trial(2).runs[0]) == 2, "trained again, once"
        assert_once(desk, moment)
        assert len(desk.alive()) == 2
    assert moment > 20


def test_of_two_rounds_at_once_one_does_nothing(tmp_path: Path) -> None:
    desk = Searched(tmp_path)
    desk.begin()
    with try_lock(desk.sweep_dir.lock) as lock:
        assert lock is not None
        with pytest.raises(ValueError, match="not enough values"):
            desk.round()  # there is no report
    assert desk.round().asked == [0, 1, 2, 3]


LOCAL = """
name: small
command: [sh, -c, "sleep 0.2; echo '{event}' >> \\"$HPCFLOW_EVENTS\\""]
launch: {{framework: none, launcher: none}}
"""
SWEEP = """
name: killed
base: config.yaml
space: {{lr: {{low: 0.0, high: 1.0}}}}
objective: {{metric: accuracy, direction: maximize}}
sampler: random
parallel: 4
budget: {{trials: {trials}}}
"""


@pytest.mark.parametrize("trials", [4, pytest.param(12, marks=pytest.mark.soak)])
def test_real_rounds_that_are_killed_at_any_time_lose_nothing(
    tmp_path: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    trials: int,
) -> None:
    """In processes of their own, forked: else most kills would come while Python imports."""

    def asked(*command: str) -> Any:
        capfd.readouterr()
        assert main([*command, "--json"]) == 0
        return json.loads(capfd.readouterr().out)

    monkeypatch.setenv("HPCFLOW_SITE", "local")
    event = {"at": "2026-01-01T00:00:00Z", "event": "finished", "train_step": 1}
    event["metrics"] = {"accuracy": 0.5}
    quoted = json.dumps(event).replace('"', '\\"')
    (tmp_path / "config.yaml").write_text(LOCAL.format(event=quoted))
    (tmp_path / "sweep.yaml").write_text(SWEEP.format(trials=trials))
    assert main(["sweep", "start", str(tmp_path / "sweep.yaml")]) == 0
    deadline = time.monotonic() + 500
    pause_s, kills = 0.02, 0
    (sweep_dir,) = list_sweeps(Home(home))
    while look(sweep_dir)[1].state is not SweepState.OVER:
        assert time.monotonic() < deadline, asked("sweep", "status", "killed")
        round_ = get_context("fork").Process(target=main, args=(["sweep", "tick"],))
        round_.start()
        round_.join(pause_s)
        round_.kill()
        round_.join()
        kills += round_.exitcode == -signal.SIGKILL
        pause_s = pause_s + 0.07 if pause_s < 1.5 else 0.02
    assert kills > 1
    seen = asked("sweep", "status", "killed")
    assert (seen["complete"], seen["running"], seen["failed"]) == (trials, 0, 0)
    jobs = Counter(path.name for path in (home / "runs").iterdir())
    assert len(jobs) == trials
    told = asked("sweep", "trials", "killed")["trials"]
    assert sorted(run for trial in told for run in trial["runs"]) == sorted(jobs)
    for run in jobs:
        attempts = asked("show", run)["attempts"]
        executed = [attempt for attempt in attempts if attempt["state"] != "withdrawn"]
        assert len(executed) == 1, f"{run} was sent twice"


def test_rounds_at_once_by_many_processes_ask_for_each_trial_once(tmp_path: Path) -> None:
    desk = Searched(tmp_path)
    desk.begin("parallel: 6\nbudget: {trials: 6}")
    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with desk.around() as around:
                    tick_all(around, only=desk.sweep_dir)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert [trial.number for trial in desk.progress.trials] == list(range(6))
    runs = [run_id for trial in desk.progress.trials for run_id in trial.all_runs]
    assert len(set(runs)) == len(list(desk.settings.home.runs.iterdir())) == 6
