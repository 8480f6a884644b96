"""Runs whose directories a purge deleted before the ledger read them: the home has their records.

Slurm has forgotten their jobs meanwhile. Each is seen in ``ls``, and ``why`` explains it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from hpcflow.settings import load_settings
from hpcflow.storage.layout import RunDir
from hpcflow.storage.runs import run_dir_of
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
    """What had become of its job when Slurm forgot it."""
    (job,) = [each for each in there.slurm.queue() if run_dir.path.name in each.job_name]
    if when != "queued":
        there.slurm.start(job.job_id)
    if when == "completed":
        there.slurm.end(job.job_id, "COMPLETED", exit_code=0)
    if when == "failed":
        there.slurm.end(job.job_id, "FAILED", exit_code=1)
    there.slurm._jobs.pop(job.job_id)


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
def test_it_is_seen_and_explained(there: ClusterDesk, when: str, what: str) -> None:
    other, run_dir = send(there, "other"), send(there)
    moment(there, run_dir, when)
    purge(run_dir, what)
    run = seen(there, run_dir)
    assert (run["name"], run["project"]) == ("digits", "tests")
    assert (run["user"], run["site"], run["nodes"]) == (load_settings().user, "devcluster", 1)
    assert run["state"] in ("waiting", "queued", "failed", "completed")
    if what != "the attempts":
        assert (run["state"], run["cause"]) == ("waiting", "vanished")
        assert "its run directory is gone" in there.say("why", run_dir.path.name)
        assert f"hpcflow restore {run_dir.path.name}" in there.say("why", run_dir.path.name)
    there.say("why", run_dir.path.name)
    there.say("show", run_dir.path.name)
    there.say("history", run_dir.path.name)
    jobs = [job.job_name for job in there.slurm._records()]
    for _ in range(2):
        there.say("daemon", "--once")
    assert [job.job_name for job in there.slurm._records()] == jobs, "nothing is sent for it"
    assert seen(there, run_dir)["run_id"] == run_dir.path.name
    if what != "the project too":
        assert seen(there, other)["state"] == "queued"


def test_what_comes_back_says_what_really_was(there: ClusterDesk, tmp_path: Path) -> None:
    run_dir = send(there)
    kept = tmp_path / "kept"
    shutil.copytree(run_dir.path, kept)
    purge(run_dir, "all of it")
    assert seen(there, run_dir)["state"] == "waiting"
    shutil.copytree(kept, run_dir.path, dirs_exist_ok=True)
    assert seen(there, run_dir)["state"] == "queued"
    assert there.json("ledger", "check")["differences"] == []


def test_it_can_be_cancelled_while_its_job_waits(there: ClusterDesk) -> None:
    run_dir = send(there)
    shutil.rmtree(run_dir.path)
    there.say("ls")
    assert "is being cancelled" in there.say("cancel", run_dir.path.name)
    assert there.slurm.queue() == [] or there.slurm.queue()[0].state.value == "ended"
