"""Trials that are sent as Slurm arrays are jobs like any other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcflow.errors import SubmissionDelayed
from hpcflow.launch import array, plan
from hpcflow.launch.context import LaunchContext
from hpcflow.launch.resume import resume
from hpcflow.launch.run import Launched
from hpcflow.model.journal import Held, Intended
from hpcflow.requeue.tick import tick
from hpcflow.storage import journal
from hpcflow.storage.layout import RunDir
from hpcflow.storage.rundir import create_run
from hpcflow.storage.sweeps import write_array
from hpcflow.sweeps.state import SweepState
from hpcflow.testing.fake_scheduler import FakeScheduler, Fault
from tests.requeue.killing import Killed, Killer
from tests.sweeps.killing import assert_once, killed_at_each
from tests.sweeps.searched import Searched

ARRAY = "submit: array\nparallel: 5\nbudget: {trials: 12}\n"


@pytest.fixture
def desk(tmp_path: Path) -> Searched:
    return Searched(tmp_path)


def names(desk: Searched) -> list[str]:
    return sorted(job.job_id for job in desk.jobs())


def test_what_is_asked_for_at_once_is_one_array(desk: Searched) -> None:
    desk.begin(ARRAY)
    report = desk.round()
    assert report.asked == [0, 1, 2, 3, 4]
    assert sorted(report.sent.values()) == [f"1001_{task}" for task in range(5)]
    assert names(desk) == sorted(report.sent.values())
    assert desk.slurm.calls.count("submit") == 1
    (file,) = (desk.sweep_dir.path / "arrays").iterdir()
    jobs = json.loads(file.read_text())["jobs"]
    assert jobs == [f"{trial.current_runs[0]}:1" for trial in desk.progress.trials]
    for number in range(5):
        assert desk.run_dir(number).attempt(1).script.exists()
        intent = journal.read(desk.run_dir(number))[0]
        assert isinstance(intent, Intended)
        assert intent.account == "physics"


def test_each_task_is_an_attempt_of_its_own_run(desk: Searched) -> None:
    desk.begin(ARRAY)
    desk.round()
    desk.completes(3, 0.5)
    desk.slurm.end(desk.job(1), "PREEMPTED")
    desk.round()
    assert desk.states()[3] == "complete"
    assert desk.run_dir(1).attempt_numbers() == [1, 2], "it is sent again by itself"
    assert desk.seen(desk.trial(1).current_runs[0]).attempts[0].job_id == "1001_1"
    desk.cancel(desk.run_dir(2))
    desk.round()
    assert desk.states()[2] == "failed"
    assert desk.running() == [0, 1, 4, 5, 6]
    while desk.round().state is not SweepState.OVER:
        for number in desk.running():
            desk.completes(number, 0.1)
    assert len(desk.states()) == 12


def test_an_array_is_cut_to_what_the_cluster_takes(desk: Searched) -> None:
    desk.slurm = FakeScheduler(desk.clock, cluster_name="devcluster", max_array_size=2)
    desk.begin(ARRAY)
    desk.round()
    assert names(desk) == ["1001_0", "1001_1", "1003_0", "1003_1", "1005"]


def test_an_array_is_cut_to_what_the_user_may_submit(desk: Searched) -> None:
    desk.slurm = FakeScheduler(desk.clock, cluster_name="devcluster", max_jobs=3)
    desk.begin(ARRAY)
    report = desk.round()
    assert (len(report.sent), len(report.problems)) == (2, 1)
    desk.clock.advance(600)
    desk.round()
    assert len(desk.alive()) == 3
    for number in (0, 1):
        desk.completes(number, 0.5)
    for _ in range(4):
        desk.clock.advance(600)
        desk.round()
    assert len(desk.alive()) == 3
    assert desk.running()[:3] == [2, 3, 4]


def test_where_slurm_is_full_it_is_asked_for_one_and_not_for_all(desk: Searched) -> None:
    desk.slurm = FakeScheduler(desk.clock, cluster_name="devcluster", max_jobs=0)
    desk.begin(ARRAY)
    desk.round()
    tried = len(list(desk.sweep_dir.arrays.iterdir()))
    for _ in range(3):
        desk.round()
    assert len(list(desk.sweep_dir.arrays.iterdir())) == tried


@pytest.mark.parametrize("hangs_s", [100, 400])
def test_an_array_is_not_sent_if_others_may_withdraw_its_attempts_meanwhile(
    desk: Searched, monkeypatch: pytest.MonkeyPatch, hangs_s: float
) -> None:
    """The file system hangs between the intents and sbatch, and the daemon makes its round."""
    desk.begin(ARRAY)

    def slowly(*given: Any) -> None:
        desk.clock.advance(hangs_s)
        with desk.around() as other:
            tick(other)
        write_array(*given)

    monkeypatch.setattr(array, "write_array", slowly)
    report = desk.round()
    assert "is too slow" in "".join(report.problems)
    assert {job.job_name[-2:] for job in desk.jobs()} <= {":2"}, "the first may be withdrawn"
    monkeypatch.setattr(array, "write_array", write_array)
    for _ in range(3):
        desk.clock.advance(700)
        desk.round()
    assert len(desk.alive()) == 5
    assert desk.running() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("harm", ["update", "purge"])
def test_a_run_that_cannot_be_in_an_array_does_not_stop_the_others(
    desk: Searched, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    """A round is killed while it makes the runs. Then hpcflow is updated, or a file is purged."""
    desk.begin(ARRAY)
    made: list[RunDir] = []

    def killed(*given: Any, **named: Any) -> None:
        made.append(create_run(*given, **named))
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(plan, "create_run", killed)
        with pytest.raises(Killed):
            desk.round()
    if harm == "update":
        monkeypatch.setattr(array, "installed_sum", lambda: "0" * 64)
    else:
        next(made[0].runtime.rglob("*.py")).unlink()
    desk.round()
    assert len(desk.alive()) == 5


def test_a_run_that_is_held_meanwhile_is_not_sent(
    desk: Searched, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.begin(ARRAY)
    made: list[RunDir] = []

    def held(*given: Any, **named: Any) -> RunDir:
        run_dir = create_run(*given, **named)
        if not made:
            journal.append(run_dir, Held(at=desk.clock.now(), by="ada"))
        made.append(run_dir)
        return run_dir

    monkeypatch.setattr(plan, "create_run", held)
    desk.round()
    assert made[0].path.name not in {job.job_name.split(":")[0] for job in desk.jobs()}


def _resume(desk: Searched, run_dir: RunDir, *overrides: str) -> Launched:
    context = LaunchContext(desk.settings, desk.site, desk.scheduler, desk.clock)
    return resume(context, run_dir, overrides=overrides)


def test_what_a_person_has_changed_in_a_made_run_is_kept(desk: Searched) -> None:
    desk.slurm = FakeScheduler(
        desk.clock, cluster_name="devcluster", max_jobs=0, min_job_age_s=10**7
    )
    desk.begin(ARRAY)
    desk.round()
    run_dir = desk.run_dir(4)
    with pytest.raises(SubmissionDelayed):
        _resume(desk, run_dir, "resources.time_limit=5m")
    desk.slurm.max_jobs = None
    for _ in range(3):
        desk.clock.advance(900)
        desk.round()
    assert len(desk.alive()) == 5
    assert "#SBATCH --time=0-00:05:00" in run_dir.attempt(1).script.read_text()


def test_an_array_that_is_refused_halts_the_sweep(desk: Searched) -> None:
    desk.begin(ARRAY)
    desk.slurm.faults.append(Fault.REFUSED)
    report = desk.round()
    assert report.state is SweepState.HALTED
    assert desk.states() == ["failed"] * 5
    assert desk.alive() == []


def test_an_array_that_sbatch_sent_twice_and_was_refused_the_second_time_is_found(
    desk: Searched,
) -> None:
    desk.begin(ARRAY)
    desk.slurm.faults.append(Fault.REFUSED_TWICE)
    report = desk.round()
    assert sorted(report.sent.values()) == [f"1001_{task}" for task in range(5)]
    for _ in range(3):
        desk.clock.advance(400)
        desk.round()
    assert len(desk.alive()) == 5
    assert desk.slurm.calls.count("submit") == 1


def test_a_refusal_of_which_slurm_keeps_a_record_is_a_refusal(desk: Searched) -> None:
    desk.begin(ARRAY)
    desk.slurm.faults.append(Fault.STILLBORN)
    assert desk.round().state is SweepState.HALTED
    assert desk.alive() == []


def test_a_job_of_a_run_that_slurm_did_not_take_as_a_task_is_found_by_its_own_name(
    desk: Searched,
) -> None:
    desk.begin(ARRAY)
    desk.slurm.faults.append(Fault.STILLBORN)
    desk.round()
    desk.slurm.faults.append(Fault.LOST_ANSWER)
    run_dir = desk.run_dir(0)
    launched = _resume(desk, run_dir)
    assert desk.alive() == [launched.job_id]


@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.LOST_REQUEST])
def test_an_array_in_doubt_is_looked_up_by_the_names_of_its_tasks(
    desk: Searched, fault: Fault
) -> None:
    desk.begin(ARRAY)
    desk.slurm.faults.append(fault)
    desk.round()
    for _ in range(4):
        desk.clock.advance(200)
        desk.round()
    assert len(desk.alive()) == 5
    assert desk.running() == [0, 1, 2, 3, 4]


def test_killed_anywhere_no_task_is_lost_or_sent_twice(tmp_path: Path, killer: Killer) -> None:
    for moment, desk in killed_at_each(killer, tmp_path):
        desk.begin("submit: array\nparallel: 3\nbudget: {trials: 4}\n")
        with killer.armed():
            desk.round()
        for _ in range(4):
            desk.clock.advance(400)
            desk.round()
        assert desk.running() == [0, 1, 2], f"killed at moment {moment}"
        assert_once(desk, moment)
    assert moment > 20
