"""Slurm's own daemons die, one after the other, under a daemon that goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from hpcflow.model.journal import Refused, Submitted
from hpcflow.testing.cluster import Cluster, User, poll
from tests.e2e.conftest import Hpcflow
from tests.e2e.counted import Counted, assert_counted, complete, start, take_all_nodes, watch

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(800)]

_SBATCH = """#!/bin/bash
here=${0%/*}
is_stopped() { [[ -s $here/$1 && $* == *"$(< "$here/$1")"* ]]; }
wait_at() { touch "$here/is-$1"; while [[ -e $here/$1 ]]; do sleep 0.05; done; }
if is_stopped before "$@"; then
  wait_at before
fi
answer=$(REAL_SBATCH "$@")
code=$?
if is_stopped after "$@"; then
  wait_at after
  echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv" >&2
  exit 1
fi
[[ -z $answer ]] || echo "$answer"
exit "$code"
"""


@dataclass(frozen=True)
class SlowSbatch:
    """A folder for PATH whose sbatch can be stopped before it asks, or before it answers."""

    folder: Path

    def stop(self, moment: str, run: Counted) -> None:
        """``before``, or ``after``: then its answer is lost."""
        (self.folder / moment).write_text(run.run_id)

    def wait_stopped(self, moment: str) -> None:
        poll((self.folder / f"is-{moment}").exists, 300, f"no sbatch came to {moment}")

    def let_go(self, moment: str) -> None:
        (self.folder / moment).unlink()


@pytest.fixture
def sbatch(hpcflow: Hpcflow) -> SlowSbatch:
    folder = hpcflow.home.parent / "bin"
    hpcflow.user.run(["mkdir", str(folder)])
    (folder / "sbatch").write_text(
        _SBATCH.replace("REAL_SBATCH", str(hpcflow.user.program("sbatch")))
    )
    (folder / "sbatch").chmod(0o755)
    return SlowSbatch(folder)


@contextmanager
def taken(user: User, node: str) -> Iterator[None]:
    """For the length of the block, whoever is on this node is preempted, or waits for it."""
    wanted = ["--partition=gpu", f"--nodelist={node}", "--exclusive", "--output=/dev/null"]
    job_id = user.run(["sbatch", "--parsable", *wanted, "--wrap=sleep 600"]).stdout.strip()
    try:
        yield
    finally:
        user.run(["scancel", job_id])


@contextmanager
def all_nodes_afterwards(cluster: Cluster) -> Iterator[None]:
    try:
        yield
    finally:
        for name in cluster.slurmd:
            cluster.revive_node(name)


def on(node: str) -> tuple[str, str]:
    others = {"n1", "n2", "n3", "n4"} - {node}
    return ("--set", f"resources.exclude={','.join(sorted(others))}")


@pytest.mark.soak
def test_a_controller_that_dies_while_runs_run_leave_and_are_sent(
    hpcflow: Hpcflow, cluster: Cluster, grace: User, sbatch: SlowSbatch
) -> None:
    path = f"{sbatch.folder}:{hpcflow.user.environment()['PATH']}"
    with watch(hpcflow, PATH=path) as daemon:
        running, leaving = start(hpcflow, *on("n1")), start(hpcflow, *on("n2"))
        unheard, unsent = start(hpcflow, *on("n3")), start(hpcflow, *on("n4"))
        runs = [running, leaving, unheard, unsent]
        for run in runs:
            run.wait_training()

        sbatch.stop("before", unsent)
        unsent.tell("fail")
        sbatch.wait_stopped("before")
        leaving.tell("stick")
        with taken(grace, "n2"):
            poll((leaving.path / "stuck").exists, 300, "it was not preempted")
            cluster.wait_saved()
            with cluster.without("slurmctld", kill=True):
                sbatch.let_go("before")
                daemon.wait_says("Unable to contact slurm controller")
                assert running.is_alive()
            leaving.take_back("stick")
            leaving.wait_ended()

        sbatch.stop("after", unheard)
        with taken(grace, "n3"):
            sbatch.wait_stopped("after")
            cluster.wait_saved()
            with cluster.without("slurmctld", kill=True):
                sbatch.let_go("after")
                daemon.wait_says(f"{unheard.job_name} may or may not exist")
        complete(runs, 120)
    assert_counted(hpcflow, cluster, runs)
    assert running.causes == ["completed"]
    assert leaving.causes == ["preempted", "completed"]
    assert unheard.causes == ["preempted", "completed"]
    assert unsent.causes == ["failed", "completed"]
    (refused,) = (each for each in unsent.records if isinstance(each, Refused))
    assert refused.retryable
    found = [each.how for each in unheard.records if isinstance(each, Submitted)]
    assert found == ["sbatch", "found"]


@pytest.mark.soak
def test_without_accounting_from_beginning_to_end(
    hpcflow: Hpcflow, cluster: Cluster, grace: User
) -> None:
    with cluster.without("slurmdbd"), watch(hpcflow):
        run = start(hpcflow)
        run.wait_training()
        take_all_nodes(grace)
        run.wait_training(2)
        run.tell("fail")
        run.wait_training(3)
        complete([run])
    assert_counted(hpcflow, cluster, [run])
    assert run.causes == ["preempted", "failed", "completed"]


def test_a_node_that_dies_and_one_that_only_loses_its_slurmd(
    hpcflow: Hpcflow, cluster: Cluster
) -> None:
    """On the second one the job's processes live on, and Slurm can neither see nor end them."""
    elsewhere = ("--set", "resources.exclude=n1", "--set", "retry.backoff=5s")
    with all_nodes_afterwards(cluster), watch(hpcflow):
        dead = start(hpcflow, *elsewhere)
        cut_off = start(hpcflow, *elsewhere, "--set", "resources.cpus_per_task=8")
        for run in (dead, cut_off):
            run.wait_training()
        node, other = (run.executions[0].node for run in (dead, cut_off))
        assert node != other
        cluster.slurmd[other].kill()
        cluster.run("scontrol", "update", f"nodename={other}", "state=down", "reason=cut off")
        cut_off.wait_ended()
        cluster.crash_node(node)
        dead.wait_ended()
        cluster.revive_node(node)
        for run in (dead, cut_off):
            run.wait_training(2)
        complete([dead, cut_off])
    assert_counted(hpcflow, cluster, [dead, cut_off])
    for run in (dead, cut_off):
        assert run.causes == ["node_fail", "completed"]
        assert run.executions[1].began_at > 0
