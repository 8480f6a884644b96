"""Launching, resuming and cancelling, when jobs, journals and scratch are not as they should be."""

from __future__ import annotations

import os
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hpcflow.cli.main import main
from hpcflow.clock import to_text
from hpcflow.errors import (
    InputError,
    SchedulerUnavailable,
    ScratchError,
    StorageError,
    SubmissionInDoubt,
    SubmissionLost,
    SubmissionRefused,
)
from hpcflow.launch.cancel import end_jobs
from hpcflow.model.state import Cause, RunState
from hpcflow.reconcile.classify_end import VANISHED_AFTER_S
from hpcflow.storage.journal import Journal
from hpcflow.storage.layout import RunDir
from hpcflow.storage.runs import list_runs, run_dir_of
from hpcflow.testing.fake_scheduler import FakeScheduler, Fault
from tests.launch.desk import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_run_whose_journal_was_purged_is_not_sent_beside_its_job(desk: Desk) -> None:
    launched = desk.launch()
    run_dir = desk.dir_of(launched)
    run_dir.attempt(1).log.touch()
    run_dir.journal.unlink()
    with pytest.raises(StorageError, match=r"journal of run .* is missing"):
        desk.resume(run_dir)
    shutil.rmtree(run_dir.attempt(1).path)
    with pytest.raises(StorageError, match=r"journal of run .* is missing"):
        desk.resume(run_dir, known_attempts=1)
    with pytest.raises(InputError, match=f"job {launched.job_id} .* is pending or running"):
        desk.resume(run_dir)  # the ledger was deleted, too
    assert desk.alive() == [launched.job_id]


def test_a_run_that_was_killed_before_its_first_intent_is_sent(desk: Desk) -> None:
    desk.slurm.faults.append(Fault.UNAVAILABLE)
    with pytest.raises(SchedulerUnavailable) as caught:
        desk.launch()
    run_id = str(caught.value.next_action).rsplit(maxsplit=1)[-1]
    run_dir = run_dir_of(desk.settings.home, run_id)
    run_dir.journal.write_bytes(b"")
    assert run_dir.attempt(1).script.exists()
    launched = desk.resume(run_dir)
    assert (launched.attempt, desk.alive()) == (1, [launched.job_id])


def test_a_run_that_was_never_sent_is_sent(desk: Desk) -> None:
    desk.slurm.faults.append(Fault.UNAVAILABLE)
    with pytest.raises(SchedulerUnavailable, match="controller") as caught:
        desk.launch()
    run_id = str(caught.value.next_action).rsplit(maxsplit=1)[-1]
    kept = run_dir_of(desk.settings.home, run_id)
    assert caught.value.details == {"run_id": run_id, "run_dir": str(kept.path)}
    launched = desk.resume(
        run_dir_of(desk.settings.home, run_id),
        known_attempts=1,
    )
    assert (launched.attempt, desk.alive()) == (1, [launched.job_id])


@pytest.mark.parametrize("what", ["journal", "everything"])
def test_a_purged_run_can_be_cancelled(desk: Desk, what: str) -> None:
    launched = desk.launch()
    run_dir = desk.dir_of(launched)
    if what == "journal":
        run_dir.journal.unlink()
    else:
        shutil.rmtree(run_dir.path)
    assert desk.cancel(run_dir) == launched.job_id
    assert desk.alive() == []
    assert desk.cancel(run_dir) is None


def test_whoever_is_faster_in_sending_a_new_run_has_sent_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hpcflow.storage.rundir import create_run as create

    def and_resume(*args: Any, **options: Any) -> RunDir:
        run_dir = create(*args, **options)
        desk.resume(run_dir)
        return run_dir

    monkeypatch.setattr("hpcflow.launch.plan.create_run", and_resume)
    with pytest.raises(StorageError, match="another process has submitted") as caught:
        desk.launch()
    assert caught.value.details["run_id"] == next(desk.settings.home.runs.iterdir()).name
    assert len(desk.alive()) == 1


