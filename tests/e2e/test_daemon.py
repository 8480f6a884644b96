"""The requeue daemon on a real cluster: a run that is preempted, again and again, finishes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from hpcflow.testing.cluster import User, poll
from tests.e2e.conftest import TWO_NODES, Hpcflow
from tests.e2e.test_main_job import assert_same, weights

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

PREEMPTIONS = 4


@pytest.fixture
def daemon(hpcflow: Hpcflow) -> Iterator[subprocess.Popen[str]]:
    """``hpcflow daemon`` of the same user, until the test is over."""
    process = hpcflow.user.popen(
        ["hpcflow", "daemon", "--interval", "1"],
        env=hpcflow.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    yield process
    process.terminate()
    process.communicate(timeout=60)


def take_all_nodes(user: User) -> None:
    """Run a short job of higher priority on every node; returns when it is over."""
    command = ["sbatch", "--wait", "--partition=gpu", "--nodes=4", "--gpus-per-node=4"]
    user.run([*command, "--time=1", "--output=/dev/null", "--wrap=sleep 1"], timeout=120)


def test_a_run_that_is_preempted_again_and_again_finishes_by_itself(
    hpcflow: Hpcflow, grace: User, daemon: subprocess.Popen[str], undisturbed: dict[str, Any]
) -> None:
    run = hpcflow.json(
        "run",
        hpcflow.digits,
        *TWO_NODES,
        *("--set", "resources.partition=spot", "--set", "resources.gpus_per_node=1"),
        *("--set", "checkpoint.every_train_steps=5"),
    )

    def look() -> Any:
        return hpcflow.json("show", run["run_id"])

    def has_new_checkpoint(attempt: int) -> bool:
        return any(each["attempt"] == attempt for each in look()["checkpoints"])

    for attempt in range(1, PREEMPTIONS + 1):
        poll(partial(has_new_checkpoint, attempt), 120, f"attempt {attempt} made no checkpoint")
        take_all_nodes(grace)
    poll(lambda: look()["state"] == "completed", 240, "it never completed")
    assert daemon.poll() is None
    shown = look()
    causes = [attempt["cause"] for attempt in shown["attempts"]]
    assert causes[-1] == "completed"
    assert set(causes[:-1]) == {"preempted"}
    assert len(causes) == PREEMPTIONS + 1
    told = hpcflow.json("history", run["run_id"])["attempts"]
    assert [chapter["lost_train_steps"] for chapter in told[:-1]] == [0] * PREEMPTIONS
    assert all("go_on" in chapter["decided"] for chapter in told[:-1])
    assert hpcflow("ledger", "check").returncode == 0
    assert_same(weights(shown), weights(undisturbed))
