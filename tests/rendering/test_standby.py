"""A job that has waited for another's end goes on if that was interrupted; else it leaves."""

from __future__ import annotations

import json
import subprocess
from datetime import datetime, timezone

import pytest

from hpcflow.history import RunHistory
from hpcflow.model.journal import Ended, Submitted
from hpcflow.model.state import Cause
from hpcflow.rendering.context import Standby
from hpcflow.rendering.job import IntegrityCheck
from hpcflow.storage.journal import write_for_jobs
from hpcflow.storage.runtime_copy import runtime_sum
from tests.rendering.executed import NONE, Bench, written
from tests.rendering.samples import a_site, a_spec, script_of

JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1"}
STANDBY = {"SLURM_JOB_ID": "8", "SLURM_JOB_NODELIST": "n1"}
WHO = ("sh", "-c", 'echo "$HPCFLOW_ATTEMPT" >> lives; exit "${CODE:-3}"')


@pytest.fixture
def waiting(bench: Bench) -> Bench:
    """Attempt 1 and its standby are sent; nothing was executed yet."""
    written(bench, *WHO, site=a_site())
    spec = a_spec(script=None, command=list(WHO), launch=NONE)
    attempt = bench.run_dir.attempt(2)
    attempt.path.mkdir()
    check = IntegrityCheck(runtime_sum=runtime_sum(bench.run_dir.runtime))
    standby = Standby(1, "7")
    run = bench.run(spec)
    script = script_of(run, a_site(), attempt=2, standby=standby, integrity=check)
    attempt.script.write_text(script)
    return bench


