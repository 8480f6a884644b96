"""The main things that people do, on each version of Slurm that Debian has."""

from __future__ import annotations

from decimal import Decimal

import pytest

from hpcflow.model.journal import Accounted
from hpcflow.testing.cluster import Cluster, User, poll
from tests.e2e.conftest import Hpcflow
from tests.e2e.counted import Counted, assert_counted, complete, start, take_all_nodes, watch

pytestmark = [pytest.mark.cluster, pytest.mark.every_slurm]

SWEEP = """
name: searched
base: base.yaml
space: {lr: {choices: [0.1, 0.2, 0.3]}}
objective: {metric: accuracy, direction: maximize}
sampler: grid
submit: array
parallel: 3
"""
TRIAL = """
name: trial
script: trial.py
params: {lr: 0.1}
launch: {framework: none, launcher: srun}
resources: {partition: gpu, cpus_per_task: 1, gpus_per_node: 1, mem: 200M, time_limit: 5m}
"""
PROGRAM = """
from hpcflow import runtime

run = runtime.start()
run.restore()
run.log(accuracy=run.params.lr)
run.finish(accuracy=run.params.lr)
"""


def test_a_run_survives_its_time_limit_and_a_preemption_and_is_billed_for_each_attempt(
    hpcflow: Hpcflow, cluster: Cluster, grace: User
) -> None:
    gpu = ("--set", "resources.gpus_per_node=1")
    with watch(hpcflow):
        run = start(
            hpcflow,
            *("--set", "resources.time_limit=1m", "--set", "checkpoint.notice=50s"),
            *("--set", "checkpoint.every_train_steps=null", "--set", "checkpoint.interval=never"),
            *gpu,
        )
        run.wait_ended()
        assert run.causes == ["checkpointed"]
        run.wait_training(2)
        take_all_nodes(grace)
        run.wait_ended(2)
        assert run.causes == ["checkpointed", "preempted"]
        run.wait_training(3)
        complete([run])
        poll(lambda: len(bills(run)) == 3, 300, lambda: f"billed: {bills(run)}")
    assert_counted(hpcflow, cluster, [run])
    words = "sacct -D -X -n -P -o elapsedraw -j"
    elapsed = cluster.run(*words.split(), ",".join(run.job_ids)).split()
    assert sorted(bills(run)) == sorted(map(Decimal, elapsed))
    total = hpcflow.json("cost", "report")["total"]
    hours = float(sum(map(Decimal, elapsed)) / 3600)
    assert (total["attempts"], total["gpu_hours"]) == (3, pytest.approx(hours, abs=1e-5))


def bills(run: Counted) -> list[Decimal]:
    """Seconds of its attempts, by accounting."""
    found = (each for each in run.records if isinstance(each, Accounted))
    return [each.elapsed_s for each in found if each.source == "accounting"]


def test_the_trials_of_an_array_are_told_apart(hpcflow: Hpcflow, cluster: Cluster) -> None:
    for name, text in (("base.yaml", TRIAL), ("trial.py", PROGRAM), ("sweep.yaml", SWEEP)):
        hpcflow.write_config(name, text)
    hpcflow("sweep", "start", hpcflow.home.parent / "sweep.yaml", "--site", "devcluster")

    def is_over() -> bool:
        hpcflow("sweep", "tick")
        return bool(hpcflow.json("sweep", "status", "searched")["state"] == "over")

    poll(is_over, 240, lambda: hpcflow("sweep", "trials", "searched").stdout)
    trials = hpcflow.json("sweep", "trials", "searched")["trials"]
    assert [trial["state"] for trial in trials] == ["complete"] * 3
    assert sorted(trial["values"]["accuracy"] for trial in trials) == [0.1, 0.2, 0.3]
    jobs = {run["job_id"].partition("_")[0] for run in hpcflow.json("ls", "--all")["runs"]}
    assert len(jobs) == 1, "they were one array"
    assert (
        cluster.run("sacct", "-X", "-n", "-P", "-o", "state", "-j", *jobs).split()
        == ["COMPLETED"] * 3
    )
