"""Daemons that are killed, are several, or are without their ledger; a job that nobody knows.

All on real Slurm, with real daemons; where one would only wait, they have the patience of seconds,
not minutes (hurried.py). Not here: death at hundreds of moments needs hundreds of jobs in
a minute (tests/requeue/test_daemon_killed.py), and a clock that jumps would take with it that of
everything on the machine (tests/requeue/test_faults_clock.py).
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from hpcflow.testing.cluster import Cluster, Postgres, User, poll
from tests.e2e.conftest import Hpcflow
from tests.e2e.counted import (
    Daemon,
    assert_counted,
    complete,
    start,
    start_daemon,
    take_all_nodes,
    watch,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

LEASE_S = 5.0
KILLS = 24
LEAST_PREEMPTIONS = 2


@contextmanager
def several(hpcflow: Hpcflow, count: int) -> Iterator[dict[int, Daemon]]:
    """So many daemons, by their pid, for the length of the block; one acts, the others wait."""
    with ExitStack() as stack:
        daemons: dict[int, Daemon] = {}
        for number in range(count):
            log = hpcflow.home.parent / f"daemon-{number}.log"
            daemon = stack.enter_context(start_daemon(hpcflow, log, patience_s=LEASE_S))
            daemons[daemon.process.pid] = daemon
        poll(
            lambda: sum("waiting" in each.said for each in daemons.values()) == count - 1,
            120,
            lambda: f"more than one acts, or none: {[each.said for each in daemons.values()]}",
        )
        yield daemons


def acting(hpcflow: Hpcflow) -> int:
    """The process that has the lease."""
    return int(hpcflow.json("daemon", "status", check=False)["lease"]["pid"])


@pytest.mark.parametrize("count", [3, pytest.param(5, marks=pytest.mark.soak)])
def test_of_several_daemons_one_acts_and_when_it_is_killed_another_one_does(
    hpcflow: Hpcflow, cluster: Cluster, grace: User, count: int
) -> None:
    runs = [start(hpcflow), start(hpcflow)]
    with several(hpcflow, count) as daemons:
        for run in runs:
            run.wait_training()
        first = acting(hpcflow)
        take_all_nodes(grace)
        for run in runs:
            run.wait_training(2)
        assert {pid for pid, each in daemons.items() if "go_on" in each.said} == {first}

        take_all_nodes(grace)
        os.kill(first, signal.SIGKILL)
        assert daemons.pop(first).process.wait(120) == -signal.SIGKILL
        for run in runs:
            run.wait_training(3)
        second = acting(hpcflow)
        assert {pid for pid, each in daemons.items() if "go_on" in each.said} == {second}
        complete(runs)
    assert_counted(hpcflow, cluster, runs)
    for run in runs:
        assert run.causes == ["preempted", "preempted", "completed"]


# Of one that is killed, `make test` has the test before; on a cluster in memory, many more.
@pytest.mark.soak
def test_killed_at_random_moments_while_runs_are_preempted_none_is_lost_or_doubled(
    hpcflow: Hpcflow, cluster: Cluster, grace: User
) -> None:
    seed = int(os.environ.get("HPCFLOW_KILL_SEED") or random.randrange(10**6))
    print(f"HPCFLOW_KILL_SEED={seed}")
    dice = random.Random(seed)
    runs = [start(hpcflow) for _ in range(4)]
    for run in runs:
        run.wait_training()
    log = hpcflow.home.parent / "killed.log"
    preemptions = kills = 0
    while kills < KILLS or preemptions < LEAST_PREEMPTIONS:
        kills += 1
        if all(len(run.executions) > preemptions and run.is_alive() for run in runs):
            take_all_nodes(grace)
            preemptions += 1
        with start_daemon(hpcflow, log, patience_s=0.5) as daemon:
            with suppress(subprocess.TimeoutExpired):
                daemon.process.wait(dice.uniform(0.3, 2))
            daemon.process.kill()
            assert daemon.process.wait(120) == -signal.SIGKILL, daemon.said
    with start_daemon(hpcflow, log, patience_s=0.5):
        for run in runs:
            run.wait_training(preemptions + 1)  # told to finish before, it might not be preempted
        complete(runs)
    assert_counted(hpcflow, cluster, runs)
    for run in runs:
        assert run.causes == ["preempted"] * preemptions + ["completed"]


def test_postgres_is_killed_and_back_while_a_run_is_preempted(
    hpcflow: Hpcflow, cluster: Cluster, grace: User, own_postgres: Postgres
) -> None:
    hpcflow.env["HPCFLOW_LEDGER"] = own_postgres.create_database("killed")
    with watch(hpcflow) as daemon:
        run = start(hpcflow)
        run.wait_training()
        own_postgres.daemon.kill()
        take_all_nodes(grace)
        daemon.wait_says("trying again")
        poll(lambda: not run.is_alive(), 300, "it was not preempted")
        own_postgres.start()
        run.wait_training(2)
        complete([run])
    said = [line for line in daemon.said.splitlines() if "trying again" in line]
    assert len(set(said)) == len(said), "the same is said again and again"
    assert_counted(hpcflow, cluster, [run])
    assert run.causes == ["preempted", "completed"]


def test_sqlite_that_another_process_holds_for_longer_than_one_waits(
    hpcflow: Hpcflow, cluster: Cluster, grace: User
) -> None:
    with watch(hpcflow) as daemon:
        run = start(hpcflow)
        run.wait_training()
        code = (
            "import sqlite3; raw = sqlite3.connect('ledger.sqlite', isolation_level=None); "
            "raw.execute('BEGIN IMMEDIATE'); print('held', flush=True); input()"
        )
        with hpcflow.user.popen(
            ["python3", "-c", code], cwd=hpcflow.home, stdin=subprocess.PIPE
        ) as holder:
            assert holder.stdin is not None
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            take_all_nodes(grace)
            daemon.wait_says("database is locked; trying again")
            assert not run.is_alive()
            assert len(run.job_ids) == 1, "it was sent by a daemon that cannot know whether it may"
            assert holder.poll() is None
            holder.stdin.close()
            holder.wait(120)
        run.wait_training(2)
        complete([run])
    assert daemon.said.count("trying again") == 1
    assert_counted(hpcflow, cluster, [run])
    assert run.causes == ["preempted", "completed"]


@pytest.mark.soak
def test_a_job_that_neither_the_queue_nor_accounting_knows_any_more(
    hpcflow: Hpcflow, cluster: Cluster, grace: User
) -> None:
    """The controller's disk is that of before, accounting was away: its id is somebody else's."""
    state, before = cluster.directory / "state", cluster.directory / "state.before"
    log = hpcflow.home.parent / "daemon.log"
    with cluster.without("slurmctld"):
        pass  # without accounting it starts from what it knew of the users, written when it ends
    with start_daemon(hpcflow, log, patience_s=6) as daemon:
        with cluster.without("slurmdbd"):
            shutil.rmtree(before, ignore_errors=True)
            shutil.copytree(state, before)
            run = start(hpcflow)
            run.wait_training()
            with cluster.without("slurmctld", kill=True):
                shutil.rmtree(state)
                before.rename(state)
            poll(lambda: not run.is_alive(), 300, "Slurm lets a job live that it does not know")
            held = ["sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap=true"]
            other = grace.run(held).stdout.strip()
        assert other == run.job_id
        run.wait_training(2)
        complete([run])
        assert cluster.run("squeue", "--noheader", f"--jobs={other}", "--format=%T").strip()
    grace.run(["scancel", other])
    assert_counted(hpcflow, cluster, [run], forgotten=run.job_ids[:1])
    assert run.causes == ["vanished", "completed"]
    assert daemon.process.returncode == 0
