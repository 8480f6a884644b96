"""Runs whose directories a purge deleted: the home has their records, and Slurm their jobs.

Each is seen in ``ls``, and ``why`` explains it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from hpcflow.clock import SystemClock, to_text
from hpcflow.model.journal import Accounted
from hpcflow.settings import load_settings
from hpcflow.storage import journal
from hpcflow.storage.layout import RunDir
from hpcflow.storage.runs import run_dir_of
from hpcflow.testing.cluster.polling import poll
from tests.cli.cluster import ClusterDesk
from tests.cli.desk import Desk


@pytest.fixture
def there(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> ClusterDesk:
    return ClusterDesk.at(desk, monkeypatch)


def send(there: ClusterDesk, name: str = "digits") -> RunDir:
    config = there.config(name, "true")
    account = ("--set", "resources.account=physics")
    sent = there.json("run", config, *account, "--set", "resources.time_limit=8h")
    return run_dir_of(load_settings().home, sent["run_id"])


def moment(there: ClusterDesk, run_dir: RunDir, when: str) -> None:
    """What has become of its job in Slurm."""
    job_id = job_of(there, run_dir)
    if when != "queued":
        there.slurm.start(job_id)
    if when in ("completed", "failed"):
        there.slurm.end(job_id, when.upper(), exit_code=int(when == "failed"))


def job_of(there: ClusterDesk, run_dir: RunDir) -> str:
    (job,) = [each for each in there.slurm.queue() if run_dir.path.name in each.job_name]
    return job.job_id


def purge(run_dir: RunDir, what: str) -> None:
    if what == "all of it":
        shutil.rmtree(run_dir.path)
    elif what == "the project too":
        shutil.rmtree(run_dir.path.parent)
    elif what == "the attempts":
        shutil.rmtree(run_dir.path / "attempts")


def seen(there: ClusterDesk, run_dir: RunDir) -> Any:
    (run,) = [each for each in there.json("ls")["runs"] if each["run_id"] == run_dir.path.name]
    return run


@pytest.mark.parametrize("when", ["queued", "running", "completed", "failed"])
@pytest.mark.parametrize("what", ["all of it", "the project too", "the attempts"])
def test_it_is_as_slurm_says(there: ClusterDesk, when: str, what: str) -> None:
    other, run_dir = send(there, "other"), send(there)
    moment(there, run_dir, when)
    purge(run_dir, what)
    run = seen(there, run_dir)
    assert (run["name"], run["project"]) == ("digits", "tests")
    assert (run["user"], run["site"], run["nodes"]) == (load_settings().user, "devcluster", 1)
    assert run["state"] == when
    for command in ("why", "show", "history"):
        there.say(command, run_dir.path.name)
    jobs = [job.job_name for job in there.slurm._records()]
    for _ in range(2):
        there.say("daemon", "--once")
    assert [job.job_name for job in there.slurm._records()] == jobs, "nothing is sent for it"
    assert seen(there, run_dir)["state"] == ("waiting" if when == "failed" else when)
    assert seen(there, other)["state"] == "queued"


def test_a_preempted_run_is_stopped_and_why_says_what_to_do(there: ClusterDesk) -> None:
    run_dir = send(there)
    run_id = run_dir.path.name
    preempt(there, run_dir)
    purge(run_dir, "all of it")
    assert seen(there, run_dir)["state"] == "waiting"
    undecided = there.say("why", run_id)
    assert "its run directory is gone; hpcflow submits no job until it is restored" in undecided
    assert f"hpcflow restore {run_id}" in undecided
    there.say("daemon", "--once")
    stopped = there.say("why", run_id)
    assert "it was stopped (purged): its run directory is gone, and it has no mirror" in stopped
    assert f"put the directory back, then: hpcflow resume {run_id}" in stopped


def test_what_was_stopped_goes_on_once_its_directory_is_back(
    there: ClusterDesk, tmp_path: Path
) -> None:
    run_dir = send(there)
    preempt(there, run_dir)
    run_dir.path.rename(tmp_path / "kept")
    there.say("daemon", "--once")
    error = there.json("resume", run_dir.path.name, code=1)["error"]
    assert f"the run directory of {run_dir.path.name} is gone" in error["message"]
    (tmp_path / "kept").rename(run_dir.path)
    there.say("resume", run_dir.path.name)
    assert seen(there, run_dir)["state"] == "queued"
    assert there.json("ledger", "check")["differences"] == []


def preempt(there: ClusterDesk, run_dir: RunDir) -> None:
    moment(there, run_dir, "running")
    there.slurm.end(job_of(there, run_dir), "PREEMPTED")


@pytest.mark.parametrize("is_over", [False, True])
def test_a_rebuilt_ledger_says_the_same(there: ClusterDesk, is_over: bool) -> None:
    """Its directory was deleted under its job; then the ledger was lost."""
    run_dir = send(there)
    moment(there, run_dir, "running")
    said = {"at": to_text(SystemClock().now()), "event": "progress", "train_step": 5}
    with run_dir.attempt(1).events.open("a") as file:
        file.write(json.dumps({**said, "metrics": {"loss": 0.5}}) + "\n")
    there.say("ls")
    purge(run_dir, "all of it")
    there.say("ls")
    if is_over:
        there.slurm.end(job_of(there, run_dir), "PREEMPTED")
        poll(lambda: there.say("ls") and has_bill(run_dir), 60, "it has no bill", every_s=1)
        there.say("daemon", "--once")
    before = there.json("ls", "--all")
    (run,) = before["runs"]
    assert run["state"] == ("failed" if is_over else "running")
    assert run["train_step"] == 5
    for path in load_settings().home.path.glob("ledger.sqlite*"):
        path.unlink()
    there.say("ledger", "rebuild")
    assert there.json("ls", "--all") == before


def has_bill(run_dir: RunDir) -> bool:
    return any(isinstance(each, Accounted) for each in journal.read(run_dir))


def test_what_comes_back_is_as_before(there: ClusterDesk, tmp_path: Path) -> None:
    run_dir = send(there)
    before = seen(there, run_dir)
    run_dir.path.rename(tmp_path / "kept")
    assert seen(there, run_dir) == before
    (tmp_path / "kept").rename(run_dir.path)
    assert seen(there, run_dir) == before
    assert there.json("ledger", "check")["differences"] == []


def test_it_can_be_cancelled_while_its_job_waits(there: ClusterDesk) -> None:
    run_dir = send(there)
    shutil.rmtree(run_dir.path)
    there.say("ls")
    assert "is being cancelled" in there.say("cancel", run_dir.path.name)
    assert there.slurm.queue() == [] or there.slurm.queue()[0].state.value == "ended"
    assert seen(there, run_dir)["state"] == "cancelled"
