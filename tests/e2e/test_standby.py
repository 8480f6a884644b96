"""A standby in a real queue: it goes on though no daemon lives, or is gone within seconds."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hpcflow.testing.cluster import Cluster, User, poll
from tests.e2e.conftest import Hpcflow
from tests.e2e.counted import Counted, assert_counted, start, take_all_nodes

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def in_queue(hpcflow: Hpcflow, run: Counted) -> dict[str, str]:
    """Job name -> state and reason, of every job of the run that the queue remembers."""
    words = ["squeue", "--me", "--states=all", "--noheader", "--format=%j %T %r"]
    lines = hpcflow.user.run(words).stdout.splitlines()
    rows = (line.split(" ", 1) for line in lines)
    return {name: rest for name, rest in rows if run.run_id in name}


@contextmanager
def killed_once_a_standby_waits(hpcflow: Hpcflow, run: Counted) -> Iterator[None]:
    """A daemon lives until the standby of ``run`` is in the queue, and then is killed by -9."""
    daemon = hpcflow.user.popen(
        ["hpcflow", "daemon", "--interval", "1"],
        env=hpcflow.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        poll(
            lambda: "PENDING Dependency" in in_queue(hpcflow, run).values(),
            120,
            lambda: f"no standby: {in_queue(hpcflow, run)}, {run.records[-3:]}",
        )
    finally:
        daemon.send_signal(signal.SIGKILL)
        daemon.wait(timeout=120)
    try:
        yield
    finally:
        run.tell("finish")
        hpcflow.user.run(["scancel", f"--user={hpcflow.user.name}"], check=False)


def test_a_preempted_run_completes_though_no_daemon_lives(
    hpcflow: Hpcflow, grace: User, cluster: Cluster
) -> None:
    run = start(hpcflow, "--set", "retry.standby=true")
    run.wait_training()
    with killed_once_a_standby_waits(hpcflow, run):
        take_all_nodes(grace)
        run.wait_training(execution=2)
        run.tell("finish")
        poll(lambda: run.executions[-1].has_ended, 300, lambda: f"{run.executions}")
        assert hpcflow("wait", run.run_id).returncode == 0
        first, second = hpcflow.json("show", run.run_id)["attempts"]
        assert (first["cause"], second["cause"]) == ("preempted", "completed")
        assert run.executions[1].began_at > 0, "it went on from a checkpoint"
        assert_counted(hpcflow, cluster, [run])
        story = hpcflow.json("history", run.run_id)
        assert [each["how"] for each in story["attempts"]] == ["sbatch", "standby"]
        assert story["entries"] == [], "nobody has decided anything"


def test_the_standby_of_a_run_that_completes_executes_nothing(hpcflow: Hpcflow) -> None:
    run = start(hpcflow, "--set", "retry.standby=true")
    run.wait_training()
    with killed_once_a_standby_waits(hpcflow, run):
        run.tell("finish")
        poll(
            lambda: any(each.startswith("FAILED") for each in in_queue(hpcflow, run).values()),
            120,
            lambda: f"the standby did not leave: {in_queue(hpcflow, run)}",
        )
        assert "the run has completed" in run.run_dir.attempt(2).log.read_text()
        assert hpcflow("wait", run.run_id).returncode == 0
        (only,) = hpcflow.json("show", run.run_id)["attempts"]
        assert only["cause"] == "completed"
        (execution,) = run.executions
        assert execution.has_ended
        assert "the run has completed" not in hpcflow("logs", run.run_id).stdout
        assert hpcflow("ledger", "check").returncode == 0


def test_hold_takes_the_standby_out_of_the_queue_and_leaves_the_running_job(
    hpcflow: Hpcflow,
) -> None:
    run = start(hpcflow, "--set", "retry.standby=true")
    run.wait_training()
    with killed_once_a_standby_waits(hpcflow, run):
        assert hpcflow.json("show", run.run_id)["next_action"] == "await_standby"
        hpcflow("hold", run.run_id)
        poll(
            lambda: any(each.startswith("CANCELLED") for each in in_queue(hpcflow, run).values()),
            120,
            lambda: f"the standby is still there: {in_queue(hpcflow, run)}",
        )
        shown = hpcflow.json("show", run.run_id)
        assert (shown["state"], shown["next_action"]) == ("running", "held")
        run.tell("finish")
        assert hpcflow("wait", run.run_id).returncode == 0
        assert len(run.executions) == 1
