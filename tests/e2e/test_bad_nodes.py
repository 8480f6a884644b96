"""A node that takes two runs down with it is excluded from their next attempts."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from hpcflow.testing.cluster import Cluster, User, poll
from tests.e2e.conftest import Hpcflow

pytestmark = pytest.mark.cluster

SLEEPER = """
name: sleeper
command: [sleep, "300"]
launch: {framework: none, launcher: none}
resources: {time_limit: 10m, partition: gpu, cpus_per_task: 1, mem: 100M}
retry: {backoff: 1s}
"""


def test_what_failed_on_a_bad_node_goes_on_elsewhere(
    hpcflow: Hpcflow, ada: User, cluster: Cluster
) -> None:
    config = hpcflow.write_config("sleeper.yaml", SLEEPER)
    runs = [hpcflow.json("run", config, "--site", "devcluster")["run_id"] for _ in range(2)]

    def last(run_id: str) -> Any:
        return hpcflow.json("show", run_id)["attempts"][-1]

    def nodes_of(run_id: str) -> list[str]:
        attempt = last(run_id)
        return list(attempt["nodes"]) if attempt["state"] == "running" else []

    poll(lambda: all(map(nodes_of, runs)), 300, "they never ran")
    (bad,), (other,) = map(nodes_of, runs)
    assert bad == other, "Slurm fills one node before it takes the next"

    cluster.crash_node(bad)
    cluster.revive_node(bad)
    poll(lambda: all(last(each)["cause"] for each in runs), 300, "their ends were never seen")
    assert [last(each)["cause"] for each in runs] == ["node_fail", "node_fail"]
    (shown,) = hpcflow.json("nodes", "--site", "devcluster")["nodes"]
    assert (shown["node"], shown["is_bad"], shown["runs"]) == (bad, True, sorted(runs))
    assert shown["excluded_in"] == ["gpu"]
    assert "2 failures of 2 runs (node_fail)" in hpcflow("nodes").stdout

    by_hand, by_daemon = runs
    sent = {by_hand: hpcflow.json("resume", by_hand)["job_id"]}

    def is_sent() -> bool:
        report = hpcflow("daemon", "--once", "--json").stdout
        return by_daemon in report and f"excluding {bad}" in report

    poll(is_sent, 300, "the daemon did not send it")
    sent[by_daemon] = last(by_daemon)["job_id"]
    for run_id, job_id in sent.items():
        assert f"ExcNodeList={bad}" in cluster.run("scontrol", "show", "job", job_id).split()
        poll(lambda each=run_id: nodes_of(each), 300, "it never ran again")  # type: ignore[misc]
        assert nodes_of(run_id) != [bad]

    # What the daemon tells to type where a job waits for nodes that it keeps away from.
    sbatch = ["sbatch", "--hold", "--parsable", "--partition=gpu", f"--exclude={bad}"]
    held = ada.run([*sbatch, "--output=/dev/null", "--wrap=true"]).stdout.strip()
    ada.run(["scontrol", "update", f"jobid={held}", "ExcNodeList="])
    assert "ExcNodeList=" in cluster.run("scontrol", "show", "job", held)
    assert f"ExcNodeList={bad}" not in cluster.run("scontrol", "show", "job", held)
    ada.run(["scancel", held])
    hpcflow("nodes", "forgive", bad)
    assert hpcflow.json("nodes")["nodes"] == []
    hpcflow("cancel", *runs)


@pytest.mark.soak
def test_a_job_that_an_overloaded_node_refuses_goes_on(hpcflow: Hpcflow, cluster: Cluster) -> None:
    """slurmd answers after ``MessageTimeout``: Slurm gives the job up, and calls it CANCELLED.

    On Slurm 26.05, slurmd's request for that may come too late. Slurm then restarts the job itself.
    """
    config = hpcflow.write_config("sleeper.yaml", SLEEPER)
    frozen = [daemon.pid for daemon in cluster.slurmd.values() if daemon.pid]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        run = hpcflow.json("run", config, "--site", "devcluster")
        refused = f"squeue --noheader --states=all --jobs={run['job_id']} --Format=State,RestartCnt"
        poll(lambda: "COMPL" in cluster.run(*refused.split()), 60, "Slurm still waits for the node")
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)

    def goes_on() -> bool:
        hpcflow("daemon", "--once")
        return bool(hpcflow.json("show", run["run_id"])["attempts"][-1]["state"] == "running")

    poll(goes_on, 180, lambda: hpcflow("show", run["run_id"]).stdout + cluster.run("squeue"))
    first, second = hpcflow.json("show", run["run_id"])["attempts"]
    assert second["attempt"] == 2
    is_restarted = second["job_id"] == first["job_id"]
    assert first["cause"] == ("node_fail" if is_restarted else "launch_failed")
    hpcflow("cancel", run["run_id"])


@pytest.fixture
def failing_prolog(cluster: Cluster) -> Iterator[None]:
    """Make the prolog fail on every node."""
    prolog = cluster.directory / "etc/prolog"
    prolog.write_text("#!/bin/sh\nexit 1\n")
    prolog.chmod(0o755)
    with cluster.configured(f"Prolog={prolog}"):
        yield
        prolog.write_text("#!/bin/sh\n")  # a slurmd may run it once more before it reconfigures
    for node in cluster.settings.node_names:
        cluster.run("scontrol", "update", f"nodename={node}", "state=resume", check=False)


@pytest.mark.every_slurm
@pytest.mark.usefixtures("failing_prolog")
def test_a_run_whose_prolog_failed_is_resubmitted(hpcflow: Hpcflow, cluster: Cluster) -> None:
    """Slurm drains the node and cancels the job, because hpcflow submits with --no-requeue."""
    config = hpcflow.write_config("sleeper.yaml", SLEEPER)
    run = hpcflow.json("run", config, "--site", "devcluster")
    state = f"squeue --noheader --states=all --jobs={run['job_id']} --format=%T"
    poll(lambda: "CANCELLED" in cluster.run(*state.split()), 120, "Slurm did not cancel it")

    def is_resubmitted() -> bool:
        hpcflow("daemon", "--once")
        return len(hpcflow.json("show", run["run_id"])["attempts"]) > 1

    poll(is_resubmitted, 120, lambda: hpcflow("show", run["run_id"]).stdout)
    assert hpcflow.json("show", run["run_id"])["attempts"][0]["cause"] == "launch_failed"
    hpcflow("cancel", run["run_id"])
