"""Slurm that is full, down or deaf: the real programs against a real cluster that fails.

What is shared stays as it is: limits are those of a QOS of its own, and a dead controller is a
configuration that points to a port where nobody listens.
"""

from __future__ import annotations

import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from hpcflow.clock import SystemClock
from hpcflow.errors import SchedulerUnavailable, SubmissionDelayed, SubmissionRefused
from hpcflow.schedulers.base import Scheduler, SubmitRequest
from hpcflow.schedulers.slurm.commands import SlurmCommands
from hpcflow.testing.cluster import Cluster, User
from tests.schedulers.as_user import AsUser

pytestmark = pytest.mark.cluster

QOS = "hpcf-limits"


@pytest.fixture
def scheduler(researcher: User) -> Scheduler:
    return AsUser(SlurmCommands(clock=SystemClock()), researcher)


def _request(folder: Path, lines: str = "") -> SubmitRequest:
    script = folder / "job.sbatch"
    script.write_text(f"#!/bin/bash\n#SBATCH --job-name=fault\n{lines}\nexit 0\n")
    return SubmitRequest(script, folder, "fault")


@pytest.fixture(scope="module")
def qos(cluster: Cluster, researcher: User) -> Iterator[Cluster]:
    """A QOS that our user may have; its limits are set by each test."""
    cluster.run("sacctmgr", "-i", "add", "qos", QOS, "flags=DenyOnLimit", check=False)
    cluster.run("sacctmgr", "-i", "modify", "user", researcher.name, "set", f"qos+={QOS}")
    yield cluster
    cluster.run("sacctmgr", "-i", "modify", "user", researcher.name, "set", f"qos-={QOS}")
    cluster.run("sacctmgr", "-i", "delete", "qos", QOS)


@pytest.mark.parametrize(
    ("limit", "lines", "error", "key"),
    [
        ("MaxSubmitJobsPerUser=0", "", SubmissionDelayed, None),
        ("GrpSubmitJobs=0", "", SubmissionDelayed, None),
        ("MaxWall=1", "#SBATCH --time=9", SubmissionRefused, "resources.time_limit"),
        ("MaxTRESPerJob=node=1", "#SBATCH --nodes=2", SubmissionRefused, "resources.nodes"),
        ("MaxTRESPerJob=cpu=1", "#SBATCH -c 2", SubmissionRefused, "resources.cpus_per_task"),
        (
            "MaxTRESPerJob=gres/gpu=1",
            "#SBATCH --gres=gpu:a100:2",
            SubmissionRefused,
            "resources.gpus_per_node",
        ),
    ],
)
def test_a_full_limit_passes_and_a_broken_one_does_not(
    qos: Cluster,
    scheduler: Scheduler,
    directory: Path,
    limit: str,
    lines: str,
    error: type[Exception],
    key: str | None,
) -> None:
    name = limit.rpartition("=")[0]
    qos.run("sacctmgr", "-i", "modify", "qos", QOS, "set", limit)
    try:
        with pytest.raises(error) as raised:
            scheduler.submit(_request(directory, f"#SBATCH --qos={QOS}\n{lines}"))
    finally:
        qos.run("sacctmgr", "-i", "modify", "qos", QOS, "set", f"{name}=-1")
    where = getattr(raised.value, "where", None)
    assert (where.key if where else None) == key


@pytest.fixture
def deaf(cluster: Cluster, researcher: User, directory: Path) -> AsUser:
    """The same cluster with all its ports wrong."""
    folder = directory / "etc"
    shutil.copytree(cluster.directory / "etc", folder, ignore=shutil.ignore_patterns("*dbd*"))
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
    conf = folder / "slurm.conf"
    text = re.sub(r"(SlurmctldPort|AccountingStoragePort)=\d+", rf"\1={port}", conf.read_text())
    # Clients try for as long as this.
    conf.write_text(re.sub(r"MessageTimeout=\d+", "MessageTimeout=1", text))
    commands = SlurmCommands(clock=SystemClock())
    return AsUser(commands, researcher, {"SLURM_CONF": str(conf)})


def test_a_dead_controller_takes_no_job_and_answers_nothing(deaf: AsUser, directory: Path) -> None:
    now = datetime.now(timezone.utc)
    with pytest.raises(SchedulerUnavailable, match="connect failure"):
        deaf.submit(_request(directory))
    with pytest.raises(SchedulerUnavailable):
        deaf.queue()
    with pytest.raises(SchedulerUnavailable):
        deaf.find("fault", now - timedelta(hours=1))
    with pytest.raises(SchedulerUnavailable):
        deaf.accounting(["1"], now)
    with pytest.raises(SchedulerUnavailable):
        deaf.cancel(["1"])
    assert deaf.accounts("hpcf-ada") is None
    with pytest.raises(SchedulerUnavailable):
        deaf.waiting(["1"])
    with pytest.raises(SchedulerUnavailable):
        deaf.reservations()
    with pytest.raises(SchedulerUnavailable, match="connect failure"):
        deaf.predicted_start(_request(directory))
    assert deaf.standing("hpcf-ada") is None


def test_without_the_database_the_controller_tells_what_it_knows(
    cluster: Cluster, scheduler: Scheduler
) -> None:
    whole = scheduler.standing("hpcf-ada")
    with cluster.without("slurmdbd"):
        left = scheduler.standing("hpcf-ada")
    assert whole is not None
    assert left is not None
    assert whole.missing == ()
    assert [each.partition(":")[0] for each in left.missing] == ["associations", "qos"]
    assert [each.account for each in left.associations] == ["physics"]
    assert [each.account for each in left.shares] == [each.account for each in whole.shares]
