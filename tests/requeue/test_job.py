"""The daemon as a job: the successor it sends. Slurm's programs are stand-ins here.

The chain on a real cluster, through a time limit and a cancellation: tests/e2e/test_daemon_job.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpcflow.requeue.job import AFTER, keep_successor, main, was_cancelled
from hpcflow.resources import resource_dir
from hpcflow.testing.clock import FakeClock
from hpcflow.testing.cluster import poll

IN_JOB = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NAME": "hpcflow-daemon",
    "SLURM_JOB_PARTITION": "serial",
    "SLURM_JOB_ACCOUNT": "physics",
    "SLURM_JOB_START_TIME": "1000",
    "SLURM_JOB_END_TIME": "8200",
}


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f'#!/bin/sh\necho "{name} $*" >> "{folder}/calls"\n{text}\n')
    (folder / name).chmod(0o755)


def calls(folder: Path, name: str) -> list[str]:
    lines = (folder / "calls").read_text().splitlines() if (folder / "calls").exists() else []
    return [line for line in lines if line.startswith(f"{name} ")]


def looks(script: Path, clock: FakeClock, number: int = 1) -> list[str]:
    """What is said in so many looks."""
    said: list[str] = []
    left = iter([True] * number)
    keep_successor(script, IN_JOB, clock, say=said.append, is_needed=lambda: next(left, False))
    return said


def test_the_successor_gets_what_this_job_has(programs: Path) -> None:
    program(programs, "squeue", 'echo "7 RUNNING"')
    program(programs, "sbatch", "echo 8")
    said = looks(Path("/spool/slurm_script"), FakeClock())
    assert said == ["job 8 follows this one"]
    (sent,) = calls(programs, "sbatch")
    assert sent.split()[1:] == [
        *("--parsable", "--job-name=hpcflow-daemon", "--begin=now+60"),
        *("--partition=serial", "--account=physics", "--time=120", "/spool/slurm_script"),
    ]


def test_where_one_waits_already_none_is_sent(programs: Path) -> None:
    program(programs, "squeue", 'echo "7 RUNNING"; echo "8 PENDING"')
    program(programs, "sbatch", "echo 9")
    said = looks(Path("/x"), FakeClock(), 3)
    assert said == ["job 8 is pending until this one ends"]
    assert calls(programs, "sbatch") == []


def test_it_tries_until_slurm_answers_and_looks_before_every_try(programs: Path) -> None:
    program(programs, "squeue", 'echo "7 RUNNING"; test ! -e sent || echo "8 PENDING"')
    program(
        programs,
        "sbatch",
        'test $(grep -c ^sbatch "$(dirname "$0")/calls") = 3 || {\n'
        'echo "sbatch: error: Batch job submission failed: Unable to contact slurm controller'
        ' (connect failure)" >&2; exit 1; }\n'
        "echo 8",
    )
    clock = FakeClock()
    began = clock.monotonic()
    no, yes = looks(Path("/x"), clock, 3)
    assert "no successor yet: Slurm does not accept the job now" in no
    assert yes == "job 8 follows this one"
    assert (len(calls(programs, "squeue")), len(calls(programs, "sbatch"))) == (3, 3)
    assert clock.monotonic() - began == 10 + 20 + 600


def test_what_slurm_will_never_take_is_said(programs: Path) -> None:
    program(programs, "squeue", "true")
    program(
        programs,
        "sbatch",
        'echo "sbatch: error: invalid partition specified: no" >&2\n'
        'echo "sbatch: error: Batch job submission failed: Invalid partition name specified" >&2\n'
        "exit 1",
    )
    (said,) = looks(Path("/x"), FakeClock(), 5)
    assert said.startswith("no successor yet: Slurm refused the job: invalid partition")


def test_a_successor_that_somebody_cancels_is_sent_again(programs: Path) -> None:
    program(programs, "squeue", 'echo "7 RUNNING"')
    program(programs, "sbatch", f"grep -c ^sbatch {programs}/calls")
    said = looks(Path("/x"), FakeClock(), 2)
    assert said == ["job 1 follows this one", "job 2 follows this one"]


def test_a_folder_that_was_deleted_does_not_end_the_chain(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(programs, "squeue", "true")
    program(programs, "sbatch", "echo 8")
    gone = programs / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert looks(Path("/x"), FakeClock()) == ["job 8 follows this one"]


def test_a_node_without_processes_is_waited_for(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object, **_kwargs: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    program(programs, "squeue", "true")
    monkeypatch.setattr("hpcflow.programs.subprocess.Popen", full)
    (said,) = looks(Path("/x"), FakeClock(), 2)
    assert "no successor yet: " in said
    assert "Resource temporarily unavailable" in said


@pytest.mark.parametrize(
    ("scontrol", "sacct", "expected"),
    [
        ('echo "   JobState=CANCELLED Reason=None"', "exit 1", True),
        ('echo "   JobState=PREEMPTED Reason=None"', "echo CANCELLED", False),
        ('echo "   JobState=TIMEOUT Reason=TimeLimit"', "exit 1", False),
        ("exit 1", 'echo "CANCELLED by 1000"', True),
        ("exit 1", "echo NODE_FAIL", False),
        ("exit 1", "exit 1", False),
        ('echo "   JobState=COMPLETING Reason=None"', 'echo "CANCELLED by 1000"', True),
        ('echo "   JobState=COMPLETING Reason=None"', "echo PREEMPTED", False),
        ('echo "   JobState=COMPLETING Reason=None"', "exit 1", False),
    ],
)
def test_only_who_was_cancelled_has_no_successor(
    programs: Path, scontrol: str, sacct: str, expected: bool
) -> None:
    program(programs, "scontrol", scontrol)
    program(programs, "sacct", sacct)
    assert was_cancelled("7", FakeClock()) is expected


def test_who_is_followed_while_its_processes_still_leave_is_asked_until_it_has_ended(
    programs: Path,
) -> None:
    """Without accounting, nobody says before how a job ends."""
    asked = f'test "$(grep -c ^scontrol {programs}/calls)" -lt 3'
    program(programs, "scontrol", f"{asked} && echo JobState=COMPLETING || echo JobState=CANCELLED")
    program(programs, "sacct", "exit 1")
    clock = FakeClock()
    assert was_cancelled("7", clock)
    assert clock.monotonic() == 2


def test_outside_of_a_job_it_says_how_to_send_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert main(["script"]) == 2
    assert "sbatch sbatch/daemon.sbatch" in capsys.readouterr().err


def test_a_successor_of_a_cancelled_job_sends_none(
    programs: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert not home.exists()
    program(programs, "scontrol", 'echo "   JobState=CANCELLED Reason=None"')
    program(programs, "sbatch", "echo 9")
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    monkeypatch.setenv(AFTER, "7")
    assert main(["script"]) == 0
    assert "job 7 was cancelled, so this one exits too" in capfd.readouterr().out
    assert calls(programs, "sbatch") == []


SENDS_IN_VAIN = """
import os
from pathlib import Path
from hpcflow.requeue import job
from hpcflow.testing.clock import FakeClock
left = iter([True] * 2)
job.keep_successor(
    Path("script"), os.environ, FakeClock(), say=job._say, is_needed=lambda: next(left, False)
)
"""


@pytest.mark.parametrize("words", [["-c", SENDS_IN_VAIN], ["-m", "hpcflow.requeue.job", "script"]])
def test_a_log_on_a_full_disk_is_no_reason_to_fail(
    programs: Path, home: Path, words: list[str]
) -> None:
    """The sender of successors would be gone for good, and a job that just ends be followed."""
    program(programs, "scontrol", 'echo "   JobState=CANCELLED Reason=None"')
    program(programs, "squeue", "exit 1")
    environ = {**os.environ, **IN_JOB, AFTER: "6", "HPCFLOW_HOME": str(home)}
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([sys.executable, *words], env=environ, stdout=full, check=False)
    assert done.returncode == 0


TELLS = "echo > began"
#: The daemon itself, and a Python that is told to end before it has become the daemon.
DAEMON = f"trap 'echo ended > said; exit 0' TERM\n{TELLS}\nwhile :; do sleep 0.05; done"
BEGINS = f"{TELLS}\nexec sleep 60"


def batch(
    folder: Path, python: str, *, queue: str = "true", state: str = "RUNNING"
) -> subprocess.Popen[bytes]:
    """``sbatch/daemon.sbatch`` as Slurm starts it, with a Python that does this.

    Args:
        queue: what squeue does when it is asked who waits.
        state: of the job itself, as accounting has it.
    """
    program(folder, "python", python)
    program(folder, "sbatch", 'echo "$HPCFLOW_DAEMON_AFTER" > after')
    program(folder, "sacct", f"echo {state}")
    program(folder, "squeue", f'case "$*" in *=%l) echo 1-00:00:00 ;; *) {queue} ;; esac')
    script = resource_dir("sbatch") / "daemon.sbatch"
    environ = {**IN_JOB, "PATH": os.environ["PATH"], "HPCFLOW_PYTHON": f"{folder}/python"}
    return subprocess.Popen(["bash", str(script)], env=environ, cwd=folder)


def told_to_end(process: subprocess.Popen[bytes], folder: Path) -> int:
    """Exit code of a job that gets Slurm's signal as soon as its Python has begun."""
    poll((folder / "began").exists, 120, "it did not begin")
    process.terminate()
    return process.wait(timeout=120)


