"""The daemon that is a job: sending, finding and ending it. Slurm's programs are stand-ins here.

On a real cluster: tests/e2e/test_daemon_job.py.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from hpcflow.errors import SchedulerUnavailable, SubmissionInDoubt
from hpcflow.requeue.install.place import Place
from hpcflow.requeue.install.slurm_job import SlurmJob
from hpcflow.settings import load_settings
from hpcflow.testing.clock import FakeClock

IN_DOUBT = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
GONE = "scancel: error: Kill job error on job id 7: Invalid job id specified"


class Slurm:
    """squeue, sbatch and scancel over a folder with a file for each job."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "jobs").mkdir()
        self.program(
            "squeue", 'cd "$(dirname "$0")/jobs"; for j in *; do cat "$j"; done 2>&-; true'
        )
        self.program("sbatch", "echo 10 PENDING > jobs/10; echo 10")
        self.program("scancel", 'cd jobs; rm -f "$@"')

    def program(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(f'#!/bin/sh\ncd "{self.folder}"\necho "{name} $*" >> calls\n{text}\n')
        path.chmod(0o755)

    def has(self, job_id: int, state: str) -> None:
        (self.folder / "jobs" / str(job_id)).write_text(f"{job_id} {state}\n")

    @property
    def jobs(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "jobs").iterdir())


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return Slurm(tmp_path)


@pytest.fixture
def way(tmp_path: Path) -> SlurmJob:
    settings = load_settings({"HOME": str(tmp_path), "HPCFLOW_LEDGER": "postgresql://h/x"})
    place = Place("here", "", ("/x/hpcflow",), tmp_path / "daemon")
    variables = {"PATH": os.environ["PATH"]}
    return SlurmJob(place, variables, settings, sys.executable, clock=FakeClock())


def test_a_job_whose_answer_was_lost_is_found_and_taken_away(slurm: Slurm, way: SlurmJob) -> None:
    slurm.program("sbatch", f"echo 10 PENDING > jobs/10; echo '{IN_DOUBT}' >&2; exit 1")
    with pytest.raises(SubmissionInDoubt):
        way.install()
    assert way.look() == "job 10 (pending)"
    assert "its jobs: 10" in (way.uninstall() or "")
    assert (slurm.jobs, way.look(), list(way.place.folder.glob("*.sbatch"))) == ([], None, [])


def test_a_job_whose_sender_was_killed_is_found_and_taken_away(slurm: Slurm, way: SlurmJob) -> None:
    slurm.program("sbatch", "echo 10 PENDING > jobs/10; kill -9 $PPID; sleep 0.2; echo 10")
    if (child := os.fork()) == 0:
        way.install()
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert way.look() == "job 10 (pending)"
    assert "its jobs: 10" in (way.uninstall() or "")
    assert [path.suffix for path in way.place.folder.iterdir()] == [".log"]


def test_a_job_without_a_script_is_found_by_its_name(slurm: Slurm, way: SlurmJob) -> None:
    slurm.has(7, "RUNNING")
    assert way.look() == "job 7 (running)"
    assert "its jobs: 7" in (way.uninstall() or "")
    assert (way.look(), way.uninstall()) == (None, None)


