"""An admin requeues the job of a run: the run goes on under the same id, and waits for nothing."""

from __future__ import annotations

import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from hpcflow.testing.cluster import Cluster, poll
from tests.e2e.conftest import TRAINING, TWO_NODES, Hpcflow, saves
from tests.e2e.counted import Counted
from tests.e2e.test_daemon import daemon
from tests.e2e.test_main_job import assert_same, weights

__all__ = ["daemon"]

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]


def test_a_requeued_run_goes_on_at_once_as_the_next_attempt(
    hpcflow: Hpcflow,
    cluster: Cluster,
    daemon: subprocess.Popen[str],
    undisturbed: dict[str, Any],
) -> None:
    often = ("--set", "checkpoint.every_train_steps=10")
    run = hpcflow.json("run", hpcflow.digits, *TWO_NODES, *TRAINING, *often)
    counted = Counted(run["run_id"], Path(run["run_dir"]), hpcflow.home)
    poll(lambda: saves(run), 300, "it made no checkpoint")
    cluster.run("scontrol", "update", f"jobid={run['job_id']}", "requeue=1")
    cluster.run("scontrol", "requeue", run["job_id"])
    poll(lambda: counted.causes[-1:] == ["completed"], 300, "it never completed")
    assert daemon.poll() is None
    shown = hpcflow.json("show", run["run_id"])
    first, second = shown["attempts"]
    assert first["job_id"] == second["job_id"] == run["job_id"]
    assert (first["cause"], first["raw_state"]) == ("requeued", "REQUEUED")
    assert (second["cause"], second["exit_code"]) == ("completed", 0)
    waited = datetime.fromisoformat(second["started_at"]) - datetime.fromisoformat(
        second["submitted_at"]
    )
    assert waited.total_seconds() < 45, "Slurm's own wait is 121 s"
    assert second["resume_from"] is not None
    told = hpcflow.json("history", run["run_id"])["attempts"]
    assert [each["how"] for each in told] == ["sbatch", "restarted"]
    assert hpcflow("ledger", "check").returncode == 0
    assert "continues as attempt 2" in hpcflow("logs", run["run_id"], "--attempt", "1").stdout
    assert hpcflow("logs", run["run_id"]).stdout
    assert_same(weights(shown), weights(undisturbed))