def sent_after_seven(folder: Path, begin: str) -> bool:
    """Whether the job has sent its successor, which knows whom it follows."""
    (sent,) = calls(folder, "sbatch")
    assert sent.split()[1:-1] == [
        *(f"--begin={begin}", "--job-name=hpcflow-daemon", "--partition=serial"),
        *("--account=physics", "--time=1-00:00:00"),
    ]
    return (folder / "after").read_text() == "7\n"


def test_a_job_that_fails_at_once_is_followed_by_another(programs: Path) -> None:
    assert batch(programs, "exit 3").wait(timeout=120) == 3
    assert sent_after_seven(programs, "now+600")


@pytest.mark.parametrize(("python", "code"), [(BEGINS, 128 + 15), (DAEMON, 0)])
def test_a_job_that_is_told_to_end_in_its_first_seconds_is_followed_by_another(
    programs: Path, python: str, code: int
) -> None:
    """Preempted early: what sends the successor has had no answer yet."""
    assert told_to_end(batch(programs, python), programs) == code
    assert sent_after_seven(programs, "now+60")


def test_who_cancels_a_job_in_its_first_seconds_means_that_there_shall_be_none(
    programs: Path,
) -> None:
    job = batch(programs, BEGINS, state="'CANCELLED by 1000'")
    assert told_to_end(job, programs) == 128 + 15
    assert calls(programs, "sbatch") == []


