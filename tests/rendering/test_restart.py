"""Slurm restarts a job under its own id: its script goes on as the next attempt, or leaves."""

from __future__ import annotations

import subprocess

import pytest

from hpcflow.launch.restarts import MAX_RESTARTS
from hpcflow.model.events import parse_event
from tests.rendering.executed import NONE, Bench, written
from tests.rendering.samples import a_site, a_spec, script_of

JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1"}

#: Says which attempt it is, and fails.
WHO = ("sh", "-c", 'echo "$HPCFLOW_ATTEMPT" >> lives; echo "says $HPCFLOW_ATTEMPT"; exit 3')


def lives(bench: Bench) -> list[str]:
    """The attempts that were executed, in order."""
    path = bench.work / "lives"
    return path.read_text().split() if path.exists() else []


def told(bench: Bench, number: int) -> list[object]:
    """What an attempt has said, as kind and number of restarts."""
    path = bench.run_dir.attempt(number).events
    events = map(parse_event, path.read_bytes().splitlines()) if path.exists() else []
    return [(event["event"], event.get("restarts")) for event in events if event is not None]


def restart(bench: Bench, count: int) -> int:
    return bench.execute(**JOB, SLURM_RESTART_COUNT=str(count))


def send_as_another_job(bench: Bench, number: int) -> subprocess.CompletedProcess[str]:
    """Render the script of an attempt, as somebody who sends it, and execute it as job 8."""
    spec = a_spec(script=None, command=list(WHO), launch=NONE)
    attempt = bench.run_dir.attempt(number)
    attempt.path.mkdir(exist_ok=True)
    attempt.script.write_text(script_of(bench.run(spec), a_site(), attempt=number))
    return subprocess.run(
        ["bash", str(attempt.script)],
        cwd=attempt.path,
        env=bench.environment(SLURM_JOB_ID="8", SLURM_JOB_NODELIST="n1"),
        capture_output=True,
        text=True,
    )


@pytest.fixture
def failed(bench: Bench) -> Bench:
    """A job that has executed attempt 1 and failed."""
    assert written(bench, *WHO, site=a_site()).execute(**JOB) == 3
    return bench


def test_five_restarts_are_six_attempts_each_with_files_of_its_own(failed: Bench) -> None:
    for count in range(1, 6):
        assert restart(failed, count) == 3
    assert lives(failed) == ["1", "2", "3", "4", "5", "6"]
    for number in range(1, 7):
        attempt = failed.run_dir.attempt(number)
        assert attempt.claim.read_text() == "7\n"
        assert told(failed, number) == [("started", number - 1), ("exited", None)]
        assert f"says {number}" in attempt.log.read_text()
        assert number == 1 or attempt.path.stat().st_mode & 0o077 == 0
    assert "says 2" not in failed.log()
    assert "job 7 was restarted, and continues as attempt 2" in failed.log()


def test_a_life_that_never_reached_the_script_leaves_its_number_free(failed: Bench) -> None:
    """The login side counts as Slurm does; so does the script, whatever it remembers."""
    restart(failed, 3)
    assert lives(failed) == ["1", "4"]


def test_what_it_passes_over_nobody_else_executes(failed: Bench) -> None:
    """Somebody with an older look at the queue sends that attempt at this moment."""
    restart(failed, 2)
    assert lives(failed) == ["1", "3"]
    done = send_as_another_job(failed, 2)
    assert "job 7 executes this attempt; job 8 exits" in done.stdout
    assert lives(failed) == ["1", "3"]


def test_a_restart_that_slurm_has_forgotten_is_not_joined(failed: Bench) -> None:
    """A controller that was killed may count the same restart twice."""
    restart(failed, 1)
    restart(failed, 1)
    assert lives(failed) == ["1", "2", "3"]