def test_the_cancel_request_outlives_a_cluster_that_cannot_be_reached(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = desk.launch(), desk.launch()
    monkeypatch.setenv("HPCFLOW_HOME", str(desk.settings.home.path))
    monkeypatch.setenv("PATH", str(desk.folder))  # no sbatch, no squeue
    assert main(["cancel", first.run_id, second.run_id]) == 2
    assert capsys.readouterr().err.count("there is no sbatch") == 2
    for launched in (first, second):
        run_dir = desk.dir_of(launched)
        assert run_dir.cancel.exists()
        assert '"cancel_requested"' in run_dir.journal.read_text()
        assert desk.cancel(run_dir) == launched.job_id, "it is said again where Slurm answers"


def test_cancel_ends_a_job_of_this_run_alone(desk: Desk) -> None:
    first, second = desk.launch(), desk.launch()
    desk.cancel(desk.dir_of(first))
    assert desk.alive() == [second.job_id]


def _launched_in_doubt(desk: Desk) -> tuple[RunDir, str]:
    """A run whose job exists while nobody could be asked about it."""
    desk.slurm.faults.append(Fault.CONTROLLER_DIES)
    with pytest.raises(SubmissionInDoubt) as caught:
        desk.launch()
    run_id = str(caught.value.next_action).rsplit(maxsplit=1)[-1]
    return run_dir_of(desk.settings.home, run_id), run_id


def test_a_job_that_is_found_after_its_run_was_cancelled_is_ended(desk: Desk) -> None:
    run_dir, run_id = _launched_in_doubt(desk)
    with pytest.raises(SubmissionInDoubt):
        desk.cancel(run_dir)
    desk.slurm.is_controller_down = False
    assert len(desk.alive()) == 1
    desk.state(run_id)
    assert desk.alive() == []
    assert desk.state(run_id)[0] is RunState.CANCELLED


def test_a_job_that_is_found_when_its_run_is_resumed_goes_on(desk: Desk) -> None:
    run_dir, run_id = _launched_in_doubt(desk)
    with pytest.raises(SubmissionInDoubt):
        desk.cancel(run_dir)
    desk.slurm.is_controller_down = False
    launched = desk.resume(run_dir)
    assert desk.alive() == [launched.job_id]
    assert not run_dir.cancel.exists()
    assert desk.state(run_id)[0] is RunState.RUNNING


def test_the_reason_of_a_wait_is_the_present_one(desk: Desk) -> None:
    desk.slurm = FakeScheduler(desk.clock, starts_at_once=False, cluster_name="devcluster")
    launched = desk.launch()
    said = []
    for reason in ("Priority", "Resources", "AssocGrpGRES", "AssocGrpGRES", "ReqNodeNotAvail"):
        desk.slurm.wait_for(launched.job_id, reason)
        said.append(desk.state(launched.run_id)[1])
    assert said == ["Priority", "Priority", "AssocGrpGRES", "AssocGrpGRES", "ReqNodeNotAvail"]
    journal = desk.dir_of(launched).journal.read_text()
    assert journal.count('"observed"') == 3, "what is not new is not written"
    desk.slurm.start(launched.job_id)
    assert desk.state(launched.run_id) == (RunState.RUNNING, None)


def test_scratch_that_fills_up_before_anything_is_intended_leaves_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StorageError("cannot write: No space left on device")

    monkeypatch.setattr("hpcflow.launch.submission.write_durably", full)
    with pytest.raises(ScratchError, match="No space left"):
        desk.launch()
    assert not list(desk.settings.home.runs.iterdir())
    assert desk.alive() == []


def test_nothing_is_sent_from_another_clusters_login_node(desk: Desk) -> None:
    """Home and scratch are often common to several clusters."""
    launched = desk.launch()
    here, desk.slurm = desk.slurm, FakeScheduler(desk.clock, cluster_name="othercluster")
    with pytest.raises(InputError, match="site devcluster is cluster devcluster"):
        desk.launch()
    run_dir = desk.dir_of(launched)
    with pytest.raises(InputError, match="of cluster othercluster"):
        desk.resume(run_dir)
    with pytest.raises(SchedulerUnavailable, match="is on cluster devcluster") as caught:
        desk.cancel(run_dir)
    assert "run it there" in str(caught.value)
    desk.slurm = here
    assert desk.alive() == [launched.job_id]


def test_what_another_cluster_does_not_know_has_not_vanished(desk: Desk) -> None:
    launched, (doubtful, _) = desk.launch(), _launched_in_doubt(desk)
    desk.slurm.is_controller_down = False
    here, desk.slurm = desk.slurm, FakeScheduler(desk.clock, cluster_name="othercluster")
    for _ in range(3):
        said = "\n".join(desk.look())
        assert "is on cluster devcluster, but this is othercluster" in said
        assert "submitted to cluster devcluster" in said
        desk.clock.advance(VANISHED_AFTER_S + 60)
    desk.slurm = here
    assert desk.state(launched.run_id)[0] is RunState.RUNNING
    assert desk.state(doubtful.path.name)[0] is RunState.RUNNING


def test_cancel_lets_a_job_alone_that_got_the_same_id(desk: Desk) -> None:
    """Ids wrap, and begin again where a controller lost its state."""
    old = desk.launch()
    desk.slurm = FakeScheduler(desk.clock, cluster_name="devcluster")
    new = desk.launch()
    assert new.job_id == old.job_id
    assert desk.cancel(desk.dir_of(old)) is None
    assert desk.alive() == [new.job_id]


def test_a_job_that_exists_although_sbatch_said_no_is_adopted(desk: Desk) -> None:
    """sbatch sends again by itself, and its last answer need not be about the first time."""
    desk.slurm.faults.append(Fault.REFUSED_TWICE)
    launched = desk.launch()
    assert desk.alive() == [launched.job_id]
    assert desk.state(launched.run_id)[0] is RunState.RUNNING


def test_a_job_that_appears_after_its_attempt_was_withdrawn_executes_nothing(desk: Desk) -> None:
    executed = desk.folder / "executed"
    desk.config.write_text(desk.config.read_text().replace('"true"', f'"touch", "{executed}"'))
    desk.slurm.faults.append(Fault.LOST_REQUEST)
    with pytest.raises(SubmissionLost):
        desk.launch()
    (run_dir,) = list_runs(desk.settings.home)
    assert desk.resume(run_dir).attempt == 2
    attempt = run_dir.attempt(1)
    job = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "77", "SLURM_JOB_NODELIST": "n1"}
    with attempt.log.open("wb") as log:
        done = subprocess.run(
            ["bash", str(attempt.script)], env=job, cwd=attempt.path, stdout=log, stderr=log
        )
    assert done.returncode == 1, "it must not look completed"
    assert "job 77 exits" in attempt.log.read_text()
    assert not executed.exists()


