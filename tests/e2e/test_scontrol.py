"""What admins do to jobs behind the daemon's back: hold, requeue, requeuehold, suspend; scancel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hpcflow.model.journal import Observed
from hpcflow.testing.cluster import Cluster, User, poll
from tests.e2e.conftest import Hpcflow
from tests.e2e.counted import Counted, assert_counted, complete, start, watch

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

ON_N1 = ("--set", "resources.exclude=n[2-4]")
NOT_ON_N1 = ("--set", "resources.exclude=n1")


@contextmanager
def n1_taken(user: User) -> Iterator[None]:
    """For the length of the block, whoever wants the node n1 waits."""
    wanted = ["--partition=gpu", "--nodelist=n1", "--exclusive", "--output=/dev/null"]
    job_id = user.run(["sbatch", "--parsable", *wanted, "--wrap=sleep 600"]).stdout.strip()
    try:
        show = ["squeue", "--noheader", "--format=%T", "--jobs", job_id]
        poll(lambda: "RUNNING" in user.run(show).stdout, 300, "n1 was not taken")
        yield
    finally:
        user.run(["scancel", job_id])


def observed(run: Counted) -> list[str]:
    """What has been seen of its jobs, oldest first: states, and reasons of waiting."""
    seen = [each for each in run.records if isinstance(each, Observed)]
    return [f"{each.state.value} {each.reason}" for each in seen]


def wait_observed(run: Counted, text: str) -> None:
    poll(lambda: any(text in each for each in observed(run)), 300, lambda: f"{observed(run)}")


def test_what_an_admin_does_to_a_job_neither_loses_nor_doubles_the_run(
    hpcflow: Hpcflow, cluster: Cluster, grace: User
) -> None:
    def scontrol(*words: str) -> None:
        cluster.run("scontrol", *words)

    def wait_restarted(run: Counted) -> None:
        """Two minutes earlier than Slurm restarts a job; a daemon may have seen to that before."""

        def is_restarted() -> bool:
            job = f"jobid={run.job_id}"
            cluster.run("scontrol", "update", job, "starttime=now", check=False)
            return len(run.executions) > 1

        poll(is_restarted, 300, lambda: f"{run.run_id}: {observed(run)}", every_s=0.5)

    with watch(hpcflow) as daemon:
        with n1_taken(grace):
            held = start(hpcflow, *ON_N1)
            scontrol("hold", held.job_id)
            wait_observed(held, "JobHeldAdmin")
        restarted, kept_back, suspended, stopped = (start(hpcflow, *NOT_ON_N1) for _ in range(4))
        for run in (restarted, kept_back, suspended, stopped):
            run.wait_training()
        hpcflow.user.run(["scancel", stopped.job_id])
        scontrol("suspend", suspended.job_id)
        for run, how in ((restarted, "requeue"), (kept_back, "requeuehold")):
            scontrol("update", f"jobid={run.job_id}", "requeue=1")
            scontrol(how, run.job_id)
        stopped.wait_ended()
        wait_observed(suspended, "suspended")
        wait_observed(restarted, "queued")
        wait_observed(kept_back, "queued job requeued in held state")
        wait_restarted(restarted)
        assert len(kept_back.executions) == 1
        assert held.executions == []
        reached = suspended.executions[0].reached
        scontrol("release", held.job_id)
        scontrol("release", kept_back.job_id)
        scontrol("resume", suspended.job_id)
        wait_restarted(kept_back)
        held.wait_training()
        complete([held, restarted, kept_back, suspended])
        assert f"{stopped.run_id}  resubmit" not in daemon.said
    assert_counted(hpcflow, cluster, [held, restarted, kept_back, suspended, stopped])
    assert held.causes == suspended.causes == ["completed"]
    assert (len(held.executions), len(suspended.executions)) == (1, 1)
    assert suspended.executions[0].reached > reached
    assert (stopped.causes, len(stopped.job_ids)) == (["cancelled"], 1)
    for run in (restarted, kept_back):
        assert len(run.executions) == 2
        assert run.executions[1].began_at > 0, "it did not resume"
