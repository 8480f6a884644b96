"""What a cluster does to its users: a controller that is down, a refusal, a cancel, the notice."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from hpcflow.testing.cluster import Cluster, poll
from tests.e2e.conftest import Hpcflow, events
from tests.e2e.preempted import unhurried

pytestmark = pytest.mark.cluster

SLEEPER = """
name: sleeper
command: [sleep, "300"]
launch: {framework: none, launcher: none}
resources: {time_limit: 10m}
"""


def jobs_named(hpcflow: Hpcflow, run_id: str) -> list[str]:
    """States of all jobs that the queue remembers of a run."""
    shown = hpcflow.user.run(["squeue", "--me", "--states=all", "--noheader", "--format=%T %j"])
    return [line.split()[0] for line in shown.stdout.splitlines() if run_id in line]


def test_slurmctld_down_keeps_the_run_and_resume_sends_it(
    hpcflow: Hpcflow, cluster: Cluster
) -> None:
    """The site is recognized without it."""
    config = hpcflow.write_config("sleeper.yaml", SLEEPER)
    with cluster.without("slurmctld"):
        done = hpcflow("run", config, check=False)
        assert done.returncode == 1
        assert "the run is kept; submit it with: hpcflow resume sleeper-" in done.stderr
    (run,) = hpcflow.json("ls")["runs"]
    assert (run["state"], run["job_id"]) == ("created", None)
    sent = hpcflow.json("resume", run["run_id"])
    assert sent["attempt"] == 1
    assert len(jobs_named(hpcflow, run["run_id"])) == 1
    hpcflow("cancel", run["run_id"])


def test_cancel_ends_the_job_and_the_run(hpcflow: Hpcflow) -> None:
    config = hpcflow.write_config("sleeper.yaml", SLEEPER)
    run = hpcflow.json("run", config, "--site", "devcluster")
    poll(
        lambda: hpcflow.json("show", run["run_id"])["state"] == "running",
        120,
        "the sleeper never ran",
    )
    (cancelled,) = hpcflow.json("cancel", run["run_id"])["runs"]
    assert cancelled == {"run_id": run["run_id"], "job_id": run["job_id"], "error": None}
    assert hpcflow("wait", run["run_id"], check=False).returncode == 1
    shown = hpcflow.json("show", run["run_id"])
    assert (shown["state"], shown["cause"]) == ("cancelled", "cancelled")


def test_a_run_that_is_alive_is_not_sent_twice(hpcflow: Hpcflow) -> None:
    config = hpcflow.write_config("sleeper.yaml", SLEEPER)
    run = hpcflow.json("run", config, "--site", "devcluster")
    refused = hpcflow("resume", run["run_id"], "--json", check=False)
    assert refused.returncode == 2
    assert run["job_id"] in json.loads(refused.stdout)["error"]["message"]
    assert len(jobs_named(hpcflow, run["run_id"])) == 1
    hpcflow("cancel", run["run_id"])


@pytest.mark.soak
def test_the_notice_before_the_time_limit_saves_and_the_run_goes_on(hpcflow: Hpcflow) -> None:
    run = hpcflow.json(
        "run",
        unhurried(hpcflow),  # it trains for a minute, and others need the cores
        "--site",
        "devcluster",
        *("--set", "resources.nodes=2", "--set", "resources.time_limit=1m"),
        *("--set", "params.epochs=100000", "--set", "checkpoint.notice=40s"),
        *("--set", "checkpoint.interval=1h", "--set", "checkpoint.every_train_steps=null"),
    )
    assert hpcflow("wait", run["run_id"], check=False).returncode == 1
    shown = hpcflow.json("show", run["run_id"])
    assert (shown["state"], shown["cause"]) == ("waiting", "checkpointed")
    (checkpoint,) = shown["checkpoints"]
    assert checkpoint["train_step"] == shown["train_step"] > 0
    hpcflow("resume", run["run_id"])

    def resumed() -> bool:
        steps = [each["train_step"] for each in events(run["run_dir"], 2) if "train_step" in each]
        return bool(max(steps, default=0) > checkpoint["train_step"])

    poll(resumed, 300, "the run did not go on from its checkpoint")
    hpcflow("cancel", run["run_id"])


# In `make test`, the trainings of two nodes in tests/e2e/preempted.py lose no train step.
@pytest.mark.soak
def test_a_preempted_run_saved_within_the_grace_time(hpcflow: Hpcflow) -> None:
    run = hpcflow.json(
        "run",
        hpcflow.digits,
        "--site",
        "devcluster",
        *("--set", "resources.partition=spot", "--set", "resources.nodes=4"),
        *("--set", "resources.gpus_per_node=1", "--set", "params.epochs=100000"),
        *("--set", "checkpoint.interval=1h", "--set", "checkpoint.every_train_steps=null"),
    )

    def training() -> bool:
        return bool(hpcflow.json("show", run["run_id"])["train_step"])

    poll(training, 300, "the run never trained")
    greedy = SLEEPER.replace("sleeper", "greedy").replace("10m", "5m, nodes: 4, gpus_per_node: 4")
    taker = hpcflow.json(
        "run",
        hpcflow.write_config("greedy.yaml", greedy.replace("none}", "srun}")),
        "--site",
        "devcluster",
    )
    assert hpcflow("wait", run["run_id"], check=False).returncode == 1
    shown = hpcflow.json("show", run["run_id"])
    assert (shown["state"], shown["cause"]) == ("waiting", "preempted")
    assert shown["attempts"][0]["raw_state"] in ("PREEMPTED", "FAILED")
    hpcflow("cancel", taker["run_id"])
    assert shown["checkpoints"], "the notice came too late to save"


def test_what_may_not_be_read_is_named(hpcflow: Hpcflow) -> None:
    config = hpcflow.write_config("closed.yaml", SLEEPER)
    config.chmod(0o600)  # root's, as written by the test
    done = hpcflow("run", config, "--site", "devcluster", check=False)
    assert done.returncode == 2
    assert "closed.yaml" in done.stderr
    assert "Traceback" not in done.stderr
    assert hpcflow.json("ls")["runs"] == []


def test_a_scratch_of_somebody_else_is_no_place_for_runs(hpcflow: Hpcflow) -> None:
    config = hpcflow.write_config("sleeper.yaml", SLEEPER)
    elsewhere = replace(hpcflow, env={**hpcflow.env, "SCRATCH": "/root"})
    done = elsewhere("run", config, "--site", "devcluster", check=False)
    assert done.returncode == 2
    assert "see who owns it: ls -ld /root\n" in done.stderr
    rehearsed = elsewhere("run", config, "--site", "devcluster", "--dry-run", check=False)
    assert rehearsed.returncode == 2
    assert "ls -ld /root\n" in rehearsed.stderr
    assert hpcflow.json("ls")["runs"] == []