def test_the_record_of_a_refused_job_is_no_job(desk: Desk) -> None:
    desk.slurm.faults.append(Fault.STILLBORN)
    with pytest.raises(SubmissionRefused):
        desk.launch()
    assert not list(desk.settings.home.runs.iterdir()), "nothing is left of it"


def test_an_intent_of_another_login_node_is_let_be_while_sbatch_may_try(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where scratch is mounted with locks that hold on one node only, and does not say so."""
    desk.slurm.faults.append(Fault.CONTROLLER_DIES)
    monkeypatch.setattr("socket.gethostname", lambda: "login1")
    with pytest.raises(SubmissionInDoubt):
        desk.launch()
    monkeypatch.setattr("socket.gethostname", lambda: "login2")
    desk.slurm = FakeScheduler(desk.clock, cluster_name="devcluster")
    (run_id,) = [link.name for link in desk.settings.home.runs.iterdir()]
    assert "sbatch may still be running on login1" in "\n".join(desk.look())
    assert desk.state(run_id)[0] is RunState.SUBMITTING
    desk.clock.advance(300)
    assert desk.state(run_id)[0] is RunState.CREATED


def test_however_many_runs_there_are_each_is_asked_once(desk: Desk) -> None:
    running = [desk.launch() for _ in range(3)]
    doubtful = []
    for _ in range(2):
        doubtful.append(_launched_in_doubt(desk)[1])
        desk.slurm.is_controller_down = False
    desk.slurm.forget(running[0].job_id)
    desk.slurm.forget(running[1].job_id)
    desk.slurm.calls.clear()
    desk.look()
    asked = [call for call in desk.slurm.calls if call != "cancel"]
    assert sorted(asked) == ["accounting", "queue"]
    assert {desk.seen(run_id).run.state for run_id in doubtful} == {RunState.RUNNING}


def test_an_intent_that_cannot_be_asked_about_holds_up_no_other_run(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """slurmdbd can refuse a question by name, where the intent is old, and answer one by id."""
    launched, (doubtful, _) = desk.launch(), _launched_in_doubt(desk)
    desk.slurm.is_controller_down = False
    desk.clock.advance(86_400)
    desk.slurm.end(launched.job_id, "COMPLETED", exit_code=0)
    desk.slurm.forget(launched.job_id)
    ask = desk.slurm.accounting

    def accounting(job_ids: Any, since: Any, *, job_names: Any = (), **more: Any) -> Any:
        if job_names:
            raise SchedulerUnavailable("sacct got no answer: Too wide of a date range in query")
        return ask(job_ids, since, **more)

    monkeypatch.setattr(desk.slurm, "accounting", accounting)
    monkeypatch.setattr(desk.slurm, "queue", lambda *_: [])
    said = "\n".join(desk.look())
    assert desk.state(launched.run_id)[0] is RunState.COMPLETED
    assert "Too wide of a date range in query; a submission stays in doubt" in said
    assert desk.seen(doubtful.path.name).run.state is not RunState.COMPLETED
    assert Journal(doubtful).history.last.is_open


@pytest.mark.parametrize("what", ["an end", "a bill", "an intent"])
def test_one_job_that_is_too_old_to_be_asked_about_holds_up_no_other(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A site may limit the time of a question; and a store's journal may hold any time."""
    old = desk.launch()
    if what == "an intent":
        _launched_in_doubt(desk)
        desk.slurm.is_controller_down = False
    elif what == "a bill":
        desk.slurm.end(old.job_id, "COMPLETED", exit_code=0)
        desk.slurm.is_accounting_down = True
        desk.look()
        desk.slurm.is_accounting_down = False
    desk.clock.advance(100 * 86_400)
    others = [desk.launch() for _ in range(2)]
    ask = desk.slurm.accounting

    def accounting(job_ids: Any, since: Any, **more: Any) -> Any:
        if desk.clock.now() - since > timedelta(days=60):
            raise SchedulerUnavailable("sacct got no answer: Too wide of a date range in query")
        return ask(job_ids, since, **more)

    monkeypatch.setattr(desk.slurm, "accounting", accounting)
    for each in others:
        desk.slurm.end(each.job_id, "COMPLETED", exit_code=0)
    for each in (old, *others):
        desk.slurm.forget(each.job_id)
    said = "\n".join(desk.look())
    assert [desk.state(each.run_id)[0] for each in others] == [RunState.COMPLETED] * 2
    assert "Too wide of a date range" in said
    desk.clock.advance(200)
    desk.look()
    assert all(desk.seen(each.run_id).run.cost_usd is not None for each in others)


def test_accounting_that_is_silent_is_not_asked_at_every_look(desk: Desk) -> None:
    launched = desk.launch()
    desk.slurm.end(launched.job_id, "COMPLETED", exit_code=0)
    desk.slurm.forget(launched.job_id)
    desk.slurm.is_accounting_down = True
    desk.slurm.calls.clear()
    assert all("ends may show late" in line for _ in range(3) for line in desk.look())
    assert desk.slurm.calls.count("accounting") == 1
    desk.slurm.is_accounting_down = False
    desk.clock.advance(121)
    assert desk.state(launched.run_id)[0] is RunState.COMPLETED


def test_a_job_that_still_writes_has_not_vanished(desk: Desk) -> None:
    """Whatever queue and accounting say."""
    launched = desk.launch()
    desk.slurm = FakeScheduler(desk.clock, cluster_name="devcluster")
    log = desk.dir_of(launched).attempt(1).log
    for _ in range(4):
        log.write_text("loss 0.1\n")
        now = desk.clock.now().timestamp()
        os.utime(log, (now, now))
        assert desk.seen(launched.run_id).attempts[0].cause is None
        desk.clock.advance(VANISHED_AFTER_S - 1)
    desk.clock.advance(2)
    assert desk.seen(launched.run_id).attempts[0].cause is None, "it was not looked for meanwhile"
    desk.clock.advance(VANISHED_AFTER_S)
    assert desk.seen(launched.run_id).attempts[0].cause is Cause.VANISHED


def test_the_jobs_own_exit_code_wins_over_that_of_accounting(desk: Desk) -> None:
    """sacct takes 128 off what is above 127: a failure with 203 would be "send me again"."""
    launched = desk.launch()
    line = '{"at": "%s", "event": "exited", "exit_code": 203}\n'
    events = desk.dir_of(launched).attempt(1).events
    events.write_text(line % to_text(desk.clock.now()))
    desk.slurm.end(launched.job_id, "FAILED", exit_code=75)
    desk.slurm.forget(launched.job_id)
    attempt = desk.seen(launched.run_id).attempts[0]
    assert (attempt.cause, attempt.exit_code) == (Cause.FAILED, 203)


def test_a_job_that_its_owner_renamed_is_cancelled_and_not_doubled(desk: Desk) -> None:
    launched = desk.launch()
    desk.slurm.rename(launched.job_id, "mytraining")
    desk.clock.advance(3600)
    run_dir = desk.dir_of(launched)
    with pytest.raises(InputError, match="still pending or running in Slurm"):
        desk.resume(run_dir)
    assert desk.cancel(run_dir) == launched.job_id
    assert desk.alive() == []


def test_an_old_id_under_a_strange_name_is_somebody_elses(desk: Desk) -> None:
    launched = desk.launch()
    desk.slurm = FakeScheduler(desk.clock, cluster_name="devcluster")
    desk.clock.advance(3600)
    other = desk.launch()
    assert other.job_id == launched.job_id
    desk.slurm.rename(other.job_id, "mytraining")
    assert desk.cancel(desk.dir_of(launched)) is None
    assert desk.alive() == [other.job_id]


def test_a_run_whose_scratch_is_not_there_is_not_over(desk: Desk) -> None:
    """It is unmounted, or that of another cluster with the same home, or was purged."""
    launched = desk.launch()
    assert desk.state(launched.run_id)[0] is RunState.RUNNING
    scratch = desk.folder / "scratch"
    scratch.rename(desk.folder / "away")
    assert desk.state(launched.run_id)[0] is RunState.RUNNING
    (desk.folder / "away").rename(scratch)
    shutil.rmtree(launched.run_dir)
    assert desk.state(launched.run_id)[0] is RunState.RUNNING, "Slurm has its job"


def test_a_purged_run_is_not_cancelled_from_another_cluster(desk: Desk) -> None:
    launched = desk.launch()
    shutil.rmtree(launched.run_dir)
    elsewhere = FakeScheduler(desk.clock, cluster_name="othercluster")
    with pytest.raises(SchedulerUnavailable, match="its job is on cluster devcluster"):
        end_jobs(
            desk.dir_of(launched),
            scheduler=elsewhere,
            clock=desk.clock,
            cluster="devcluster",
        )


def test_a_refusal_is_told_even_if_nothing_can_be_deleted(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object) -> None:
        raise StorageError("Directory not empty")

    monkeypatch.setattr("hpcflow.launch.run.discard_run", busy)
    desk.slurm.faults.append(Fault.REFUSED)
    with pytest.raises(SubmissionRefused, match="Invalid partition"):
        desk.launch()


def test_every_attempt_has_the_umask_of_whoever_asked_for_the_run(desk: Desk) -> None:
    before = os.umask(0o002)
    try:
        launched = desk.launch()
        os.umask(0o022)  # of cron, for one
        desk.slurm.end(launched.job_id, "PREEMPTED")
        desk.look()
        desk.resume(desk.dir_of(launched))
    finally:
        os.umask(before)
    for number in (1, 2):
        script = desk.dir_of(launched).attempt(number).script.read_text()
        assert "hpcflow_umask=0002 " in script