def test_a_job_that_fails_when_its_successor_waits_sends_no_second_one(programs: Path) -> None:
    assert batch(programs, "exit 1", queue="echo 8").wait(timeout=120) == 1
    assert calls(programs, "sbatch") == []
    (asked,) = calls(programs, "squeue")
    assert {"--me", "--states=PENDING", "--name=hpcflow-daemon"} <= set(asked.split())


def test_while_slurm_does_not_say_who_waits_one_is_sent(programs: Path) -> None:
    """One too many waits its turn; with none, this would be the last daemon."""
    silent = "echo 'Unable to contact slurm controller' >&2; exit 1"
    assert batch(programs, "exit 1", queue=silent).wait(timeout=120) == 1
    assert sent_after_seven(programs, "now+600")


def test_a_successor_that_slurm_does_not_take_at_once_is_sent_again(programs: Path) -> None:
    job = batch(programs, "exit 3")
    program(programs, "sbatch", "test -e tried || { touch tried; exit 1; }")
    assert job.wait(timeout=120) == 3
    assert len(calls(programs, "sbatch")) == 2


def test_a_daemon_that_is_told_to_end_does_so_and_its_script_sends_nothing(programs: Path) -> None:
    assert told_to_end(batch(programs, DAEMON, queue="echo 8"), programs) == 0
    assert (programs / "said").read_text() == "ended\n"
    assert calls(programs, "sbatch") == []
    assert batch(programs, "exit 0").wait(timeout=120) == 0
    assert calls(programs, "sbatch") == []