def test_while_slurm_is_silent_nobody_knows_that_nothing_is_there(
    slurm: Slurm, way: SlurmJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm.has(7, "RUNNING")
    slurm.program("squeue", "echo 'Unable to contact slurm controller' >&2; exit 1")
    assert way.look() is None
    with pytest.raises(SchedulerUnavailable, match="Unable to contact"):
        way.uninstall()
    monkeypatch.setenv("PATH", "/nowhere")
    assert way.uninstall() is None, "no Slurm here"


@pytest.mark.parametrize("tries", [3, 5])
def test_a_job_that_slurm_is_slow_to_end_is_waited_for(
    slurm: Slurm, way: SlurmJob, tries: int
) -> None:
    slurm.has(7, "RUNNING")
    ends = f'echo x >> asked; test "$(wc -l < asked)" -lt {tries} || rm -f jobs/7'
    slurm.program("scancel", ends)
    assert way.uninstall() == "a daemon without a script here, and its jobs: 7"
    assert way.clock.monotonic() > 1


def test_what_is_still_there_is_not_said_to_be_gone(slurm: Slurm, way: SlurmJob) -> None:
    slurm.has(7, "RUNNING")
    slurm.program("scancel", "true")
    with pytest.raises(SchedulerUnavailable, match="still there after scancel: 7"):
        way.uninstall()


def test_the_successor_that_an_older_one_sends_meanwhile_is_ended_too(
    slurm: Slurm, way: SlurmJob
) -> None:
    slurm.has(7, "RUNNING")
    slurm.program("sbatch", "echo 9 PENDING > jobs/9; echo 10 PENDING > jobs/10; echo 10")
    slurm.program("scancel", 'test ! -e jobs/9 || echo 11 PENDING > jobs/11; cd jobs; rm -f "$@"')
    way.install()
    assert slurm.jobs == ["10"]


def test_the_successor_that_a_job_sends_while_it_ends_is_ended_too(
    slurm: Slurm, way: SlurmJob
) -> None:
    """Without accounting a job does not see that it is cancelled, and not preempted."""
    slurm.has(7, "RUNNING")
    slurm.program(
        "squeue",
        "cd jobs; cat * 2>&-; ! grep -q COMPLETING * || { rm 7; echo 8 PENDING > 8; }",
    )
    slurm.program("scancel", 'cd jobs; test "$*" = 7 && echo 7 COMPLETING > 7 || rm -f "$@"')
    assert way.uninstall() == "a daemon without a script here, and its jobs: 7, 8"
    assert slurm.jobs == []


def test_a_node_that_never_gets_done_with_a_job_holds_nobody_up(
    slurm: Slurm, way: SlurmJob
) -> None:
    slurm.has(7, "RUNNING")
    slurm.program("scancel", "echo 7 COMPLETING > jobs/7")
    assert way.uninstall() == "a daemon without a script here, and its jobs: 7"
    assert way.clock.monotonic() < 20


def test_the_successor_that_the_new_one_has_sent_already_is_kept(
    slurm: Slurm, way: SlurmJob
) -> None:
    slurm.has(7, "RUNNING")
    slurm.program(
        "scancel", 'cd jobs; rm -f "$@"; echo 10 RUNNING > 10; echo 12 PENDING > 12; true'
    )
    way.install()
    assert slurm.jobs == ["10", "12"]


def test_a_job_that_ends_by_itself_meanwhile_is_no_trouble(slurm: Slurm, way: SlurmJob) -> None:
    slurm.has(7, "RUNNING")
    slurm.program("scancel", f"rm -f jobs/7; echo '{GONE}' >&2; exit 1")
    way.install()
    slurm.program(
        "scancel", "echo 'scancel: error: Unable to contact slurm controller' >&2; exit 1"
    )
    with pytest.raises(SchedulerUnavailable, match="Unable to contact"):
        way.uninstall()


def test_hidden_partitions_are_looked_at_too(slurm: Slurm, way: SlurmJob) -> None:
    way.look()
    assert " --all " in (slurm.folder / "calls").read_text()


def test_no_secret_of_the_shell_reaches_the_job(
    slurm: Slurm, way: SlurmJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "PGPASSWORD", "SBATCH_PARTITION"):
        monkeypatch.setenv(name, "hunter2")
    monkeypatch.setenv("KRB5CCNAME", "FILE:/tmp/krb5cc_1000")
    slurm.program("sbatch", "env > environment; echo 10")
    way.install()
    given = (slurm.folder / "environment").read_text()
    assert "hunter2" not in given
    assert "KRB5CCNAME=FILE:/tmp/krb5cc_1000\n" in given