def begin_standby(bench: Bench, **variables: str) -> tuple[int, str]:
    """Its exit code, and what it said."""
    attempt = bench.run_dir.attempt(2)
    done = subprocess.run(
        ["bash", str(attempt.script)],
        cwd=attempt.path,
        env=bench.environment(**STANDBY, **variables),
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def lives(bench: Bench) -> list[str]:
    path = bench.work / "lives"
    return path.read_text().split() if path.exists() else []


def assert_it_left(bench: Bench, why: str) -> None:
    """It executed nothing, and nothing says that it did."""
    before = lives(bench)
    code, said = begin_standby(bench)
    assert (code, lives(bench)) == (1, before), said
    assert why in said
    assert not bench.run_dir.attempt(2).claim.exists()
    assert not bench.run_dir.attempt(2).events.exists()


def assert_it_goes_on(bench: Bench) -> None:
    code, said = begin_standby(bench)
    assert code == 3, said
    assert lives(bench)[-1] == "2"
    assert bench.run_dir.attempt(2).claim.read_text() == "8\n"
    assert not (bench.run_dir.attempt(1).path / "claim.8").exists()


def end(bench: Bench, *events: dict[str, object]) -> None:
    """Attempt 1 started, and then said this."""
    started = {"event": "started", "job_id": "7", "nodes": ["n1"], "restarts": 0}
    lines = [json.dumps({"at": "2026-03-01T12:00:00Z", **each}) for each in (started, *events)]
    bench.attempt.claim.write_text("7\n")
    bench.attempt.events.write_text("\n".join(lines) + "\n")


def slurm_says(bench: Bench, state: str) -> None:
    line = f"JobId=7 JobName=x UserId=ada(1000) JobState={state} Reason=None Dependency=(null)"
    bench.program("scontrol", f'#!/bin/sh\n[ "$*" = "--oneliner show job 7" ] && echo "{line}"\n')


def exited(code: int) -> dict[str, object]:
    return {"event": "exited", "exit_code": code}


NOTICE: dict[str, object] = {"event": "notice", "signal": "TERM"}
FINISHED: dict[str, object] = {"event": "finished", "train_step": 9}


@pytest.mark.parametrize("state", ["NODE_FAIL", "BOOT_FAIL", None])
@pytest.mark.parametrize("has_begun", [True, False])
def test_where_processes_may_live_on_it_leaves_the_run_to_the_daemon(
    waiting: Bench, state: str | None, has_begun: bool
) -> None:
    """The daemon tells them to leave, and gives them time for it."""
    if has_begun:
        end(waiting)
    if state is not None:
        slurm_says(waiting, state)
    assert_it_left(waiting, "attempt 1 was not interrupted")


def test_what_saved_and_left_goes_on(waiting: Bench) -> None:
    end(waiting, exited(75))
    assert_it_goes_on(waiting)


@pytest.mark.parametrize("code", [75, 143])
def test_what_was_told_to_leave_goes_on_if_slurm_says_that_nobody_cancelled_it(
    waiting: Bench, code: int
) -> None:
    end(waiting, NOTICE, exited(code))
    assert_it_left(waiting, "attempt 1 was not interrupted")
    slurm_says(waiting, "FAILED")
    assert_it_goes_on(waiting)


def test_what_left_because_of_a_stall_is_for_the_rules_about_stalls(waiting: Bench) -> None:
    end(waiting, exited(143))
    waiting.attempt.notice.write_text("stalled\n")
    slurm_says(waiting, "FAILED")
    assert_it_left(waiting, "attempt 1 was not interrupted")


def test_an_attempt_that_never_began_is_no_reason_to_stop(waiting: Bench) -> None:
    slurm_says(waiting, "PREEMPTED")
    assert_it_goes_on(waiting)


def test_what_failed_by_itself_is_not_tried_again_by_a_standby(waiting: Bench) -> None:
    assert waiting.execute(**JOB) == 3
    assert lives(waiting) == ["1"]
    assert_it_left(waiting, "attempt 1 was not interrupted")


@pytest.mark.parametrize(
    "events",
    [[exited(0)], [FINISHED, exited(0)], [NOTICE, exited(0)], [NOTICE, FINISHED, exited(0)]],
)
@pytest.mark.parametrize("state", [None, "PREEMPTED"])
def test_of_a_completed_run_it_executes_nothing(
    waiting: Bench, events: list[dict[str, object]], state: str | None
) -> None:
    """An unmodified program may finish while it has been told to leave."""
    end(waiting, *events)
    if state is not None:
        slurm_says(waiting, state)
    assert_it_left(waiting, "standby 8")


def test_of_a_cancelled_run_it_executes_nothing(waiting: Bench) -> None:
    end(waiting, NOTICE)
    waiting.run_dir.cancel.touch()
    assert_it_left(waiting, "the run was cancelled")


def test_one_that_was_given_up_leaves(waiting: Bench) -> None:
    end(waiting)
    slurm_says(waiting, "PREEMPTED")
    waiting.run_dir.attempt(2).claim.write_text("withdrawn\n")
    assert begin_standby(waiting)[0] == 1
    assert lives(waiting) == []


@pytest.mark.parametrize("state", ["PREEMPTED", "TIMEOUT", "DEADLINE"])
def test_slurms_word_for_an_interruption_counts_before_an_exit_code(
    waiting: Bench, state: str
) -> None:
    """A rank on another node sees its peer die, and fails of that."""
    end(waiting, exited(1))
    slurm_says(waiting, state)
    assert_it_goes_on(waiting)


@pytest.mark.parametrize("state", ["CANCELLED", "COMPLETED", "OUT_OF_MEMORY"])
def test_what_somebody_cancelled_or_needs_another_request_is_left_alone(
    waiting: Bench, state: str
) -> None:
    end(waiting, NOTICE)
    slurm_says(waiting, state)
    assert_it_left(waiting, "attempt 1 was not interrupted")


@pytest.mark.parametrize("state", ["FAILED", "COMPLETING", "of a newer Slurm"])
def test_any_other_word_leaves_it_to_the_attempts_own(waiting: Bench, state: str) -> None:
    end(waiting, exited(1))
    slurm_says(waiting, state)
    assert_it_left(waiting, "attempt 1 was not interrupted")
    end(waiting, exited(75))
    assert_it_goes_on(waiting)


def test_a_restart_of_what_it_waits_for_leaves_the_run_to_it(waiting: Bench) -> None:
    assert waiting.execute(**JOB) == 3
    assert waiting.execute(**JOB, SLURM_RESTART_COUNT="1") == 1
    assert lives(waiting) == ["1"]
    assert "attempt 2 was submitted meanwhile" in waiting.log()


def test_a_standby_that_slurm_restarts_is_judged_by_its_own_attempt(waiting: Bench) -> None:
    """By then Slurm has forgotten how the one before it ended."""
    end(waiting, exited(1))
    slurm_says(waiting, "PREEMPTED")
    assert_it_goes_on(waiting)
    waiting.program("scontrol", "#!/bin/sh\nexit 1\n")
    assert begin_standby(waiting, SLURM_RESTART_COUNT="1")[0] == 3
    assert lives(waiting) == ["2", "3"]


@pytest.mark.parametrize("ended_as", ["COMPLETED", "CANCELLED", "FAILED"])
def test_a_standby_that_left_and_is_restarted_leaves_again(waiting: Bench, ended_as: str) -> None:
    """By then Slurm has forgotten how the attempt before it ended."""
    end(waiting, exited(75))
    slurm_says(waiting, ended_as)
    if ended_as == "FAILED":
        end(waiting, exited(1))
    assert begin_standby(waiting)[0] == 1
    waiting.program("scontrol", "#!/bin/sh\nexit 1\n")
    assert begin_standby(waiting, SLURM_RESTART_COUNT="1")[0] == 1
    assert lives(waiting) == []
    assert not (waiting.run_dir.path / "attempts" / "0003").exists()


def test_one_that_was_given_up_and_is_restarted_leaves_too(waiting: Bench) -> None:
    end(waiting)
    slurm_says(waiting, "PREEMPTED")
    waiting.run_dir.attempt(2).claim.write_text("withdrawn\n")
    assert begin_standby(waiting, SLURM_RESTART_COUNT="1")[0] == 1
    assert lives(waiting) == []


def adopt(bench: Bench, job_id: str, number: int = 2) -> None:
    at = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
    bench.run_dir.attempt(number).path.mkdir(exist_ok=True)
    submitted = Submitted(at=at, attempt=number, job_id=job_id, how="standby")
    write_for_jobs(bench.run_dir, RunHistory.of([submitted]))


@pytest.mark.parametrize("state", ["FAILED", "NODE_FAIL", "CANCELLED"])
def test_what_the_run_is_to_go_on_with_judges_nothing(waiting: Bench, state: str) -> None:
    """The daemon has, or somebody who said resume."""
    end(waiting, exited(1))
    slurm_says(waiting, state)
    adopt(waiting, "81")
    adopt(waiting, "8", 3)
    assert_it_left(waiting, "attempt 1 was not interrupted")
    adopt(waiting, "8")
    waiting.run_dir.cancel.touch()
    assert_it_left(waiting, "the run was cancelled")
    waiting.run_dir.cancel.unlink()
    assert_it_goes_on(waiting)


@pytest.mark.parametrize("is_recorded", [True, False])
def test_the_journal_counts_before_what_the_attempt_said(
    waiting: Bench, *, is_recorded: bool
) -> None:
    """A user who can write to the store can forge events that a restore brings back."""
    end(waiting, exited(0))
    adopt(waiting, "8")
    if not is_recorded:
        assert_it_goes_on(waiting)
        return
    at = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
    ended = Ended(at=at, attempt=1, cause=Cause.COMPLETED, raw_state="COMPLETED", rule="x")
    write_for_jobs(waiting.run_dir, RunHistory.of([ended]))
    assert_it_left(waiting, "the run has completed")


@pytest.mark.parametrize("job_id", ["", "x", "1,2", "1:2", "0", "1\n#SBATCH --uid=0", "1 2"])
def test_only_the_id_of_a_job_is_waited_for(job_id: str) -> None:
    with pytest.raises(ValueError, match="not the id"):
        Standby(1, job_id)
