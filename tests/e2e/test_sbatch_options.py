"""What hpcflow has no key for: options of sbatch, lines of bash, commands around the program."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hpcflow.testing.cluster import Cluster
from tests.e2e.conftest import Hpcflow

pytestmark = pytest.mark.cluster

CONFIG = """
name: ways
command: sh -c 'test -e unpacked && echo "program $OF_SETUP on $SLURM_NNODES" >> said'
launch: {{framework: none, launcher: none}}
environment:
  setup: ["export OF_SETUP=$(echo 'two words')"]
before: ["touch unpacked", "sh -c 'echo before $SLURM_JOB_RESERVATION >> said'"]
after: [[sh, -c, "echo after {{{{ run.name }}}} >> said"]]
resources:
  cpus_per_task: 1
  mem: 200M
  time_limit: 2m
  nice: 50
  dependency: "{dependency}"
  begin: now
  sbatch: {{reservation: course, comment: of-the-config}}
"""


@pytest.fixture
def reservation(cluster: Cluster) -> Iterator[None]:
    """One core of any node, for ada."""
    create = ["create", "reservation", "ReservationName=course", "StartTime=now", "Duration=10"]
    cluster.run("scontrol", *create, "Users=hpcf-ada", "NodeCnt=1", "Flags=IGNORE_JOBS")
    yield
    cluster.run("scontrol", "delete", "ReservationName=course")


@pytest.mark.usefixtures("reservation")
def test_a_run_in_a_reservation_after_another_job_with_commands_of_its_own(
    hpcflow: Hpcflow, cluster: Cluster
) -> None:
    user = hpcflow.user
    wait = ["sbatch", "--parsable", "--mem=100M", "--time=2", "--wrap=sleep 1"]
    other = user.run(wait, cwd=hpcflow.home.parent, env=hpcflow.env).stdout.strip()
    config = hpcflow.write_config("ways.yaml", CONFIG.format(dependency=f"afterok:{other}"))
    hpcflow("run", config, "--wait", "--site", "devcluster")
    shown = hpcflow.json("show", "ways")
    assert shown["state"] == "completed"
    (attempt,) = shown["attempts"]
    job = cluster.run("scontrol", "show", "job", attempt["job_id"])
    for said in ("Nice=50", "Reservation=course", "Comment=of-the-config"):
        assert said in job
    assert (config.parent / "said").read_text().splitlines() == [
        "before course",
        "program two words on 1",
        "after ways",
    ]
