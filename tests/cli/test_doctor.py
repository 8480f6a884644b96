"""`hpcflow doctor`: what is wrong on this machine now, and what to type."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hpcflow.cli.clusters import doctor_checks
from hpcflow.clock import SystemClock
from hpcflow.errors import SchedulerUnavailable, SubmissionRefused
from hpcflow.schedulers.base import SubmitRequest
from hpcflow.schedulers.slurm.units import format_time
from hpcflow.schedulers.waiting import PredictedStart
from tests.cli.cluster import ClusterDesk
from tests.cli.desk import Desk
from tests.cli.test_daemon_install import CRONTAB, FORBIDDEN, NO_BUS, Machine
from tests.daemons import daemon

PROGRAMS = ("sbatch", "squeue", "scancel", "sinfo", "sacct", "sacctmgr", "scrontab")


class Cluster(ClusterDesk):
    """A login node with Slurm's programs, of which scontrol alone says anything."""

    machine: Machine

    def clock_is_off(self, by: timedelta) -> None:
        told = format_time(SystemClock().now() + by)
        self.machine.has("scontrol", f"#!/bin/sh\necho 'Configuration data as of {told}'\n")

    def found(self, *args: str, code: int) -> dict[str, list[dict[str, Any]]]:
        """Check -> what was found; every problem says what to type."""
        found: dict[str, list[dict[str, Any]]] = {}
        for each in self.json("doctor", *args, code=code)["checks"]:
            found.setdefault(each["check"], []).append(each)
            assert each["message"]
            assert (each["next_action"] is None) == (each["level"] == "ok"), each
        return found


@pytest.fixture
def cluster(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster.at(desk, monkeypatch)
    assert isinstance(cluster, Cluster)
    cluster.slurm.partitions = ("gpu", "spot", "short")
    cluster.machine = Machine(desk.folder / "bin")
    for name in PROGRAMS:
        cluster.machine.has(name, FORBIDDEN)
    cluster.machine.has("crontab", CRONTAB)
    cluster.machine.has("systemctl", NO_BUS)
    cluster.clock_is_off(timedelta())
    monkeypatch.setenv("PATH", f"{cluster.machine.folder}:/usr/bin:/bin")
    return cluster


def test_where_all_is_well_nothing_is_to_be_done(cluster: Cluster) -> None:
    daemon()
    found = cluster.found(code=0)
    wrong = [each for all_of_one in found.values() for each in all_of_one if each["next_action"]]
    assert [each["check"] for each in wrong if each["level"] == "error"] == []
    assert found["site"][0]["message"].startswith("devcluster, ")
    assert found["daemon"][0]["message"] == "process 7 on login1 supervises your runs"
    assert "accepted, partition " in found["job"][0]["message"]
    assert found["clock"][0]["message"] == "agrees with the controller"
    assert "--cron" in found["daemon install"][0]["message"]
    assert found["scratch"][0]["message"].endswith(" left")
    assert found["ledger"][0]["level"] == "ok"
    assert cluster.slurm.queue() == [], "nothing is sent"
    table = cluster.say("doctor")
    assert table.split()[:4] == ["CHECK", "LEVEL", "FOUND", "NEXT"]


def no_daemon(_: Cluster, __: pytest.MonkeyPatch) -> None:
    """devcluster has a preemptible partition."""


def clock_is_off(cluster: Cluster, _: pytest.MonkeyPatch) -> None:
    cluster.clock_is_off(timedelta(minutes=10))


def squeue_is_missing(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("squeue", "sinfo"):
        (cluster.machine.folder / name).unlink()
    monkeypatch.setenv("PATH", str(cluster.machine.folder))


def slurm_is_down(cluster: Cluster, _: pytest.MonkeyPatch) -> None:
    cluster.slurm.is_controller_down = True


def sbatch_refuses(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: SubmitRequest) -> PredictedStart | None:
        raise SubmissionRefused("Invalid account or account/partition combination specified")

    monkeypatch.setattr(cluster.slurm, "predicted_start", refuse)


def scratch_is_a_file(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    path = cluster.folder.parent / "file"
    path.touch()
    monkeypatch.setenv("SCRATCH", str(path))


def scratch_is_open_to_others(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    path = cluster.folder.parent / "open"
    path.mkdir()
    path.chmod(0o777)
    monkeypatch.setenv("SCRATCH", str(path))


def ledger_is_damaged(_: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path.cwd() / "ledger.sqlite"
    path.write_text("no database " * 100)
    monkeypatch.setenv("HPCFLOW_LEDGER", f"sqlite:///{path}")


def there_is_no_such_site(_: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCFLOW_SITE", "nowhere")


@pytest.mark.parametrize(
    ("breaks", "check", "said", "then"),
    [
        (no_daemon, "daemon", "no daemon supervises your runs", "hpcflow daemon install"),
        (clock_is_off, "clock", " off the controller", "timedatectl"),
        (squeue_is_missing, "Slurm", "not on PATH: squeue, sinfo", "module load slurm"),
        (slurm_is_down, "Slurm", "Unable to contact slurm controller", ""),
        (sbatch_refuses, "job", "Invalid account or account/partition", ""),
        (scratch_is_a_file, "scratch", "is not a directory that you can write to", "ls -ld "),
        (scratch_is_open_to_others, "scratch", "could change what your jobs run", "chmod "),
        (ledger_is_damaged, "ledger", "ledger.sqlite", ""),
        (there_is_no_such_site, "site", "nowhere", "hpcflow site list"),
    ],
)
def test_each_problem_is_named_with_what_to_type(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    breaks: Callable[[Cluster, pytest.MonkeyPatch], None],
    check: str,
    said: str,
    then: str,
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.chdir(tmp_path)
    if breaks is not no_daemon:
        daemon()
    breaks(cluster, monkeypatch)
    (first, *_) = cluster.found(code=1)[check]
    assert first["level"] == "error"
    assert said in first["message"]
    assert then in first["next_action"]


def test_a_mirror_that_does_not_answer_is_a_warning(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon()
    shown = cluster.json("site", "show")
    text = Path(shown["file"]).read_text() + f"mirror: {{url: {cluster.folder.parent}/away}}\n"
    site = cluster.folder.parent / "mirrored.yaml"
    site.write_text(text)
    monkeypatch.setenv("HPCFLOW_SITE", str(site))
    (mirror,) = cluster.found(code=0)["mirror"]
    assert mirror["level"] == "warning"
    assert "does not exist" in mirror["message"]


def test_a_check_that_hangs_hides_no_other(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon()
    cluster.found(code=0)  # now all is imported
    ends = threading.Event()

    def hang(_: str) -> None:
        ends.wait()
        raise SchedulerUnavailable("late")

    monkeypatch.setattr(cluster.slurm, "standing", hang)
    monkeypatch.setattr(doctor_checks, "TIMEOUT_S", 5.0)
    try:
        found = cluster.found(code=1)
    finally:
        ends.set()
    assert found["account"][0]["message"] == "no answer within 5 s"
    assert found["ledger"][0]["level"] == "ok"


def test_without_slurm_all_may_be_well_too(desk: Desk) -> None:
    found = {each["check"]: each for each in desk.json("doctor")["checks"]}
    assert found["Slurm"]["message"] == "not used: runs are processes on this machine"
    assert found["daemon"]["level"] == "warning", "nothing is preempted here"
