"""An array is shown as the attempts that its tasks are, in whatever rows Slurm tells of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from hpcflow.costs.audit import is_of_hpcflow
from hpcflow.launch.connecting import ArrayFiles
from hpcflow.model.ids import array_name
from hpcflow.model.state import AttemptState
from hpcflow.schedulers.arrays import show_tasks
from hpcflow.schedulers.base import JobInfo, Lookup, Scheduler, SubmitRequest
from hpcflow.storage.layout import Home
from hpcflow.storage.sweeps import SweepDir, next_array, write_array
from hpcflow.testing.clock import FakeClock
from hpcflow.testing.fake_scheduler import FakeScheduler

NOW = datetime(2026, 3, 1, tzinfo=timezone.utc)
ARRAY = array_name("search-20260301-abcdefgh", 1)
NAMES = [f"search-t{task}-20260301-abcdefgh:1" for task in range(4)]
ROW = JobInfo("1001_[1-3%2]", ARRAY, "PENDING", AttemptState.QUEUED, submitted_at=NOW)


class Told(FakeScheduler):
    """A cluster that says just these rows."""

    def __init__(self, *rows: JobInfo) -> None:
        super().__init__(FakeClock(NOW))
        self.rows = list(rows)

    def queue(self, job_ids: object = ()) -> list[JobInfo]:  # noqa: ARG002
        return self.rows

    def find(self, job_name: str, since: datetime) -> Lookup:  # noqa: ARG002
        return Lookup(tuple(row for row in self.rows if row.job_name == job_name))

    def accounting(
        self,
        job_ids: object,  # noqa: ARG002
        since: datetime,  # noqa: ARG002
        *,
        job_names: object = (),
        is_named: Callable[[str], bool] | None = None,
    ) -> list[JobInfo]:
        assert isinstance(job_names, list)
        return [
            row
            for row in self.rows
            if row.job_name in job_names or (is_named is not None and is_named(row.job_name))
        ]


@pytest.fixture
def told() -> Told:
    running = replace(ROW, job_id="1001_0", raw_state="RUNNING", state=AttemptState.RUNNING)
    return Told(running, ROW, replace(ROW, job_id="7", job_name="mine"))


def shown(told: Told) -> Scheduler:
    return show_tasks(told, lambda: {ARRAY: NAMES})


def test_what_waits_in_one_row_is_a_job_for_each_task(told: Told) -> None:
    jobs = {job.job_id: (job.job_name, job.raw_state) for job in shown(told).queue()}
    assert jobs == {
        "1001_0": (NAMES[0], "RUNNING"),
        "1001_1": (NAMES[1], "PENDING"),
        "1001_2": (NAMES[2], "PENDING"),
        "1001_3": (NAMES[3], "PENDING"),
        "7": ("mine", "PENDING"),
    }


def test_one_task_can_be_asked_for(told: Told) -> None:
    assert [job.job_id for job in shown(told).queue(["1001_2"])] == ["1001_2"]
    assert [job.job_id for job in shown(told).queue(["7"])] == ["7"]


def test_an_attempt_is_found_by_its_own_name(told: Told) -> None:
    (job,) = shown(told).find(NAMES[2], NOW).jobs
    assert job.job_id == "1001_2"
    assert shown(told).find("other-20260301-abcdefgh:1", NOW).jobs == ()


def test_an_attempt_that_was_in_two_arrays_is_found_in_either(told: Told) -> None:
    """Slurm did not take the first one, and so it was sent with the next."""
    older, newer = array_name("search-20260301-abcdefgh", 2), array_name("s", 10)
    told.rows = [replace(ROW, job_id="2002_[0-1]", job_name=newer)]
    both = show_tasks(told, lambda: {older: NAMES, newer: NAMES[2:]})
    assert [job.job_id for job in both.find(NAMES[2], NOW).jobs] == ["2002_0"]
    assert [job.job_id for job in both.accounting([], NOW, job_names=[NAMES[3]])] == ["2002_1"]
    told.rows = [replace(ROW, job_id="1001_[0-3]", job_name=older)]
    assert [job.job_id for job in both.find(NAMES[2], NOW).jobs] == ["1001_2"]
    assert [job.job_id for job in both.accounting([], NOW, job_names=[NAMES[3]])] == ["1001_3"]


def test_accounting_tells_of_the_tasks_that_were_asked_for(told: Told) -> None:
    found = shown(told).accounting(["1001_3"], NOW, job_names=[NAMES[0]])
    assert [job.job_id for job in found] == ["1001_0", "1001_3"]
    assert shown(told).accounting([], NOW, job_names=["mine"])[0].job_id == "7"


def test_all_tasks_of_an_array_are_found_by_the_form_of_their_names(told: Told) -> None:
    found = shown(told).accounting(["1001_3"], NOW, is_named=is_of_hpcflow)
    assert [job.job_name for job in found] == NAMES


def test_the_files_of_a_home_say_which_arrays_there_are(tmp_path: Path) -> None:
    home = Home(tmp_path)
    sweep_dir = SweepDir(home.sweeps / "search-20260301-abcdefgh")
    sweep_dir.path.mkdir(parents=True)
    files = ArrayFiles(home)
    assert files() == {}
    assert next_array(sweep_dir) == 1
    write_array(sweep_dir, 1, ARRAY, NAMES)
    assert files() == {ARRAY: NAMES}
    assert next_array(sweep_dir) == 2
    (sweep_dir.arrays / "0002.json").write_text("{")
    assert files() == {ARRAY: NAMES}, "what is damaged hides no other"


def test_the_fake_cluster_knows_arrays(tmp_path: Path) -> None:
    slurm = FakeScheduler(FakeClock(NOW), max_jobs=4)
    script = tmp_path / "job.sbatch"
    script.write_text("#!/bin/bash\n#SBATCH --array=0-3\n")
    slurm.submit(SubmitRequest(script, tmp_path, ARRAY))
    assert [job.job_id for job in slurm.queue()] == [f"1001_{task}" for task in range(4)]
