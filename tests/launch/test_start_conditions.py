"""A run waits for other jobs and a time until it has started, however often it is sent."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hpcflow.errors import SubmissionLost
from hpcflow.storage.layout import RunDir
from hpcflow.storage.runs import list_runs
from hpcflow.testing.fake_scheduler import FakeScheduler, Fault
from tests.launch.desk import Desk

_WAITS = ["dependency=afterok:12", "begin=now+2hours"]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    found = Desk(tmp_path)
    found.slurm = FakeScheduler(found.clock, cluster_name="devcluster", starts_at_once=False)
    waits = "account: physics, dependency: 'afterok:12', begin: now+2hours"
    found.config.write_text(found.config.read_text().replace("account: physics", waits))
    return found


def waits(run_dir: RunDir, attempt: int) -> list[str]:
    """What the job of an attempt waits for."""
    script = run_dir.attempt(attempt).script.read_text()
    return re.findall(r"^#SBATCH --((?:dependency|begin)=.*)$", script, re.MULTILINE)


def started(desk: Desk) -> None:
    desk.slurm.start(*desk.alive())
    desk.look()


def cancelled(desk: Desk, run_dir: RunDir) -> None:
    desk.cancel(run_dir)
    desk.look()
    desk.clock.advance(60)
    desk.look()


def test_a_job_that_never_existed_does_not_count(desk: Desk) -> None:
    desk.slurm.faults.append(Fault.LOST_REQUEST)
    with pytest.raises(SubmissionLost):
        desk.launch()
    (run_dir,) = list_runs(desk.settings.home)
    assert waits(run_dir, desk.resume(run_dir).attempt) == _WAITS


def test_a_job_that_was_cancelled_while_it_waited_does_not_count(desk: Desk) -> None:
    run_dir = desk.dir_of(desk.launch())
    for number in (2, 3):
        cancelled(desk, run_dir)
        assert desk.resume(run_dir, overrides=["resources.time_limit=5m"]).attempt == number
        assert waits(run_dir, number) == _WAITS
    started(desk)
    cancelled(desk, run_dir)
    assert waits(run_dir, desk.resume(run_dir).attempt) == []


def test_once_it_has_started_it_waits_no_more(desk: Desk) -> None:
    launched = desk.launch()
    run_dir = desk.dir_of(launched)
    assert waits(run_dir, 1) == _WAITS
    desk.slurm.start(launched.job_id)
    desk.slurm.end(launched.job_id, "PREEMPTED")
    desk.look()
    assert waits(run_dir, desk.resume(run_dir, overrides=["resources.time_limit=5m"]).attempt) == []


def test_a_claim_tells_the_start_of_a_job_that_slurm_has_forgotten(desk: Desk) -> None:
    launched = desk.launch()
    run_dir = desk.dir_of(launched)
    run_dir.attempt(1).claim.write_text(f"{launched.job_id}\n")
    cancelled(desk, run_dir)
    assert waits(run_dir, desk.resume(run_dir).attempt) == []


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("resources.begin=now+1hour", ["begin=now+1hour"]),
        ("resources={begin: now+1hour}", ["begin=now+1hour"]),
        ("resources.begin=now+2hours", ["begin=now+2hours"]),
        ("resources.dependency=singleton", ["dependency=singleton"]),
        ("resources.begin=null", []),
    ],
)
def test_a_run_that_has_started_waits_for_what_resume_sets(
    desk: Desk, override: str, expected: list[str]
) -> None:
    run_dir = desk.dir_of(desk.launch())
    started(desk)
    cancelled(desk, run_dir)
    desk.slurm.faults.append(Fault.LOST_REQUEST)
    with pytest.raises(SubmissionLost):
        desk.resume(run_dir, overrides=[override])
    assert waits(run_dir, 2) == expected
    assert waits(run_dir, desk.resume(run_dir).attempt) == expected, "nor did that one start"
    started(desk)
    cancelled(desk, run_dir)
    assert waits(run_dir, desk.resume(run_dir).attempt) == []
