"""MaxQueryTimeRange in slurmdbd.conf, as large sites have it: old jobs are still looked for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hpcflow.testing.cluster import Cluster, Software, User

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

_ASK = """
import logging
from datetime import datetime, timedelta, timezone
from hpcflow.clock import SystemClock
from hpcflow.schedulers.slurm.commands import SlurmCommands
slurm, now = SlurmCommands(clock=SystemClock()), datetime.now(timezone.utc)
for days in (0.1, 10):
    since = now - timedelta(days=days)
    print(slurm.find("x-20260101-abcdefgh:1", since))
    print(slurm.accounting([], since, job_names=["x-20260101-abcdefgh:1", "other"]))
    print(slurm.accounting([], since, is_named="x-20260101-abcdefgh:1".__eq__))
    print(slurm.accounting(["1000000", "1000001"], since))
"""


@pytest.fixture
def narrow(cluster: Cluster) -> Iterator[None]:
    conf = cluster.directory / "etc/slurmdbd.conf"
    before = conf.read_text()
    conf.write_text(f"{before}MaxQueryTimeRange=1-00:00:00\n")
    cluster.slurmdbd.restart()
    yield
    conf.write_text(before)
    cluster.slurmdbd.restart()


@pytest.mark.usefixtures("narrow")
def test_accounting_is_asked_in_parts(ada: User, software: Software) -> None:
    refused = ada.run(["sacct", "--name=x", "--starttime=now-10days"], check=False)
    assert "Too wide of a date range" in refused.stderr
    done = ada.run([str(software.python), "-c", _ASK], check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["Lookup(jobs=(), is_certain=True)", "[]", "[]", "[]"] * 2
