"""Slurm holds a job that failed and may be requeued: the run goes on, and the job does not stay."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcflow.model.ids import sluid_number
from hpcflow.model.journal import Accounted
from hpcflow.storage import journal
from hpcflow.storage.layout import Home, RunDir
from hpcflow.testing.cluster import Cluster, poll
from tests.e2e.conftest import Hpcflow
from tests.e2e.counted import watch

pytestmark = [pytest.mark.cluster, pytest.mark.every_slurm, pytest.mark.timeout(600)]

CONFIG = """
name: saved
command: [sh, -c, 'test "$HPCFLOW_ATTEMPT" -gt 1 || exit 75']
launch: {framework: none, launcher: srun}
resources: {cpus_per_task: 1, mem: 200M, time_limit: 5m}
retry: {backoff: 1s}
"""


@pytest.fixture
def requeue(cluster: Cluster) -> Iterator[str]:
    """An option of sbatch, with which Slurm holds a job that exits with 75."""
    can_expedite = "--requeue[=expedite]" in cluster.run("sbatch", "--help")
    setting = (
        "SlurmctldParameters=enable_expedited_requeue" if can_expedite else "RequeueExitHold=75"
    )
    with cluster.configured(setting):
        yield "--requeue=expedite" if can_expedite else "--requeue"


def test_a_run_goes_on_without_the_job_that_slurm_holds_for_its_exit_code(
    hpcflow: Hpcflow, cluster: Cluster, requeue: str
) -> None:
    config = hpcflow.write_config("saved.yaml", CONFIG)
    wrapper = hpcflow.software.sbatch / "train.sbatch"
    command = ["sbatch", "--parsable", requeue, "--time=5", str(wrapper), str(config)]
    command += ["--site", "devcluster"]
    job_id = hpcflow.user.run(command, cwd=hpcflow.home.parent, env=hpcflow.env).stdout.strip()

    def is_billed() -> bool:
        """Both attempts, by accounting."""
        runs = [Home(hpcflow.home).run_dir(each) for each in hpcflow.home.glob("runs/saved-*")]
        bills = [each for run in runs for each in journal.read(run) if isinstance(each, Accounted)]
        return {each.attempt for each in bills if each.source == "accounting"} == {1, 2}

    with watch(hpcflow):
        poll(is_billed, 300, lambda: cluster.run("squeue", "--states=all"))
    shown = hpcflow.json("show", "saved")
    assert shown["state"] == "completed"
    first, second = shown["attempts"]
    assert (first["job_id"], first["cause"], first["exit_code"]) == (job_id, "checkpointed", 75)
    assert first["raw_state"] in ("REQUEUE_HOLD", "SPECIAL_EXIT")
    assert second["job_id"] != job_id
    state = cluster.run("squeue", "--noheader", "--states=all", f"--jobs={job_id}", "--format=%T")
    assert state.strip() == "CANCELLED"
    # Both came with Slurm 25.11: this option, and that a job knows its SLUID.
    started = json.loads(
        RunDir(Path(shown["run_dir"])).attempt(1).events.read_text().split("\n")[0]
    )
    assert ("sluid" in started) is (requeue == "--requeue=expedite")
    numbers = cluster.run("sacct", "-DXnP", "--format=DBIndex", "--jobs", job_id).split()
    assert len(set(numbers)) == 2
    assert "sluid" not in started or numbers[0] == str(sluid_number(started["sluid"]))
    assert hpcflow("ledger", "check").returncode == 0