def test_a_count_beyond_all_reason_is_not_believed(failed: Bench) -> None:
    """Each restart takes bash some milliseconds, so the limit is a smaller one here."""
    script = failed.run_dir.attempt(1).script
    limit = "((hpcflow_restarts <= {0})) || hpcflow_restarts={0} "
    before, of_hpcflow, after = script.read_text().partition(limit.format(MAX_RESTARTS))
    assert of_hpcflow
    script.write_text(before + limit.format(20) + after)
    assert restart(failed, 99_999) == 3
    assert lives(failed) == ["1", "21"]


def test_a_job_that_executed_nothing_before_its_restart_counts_on(bench: Bench) -> None:
    """Its node was lost before the script began."""
    written(bench, *WHO, site=a_site())
    restart(bench, 1)
    assert lives(bench) == ["2"]


def test_of_a_run_that_was_sent_again_it_executes_nothing(failed: Bench) -> None:
    following = failed.run_dir.attempt(2)
    following.path.mkdir()
    following.script.write_text("#!/bin/bash\n")
    assert restart(failed, 1) == 1, "it must not look completed"
    assert restart(failed, 2) == 1, "and never passes over it to the one after"
    assert lives(failed) == ["1"]
    assert not following.claim.exists()
    assert "attempt 2 was submitted meanwhile" in failed.log()


@pytest.mark.parametrize("holder", ["8", "withdrawn"])
def test_what_another_job_has_claimed_is_left_alone(failed: Bench, holder: str) -> None:
    following = failed.run_dir.attempt(2)
    following.path.mkdir()
    following.claim.write_text(f"{holder}\n")
    assert restart(failed, 1) == 1
    assert lives(failed) == ["1"]
    assert following.claim.read_text() == f"{holder}\n"


def test_what_a_restarted_job_has_claimed_the_next_job_leaves_alone(failed: Bench) -> None:
    """Both happened at one moment: the job was restarted, and the attempt was sent."""
    restart(failed, 1)
    done = send_as_another_job(failed, 2)
    assert done.returncode == 1
    assert "job 7 executes this attempt; job 8 exits" in done.stdout
    assert lives(failed) == ["1", "2"]


def test_what_left_with_zero_is_not_executed_again(bench: Bench) -> None:
    assert written(bench, "sh", "-c", "echo x >> lives", site=a_site()).execute(**JOB) == 0
    assert restart(bench, 1) == 1
    assert lives(bench) == ["x"]
    assert not bench.run_dir.attempt(2).path.exists()
    assert "the run has completed" in bench.log()


def test_what_left_with_zero_because_it_was_told_to_goes_on(bench: Bench) -> None:
    """Some programs end well on TERM, wherever they are."""
    written(bench, "sh", "-c", "echo x >> lives", site=a_site()).execute(**JOB)
    bench.attempt.notice.write_text("TERM\n")
    assert restart(bench, 1) == 0
    assert lives(bench) == ["x", "x"]


def test_what_the_journal_calls_completed_is_not_executed_again(bench: Bench) -> None:
    written(bench, "sh", "-c", "echo x >> lives", site=a_site()).execute(**JOB)
    bench.attempt.notice.write_text("USR2\n")  # it hurried, and made it
    bench.run_dir.completed.touch()
    assert restart(bench, 1) == 1
    assert lives(bench) == ["x"]


def test_a_cancelled_run_does_not_start_again(failed: Bench) -> None:
    failed.run_dir.cancel.touch()
    assert restart(failed, 1) == 143
    assert lives(failed) == ["1"]


def test_it_goes_on_from_the_newest_checkpoint(bench: Bench) -> None:
    script = 'echo "${HPCFLOW_RESUME_FROM-none}" >> lives; exit 75'
    assert written(bench, "sh", "-c", script, site=a_site()).execute(**JOB) == 75
    checkpoint = bench.run_dir.checkpoints / "000000100"
    checkpoint.mkdir(parents=True)
    (checkpoint / "manifest.json").write_text("{}")
    bench.program("python3", "#!/bin/sh\nexit 9\n")  # it cannot tell here which are whole
    assert restart(bench, 1) == 75, "the request of its former life is not this one's"
    assert (bench.work / "lives").read_text() == f"none\n{checkpoint}\n"
