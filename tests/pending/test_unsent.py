"""Why no job of a run waits: what hpcflow waits for, and where it is told to look."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from hpcflow.cli.output import next_words
from hpcflow.errors import SchedulerError, SubmissionDelayed, SubmissionRefused
from hpcflow.launch.cancel import request_cancel
from hpcflow.launch.run import Launched
from hpcflow.model.journal import Held, Released
from hpcflow.pending.unsent import Unsent, explain_unsent
from hpcflow.storage import journal
from hpcflow.storage.runs import list_runs
from hpcflow.testing.fake_scheduler import Fault
from tests.requeue.watched import Watched


@pytest.fixture
def desk(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def why(desk: Watched, run_id: str) -> Unsent:
    seen = desk.seen(run_id)
    jobs = [each for each in seen.attempts if each.job_id]
    run_dir = desk.settings.home.run_dir(seen.run.run_dir)
    return explain_unsent(
        seen.run,
        jobs[-1] if jobs else None,
        journal.Journal(run_dir).history,
        desk.clock.now(),
        is_journal_lost=journal.is_lost(run_dir),
    )


def failed(desk: Watched) -> Launched:
    launched = desk.launch()
    desk.end(launched.job_id, "FAILED", exit_code=1)
    return launched


def preempted(desk: Watched) -> Launched:
    launched = desk.launch()
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    return launched


def test_a_run_that_runs_says_since_when_and_where(desk: Watched) -> None:
    launched = desk.launch()
    desk.clock.advance(90)
    told = why(desk, launched.run_id)
    assert told.words == (
        f"it runs since 2026-03-01 00:00:00 UTC, for 1m 30s, as job {launched.job_id} on n1"
    )
    assert told.to_try == (f"follow it: hpcflow logs --follow {launched.run_id}",)


def test_a_cancel_that_was_killed_before_the_job_ended_is_told(desk: Watched) -> None:
    launched = desk.launch()
    run_dir = desk.dir_of(launched)
    request_cancel(run_dir, settings=desk.settings, clock=desk.clock)
    desk.look()
    told = why(desk, launched.run_id)
    assert told.words == f"cancelled, but its job {launched.job_id} has not ended yet"
    assert told.to_try == (f"if it does not end soon: hpcflow cancel {launched.run_id}",)
    assert next_words(desk.seen(launched.run_id).run) == "cancelled: its job has not ended yet"


def test_a_job_that_did_not_trust_its_run_directory_is_explained(desk: Watched) -> None:
    launched = desk.launch()
    desk.end(launched.job_id, "FAILED", exit_code=77)
    told = why(desk, launched.run_id)
    assert "exit code 77: other users could have changed" in told.words
    assert f"hpcflow logs {launched.run_id}" in told.to_try[0]
    launched.run_dir.parent.chmod(0o777)
    desk.tick()  # a pause
    desk.clock.advance(600)
    desk.tick()
    told = why(desk, launched.run_id)
    assert "it was stopped (refused): every user can write to" in told.words
    assert desk.tick().looked_at == 0, "it is not tried again and again"


@pytest.mark.parametrize(("exit_code", "cause"), [(75, "checkpointed"), (1, "failed")])
def test_a_job_that_slurm_holds_for_its_exit_code_is_explained(
    desk: Watched, exit_code: int, cause: str
) -> None:
    launched = desk.launch()
    desk.look()
    desk.slurm.hold_for_its_exit(launched.job_id, exit_code)
    assert why(desk, launched.run_id).words.startswith(
        f"attempt 1 ended as {cause} with exit code {exit_code}, and Slurm holds its job "
        f"{launched.job_id} because of it; "
    )


def test_a_run_that_failed_waits_for_the_daemon_and_then_for_the_pause(desk: Watched) -> None:
    launched = failed(desk)
    told = why(desk, launched.run_id)
    assert told.words == "attempt 1 ended as failed; hpcflow decided nothing since"
    assert "hpcflow daemon status" in told.to_try[0]
    desk.tick()
    told = why(desk, launched.run_id)
    assert told.words == "hpcflow waits before it submits a job (backoff): 1 failure"
    assert told.until is not None
    assert told.until > desk.clock.now()
    assert told.to_try == (f"submit it now: hpcflow resume {launched.run_id}",)


def test_a_run_that_used_its_budget_up_says_which(desk: Watched) -> None:
    launched = failed(desk)
    for _ in range(5):
        desk.tick()
        desk.clock.advance(timedelta(hours=1).total_seconds())
        desk.tick()
        for job_id in desk.alive():
            desk.end(job_id, "FAILED", exit_code=1)
    told = why(desk, launched.run_id)
    assert told.words.startswith("it was stopped (")
    assert "hpcflow history" in told.to_try[0]
    assert told.to_try[0].endswith(f"hpcflow resume {launched.run_id}")


def test_a_preempted_run_is_to_be_sent_by_a_daemon(desk: Watched) -> None:
    told = why(desk, preempted(desk).run_id)
    assert told.words == "attempt 1 ended as preempted; the next is not submitted yet"
    assert "hpcflow daemon status" in told.to_try[0]


def test_a_held_run_says_who_held_it(desk: Watched) -> None:
    launched = preempted(desk)
    desk.say(launched.run_dir, Held(at=desk.clock.now(), by="grace"))
    told = why(desk, launched.run_id)
    assert told.words == "it is held by grace on 2026-03-01 00:00:00"
    assert told.to_try == (f"to continue: hpcflow release {launched.run_id}",)
    desk.say(launched.run_dir, Released(at=desk.clock.now(), by="grace"))
    assert "held" not in why(desk, launched.run_id).words


def test_a_run_that_slurm_did_not_take_says_why(desk: Watched) -> None:
    launched = preempted(desk)
    desk.look()
    desk.slurm.faults.append(Fault.REFUSED)
    with pytest.raises(SubmissionRefused):
        desk.resume(desk.dir_of(launched))
    told = why(desk, launched.run_id)
    assert told.words.startswith("Slurm refused it: ")
    assert "Invalid partition name specified" in told.words
    assert "hpcflow resume" in told.to_try[0]


def test_a_run_for_which_a_limit_is_full_says_which_and_until_when(desk: Watched) -> None:
    desk.slurm.faults.append(Fault.DELAYED)
    with pytest.raises(SubmissionDelayed):
        desk.launch()
    (run_dir,) = list_runs(desk.settings.home)
    assert why(desk, run_dir.path.name).words == "no job was submitted yet"
    desk.tick()
    told = why(desk, run_dir.path.name)
    assert told.words == "Slurm did not accept it: AssocMaxSubmitJobLimit"
    assert told.until is not None


@pytest.mark.parametrize(
    ("end", "words", "advice"),
    [
        ("COMPLETED", "it is completed", "hpcflow show"),
        ("CANCELLED by 0", "it was cancelled", "hpcflow resume"),
    ],
)
def test_a_run_that_is_over_says_so(desk: Watched, end: str, words: str, advice: str) -> None:
    launched = desk.launch()
    desk.end(launched.job_id, end, exit_code=0)
    told = why(desk, launched.run_id)
    assert told.words == words
    assert advice in told.to_try[0]


def test_a_submission_in_doubt_is_told_as_one(desk: Watched) -> None:
    desk.slurm.faults.append(Fault.CONTROLLER_DIES)
    with pytest.raises(SchedulerError):
        desk.launch()
    (run_dir,) = list_runs(desk.settings.home)
    told = why(desk, run_dir.path.name)
    assert "killed before Slurm answered" in told.words


@pytest.mark.parametrize("has_ledger", [True, False])
def test_a_run_whose_journal_is_lost_waits_for_its_user(desk: Watched, *, has_ledger: bool) -> None:
    launched = preempted(desk)
    desk.look()
    desk.dir_of(launched).journal.unlink()
    if not has_ledger:
        (desk.settings.home.path / "ledger.sqlite").unlink()
    desk.look()
    told = why(desk, launched.run_id)
    assert told.words.startswith("it was stopped (lost_journal): its journal.jsonl is missing")
    assert f"hpcflow restore {launched.run_id}" in told.to_try[0]
    assert f"hpcflow resume {launched.run_id}" in told.to_try[0]


def test_a_completed_run_whose_journal_is_lost_is_completed(desk: Watched) -> None:
    launched = desk.launch()
    desk.end(launched.job_id, "COMPLETED")
    desk.look()
    desk.dir_of(launched).journal.unlink()
    assert why(desk, launched.run_id).words == "it is completed"
