"""A Python function as the program of a sweep, on the real cluster: in a file, and pickled."""

from __future__ import annotations

import pytest

from hpcflow.testing.cluster import poll
from tests.e2e.conftest import Hpcflow

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

IN_A_FILE = """
import os

def objective(lr, depth, run):
    assert os.environ["SLURM_JOB_ID"]
    state = {"sum": 0.0}
    run.restore(state=state)
    for train_step in run.train_steps(20):
        state["sum"] += lr * depth
        run.log(loss=abs(state["sum"] - 20))
    return {"loss": abs(state["sum"] - 20), "depth": depth}
"""
FROM_PYTHON = """
import os

import hpcflow

offset = 2.0

def loss(lr):
    assert os.environ["SLURM_JOB_ID"]
    return abs(lr - 0.5) + offset

search = hpcflow.sweep(
    loss,
    {"lr": {"choices": [0.25, 0.5, 0.75]}},
    direction="minimize",
    sampler="grid",
    parallel=3,
    resources={"mem": "500M", "time_limit": "5m"},
    site="devcluster",
)
search.wait(poll_s=1)
print(search.sweep_id, search.best.params["lr"], search.best.value)
"""


def test_a_function_in_a_file_is_called_in_jobs_of_the_cluster(hpcflow: Hpcflow) -> None:
    file = hpcflow.write_config("objective.py", IN_A_FILE)
    space = "{lr: {low: 0.1, high: 1.0, step: 0.3}, depth: {choices: [1, 2]}}"
    hpcflow.json(
        "sweep", "start", f"{file}:objective", "--space", space, "--site", "devcluster",
        "--metric", "loss", "--direction", "minimize", "--set", "sampler=grid",
        "--set", "parallel=8", "--set", "base.resources.mem=500M",
    )  # fmt: skip

    def is_over() -> bool:
        hpcflow("sweep", "tick", check=False)
        return bool(hpcflow.json("sweep", "status", "objective")["state"] == "over")

    poll(is_over, 300, "the sweep never ended")
    trials = hpcflow.json("sweep", "trials", "objective")["trials"]
    assert [trial["state"] for trial in trials] == ["complete"] * 8
    for trial in trials:
        product = trial["params"]["lr"] * trial["params"]["depth"]
        assert trial["values"]["loss"] == pytest.approx(abs(20 * product - 20))
    (best,) = hpcflow.json("sweep", "best", "objective")["trials"]
    assert best["params"]["lr"] * best["params"]["depth"] == pytest.approx(1.0)
    shown = hpcflow.json("show", best["runs"][0])
    assert (shown["state"], shown["metrics"]["depth"]) == ("completed", best["params"]["depth"])


def test_a_function_of_a_python_program_is_pickled_and_called_in_jobs(hpcflow: Hpcflow) -> None:
    script = hpcflow.write_config("search.py", FROM_PYTHON)
    done = hpcflow.user.run(
        [str(hpcflow.software.python), str(script)],
        cwd=script.parent,  # the code of the runs is below
        env=hpcflow.env,
        timeout=300,
    )
    sweep_id, lr, value = done.stdout.split()
    assert (lr, value) == ("0.5", "2.0")
    status = hpcflow.json("sweep", "status", sweep_id)
    assert (status["state"], status["complete"]) == ("over", 3)
