"""What goes wrong around a sweep: files lost, damaged, late; clocks; others in between."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from hpcflow.errors import StorageError
from hpcflow.launch.context import LaunchContext
from hpcflow.model.journal import Held, Released
from hpcflow.model.sweep_records import Asked, GoOn, Halted, Read, StopRequested, Told
from hpcflow.sites.loader import load_site
from hpcflow.storage import journal
from hpcflow.storage.sweeps import append, read_sweep
from hpcflow.sweeps import closing
from hpcflow.sweeps.rounds import tick_all
from hpcflow.sweeps.state import SweepState
from hpcflow.sweeps.trials import TrialRuns
from hpcflow.sweeps.view import look
from hpcflow.testing.fake_scheduler import FakeScheduler, Fault
from tests.sweeps.searched import Searched

NO_RETRY = "retry: {failures: 0}\n"


@pytest.fixture
def desk(tmp_path: Path) -> Searched:
    desk = Searched(tmp_path)
    desk.config.write_text(desk.config.read_text() + NO_RETRY)
    return desk


def test_on_another_cluster_a_directory_that_is_not_there_says_nothing(desk: Searched) -> None:
    desk.begin("parallel: 1")
    desk.round()
    desk.end(desk.job(0), "PREEMPTED")
    desk.slurm.cluster_name, here = "othercluster", desk.slurm.cluster_name
    away = desk.run_dir(0).path
    away.rename(away.with_name("away"))
    with desk.around() as around:
        tick_all(around, only=desk.sweep_dir)
    away.with_name("away").rename(away)
    desk.slurm.cluster_name = here
    desk.round()
    assert desk.states() == ["running"]


def test_a_run_directory_that_is_purged_is_a_failed_trial(desk: Searched) -> None:
    desk.begin()
    desk.round()
    desk.reports(0, 50, 0.5)
    desk.round()
    job = desk.job(0)
    shutil.rmtree(desk.run_dir(0).path)
    desk.slurm.end(job, "NODE_FAIL")
    for _ in range(3):
        desk.round()
    assert desk.states()[0] == "failed"
    assert desk.trial(0).points()[50] == 0.5, "what it had reported is known"


def test_a_run_that_was_made_is_never_made_again_though_its_directory_is_gone(
    desk: Searched,
) -> None:
    desk.begin()
    desk.round()
    run_dir, trial = desk.run_dir(0), desk.trial(0)
    jobs = len(desk.jobs())
    shutil.rmtree(run_dir.path)
    context = LaunchContext(desk.settings, desk.site, desk.scheduler, desk.clock)
    runs = TrialRuns(look(desk.sweep_dir)[0], context)
    assert runs.send(trial, 0, run_dir.path.name) is None
    assert len(desk.jobs()) == jobs
    assert not run_dir.path.exists()


def test_jobs_wait_in_the_queue_and_count_as_under_way(desk: Searched) -> None:
    desk.slurm = FakeScheduler(desk.clock, cluster_name="devcluster", starts_at_once=False)
    desk.begin()
    desk.round()
    desk.round()
    assert desk.running() == [0, 1, 2, 3]


def test_what_an_earlier_attempt_said_is_older_whenever_it_is_read(desk: Searched) -> None:
    desk.begin()
    desk.round()
    desk.reports(0, 30, 0.30)
    desk.round()
    desk.reports(0, 30, 0.31)  # says nothing new of its progress
    desk.end(desk.job(0), "PREEMPTED", checkpoint=5)
    desk.round()
    desk.reports(0, 60, 0.6)
    desk.event(0, "finished", train_step=100, metrics={"accuracy": 0.95})
    desk.round()
    desk.reports(0, 30, 0.32, attempt=1)  # a file system shows it late
    desk.slurm.end(desk.job(0), "COMPLETED", exit_code=0)
    desk.round()
    assert desk.trial(0).values == [0.95]


def test_all_repeats_must_report(desk: Searched) -> None:
    desk.begin("repeats: 2\nparallel: 1\nbudget: {trials: 1}")
    desk.round()
    desk.completes(0, 0.9)
    desk.slurm.end(desk.job(0, 1), "COMPLETED", exit_code=0)
    desk.round()
    assert desk.states() == ["failed"]


def test_a_run_that_somebody_holds_is_not_sent(desk: Searched) -> None:
    desk.begin("parallel: 1")
    desk.slurm.faults.append(Fault.DELAYED)
    desk.round()
    journal.append(desk.run_dir(0), Held(at=desk.clock.now(), by="ada"))
    for _ in range(3):
        desk.clock.advance(600)
        desk.round()
    assert desk.alive() == []
    journal.append(desk.run_dir(0), Released(at=desk.clock.now(), by="ada"))
    desk.round()
    assert len(desk.alive()) == 1


def test_a_grid_that_was_stopped_with_its_trials_has_all_of_them_later(desk: Searched) -> None:
    desk.begin("sampler: grid\nbudget: {}\nparallel: 2\nspace: {a: {choices: [w, x, y, z]}}\n")
    desk.round()
    append(desk.sweep_dir, [StopRequested(at=desk.clock.now(), by="ada", cancel=True)])
    for _ in range(2):
        desk.round()
    assert desk.progress.state is SweepState.STOPPED
    desk.resume_sweep()
    while desk.round().state is not SweepState.OVER:
        for number in desk.running():
            desk.completes(number, 0.5)
    done = [trial.params["a"] for trial in desk.progress.trials if not trial.is_void]
    assert sorted(done) == ["w", "x", "y", "z"]


def test_each_to_start_from_is_trained_once_however_it_is_rounded(desk: Searched) -> None:
    desk.begin(
        "start_from: [{lr: 0.30000000000000004}, {lr: 0.2}, {}]\n"
        "space: {lr: {low: 0.1, high: 1.0, step: 0.1}}\nbudget: {trials: 4}"
    )
    desk.round()
    assert [trial.params["lr"] for trial in desk.progress.trials[:2]] == [0.3, 0.2]
    assert [trial.start for trial in desk.progress.trials] == [0, 1, 2, None]


def test_the_first_trials_are_those_to_start_from_also_after_they_were_stopped(
    desk: Searched,
) -> None:
    desk.begin("start_from: [{lr: 0.5}, {lr: 0.25}, {lr: 0.125}]\nparallel: 2")
    desk.round()
    desk.completes(1, 0.5)
    desk.round()
    append(desk.sweep_dir, [StopRequested(at=desk.clock.now(), by="ada", cancel=True)])
    for _ in range(2):
        desk.round()
    desk.resume_sweep()
    desk.round()
    desk.round()
    trials = [trial for trial in desk.progress.trials if not trial.is_void]
    assert sorted(trial.params["lr"] for trial in trials[:3]) == [0.125, 0.25, 0.5]
    assert [trial.how for trial in trials] == ["start_from"] * 3


def test_what_has_come_to_its_end_counts_though_the_sweep_is_cancelled(desk: Searched) -> None:
    desk.begin()
    desk.round()
    desk.completes(2, 0.9)
    append(desk.sweep_dir, [StopRequested(at=desk.clock.now(), by="ada", cancel=True)])
    desk.round()
    assert desk.states() == ["failed", "failed", "complete", "failed"]
    assert [trial.is_void for trial in desk.progress.trials] == [True, True, False, True]


def test_one_that_never_reports_what_others_do_has_failed_alone(desk: Searched) -> None:
    desk.begin()
    desk.round()
    desk.completes(0, 0.5)
    desk.slurm.end(desk.job(1), "COMPLETED", exit_code=0)
    assert desk.round().state is SweepState.RUNNING
    assert desk.states()[:2] == ["complete", "failed"]


@pytest.mark.parametrize("submit", ["single", "array"])
def test_whoever_made_a_run_and_was_killed_before_the_home_knew_of_it_made_it(
    desk: Searched, submit: str
) -> None:
    desk.begin(f"submit: {submit}\nparallel: 2")
    desk.slurm.faults += [Fault.UNAVAILABLE]
    desk.round()
    assert desk.alive() == []
    made = desk.run_dir(0).path
    shutil.rmtree(desk.settings.home.runs / made.name)
    desk.round()
    assert desk.run_dir(0).path == made
    assert len(desk.alive()) == 2


def test_what_two_rounds_on_two_machines_have_both_written_counts_once(desk: Searched) -> None:
    desk.begin()
    desk.round()
    now, run = desk.clock.now(), desk.trial(0).current_runs[0]
    for accuracy, outcome in ((0.5, "complete"), (0.7, "pruned")):
        read = {"trial": 0, "run": run, "attempt": 1, "offset_bytes": 9, "points": [(50, accuracy)]}
        told = {"trial": 0, "outcome": outcome, "values": [accuracy]}
        append(desk.sweep_dir, [Read(at=now, **read), Told(at=now, **told)])
    assert desk.trial(0).points() == {50: 0.5}
    assert desk.states()[0] == "complete"
    assert len(desk.progress.told_in_order) == 1


@pytest.mark.parametrize("submit", ["single", "array"])
def test_a_full_scratch_is_no_fault_of_a_trial(desk: Searched, submit: str) -> None:
    desk.begin(f"submit: {submit}")
    scratch = Path(desk.settings.environ["SCRATCH"])
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.write_text("no folder")  # what cannot be made looks like that, too
    report = desk.round()
    assert report.state is SweepState.RUNNING
    assert str(scratch) in report.problems[0]
    scratch.unlink()
    desk.round()
    assert desk.states() == ["running"] * 4
    assert len(desk.alive()) == 4


@pytest.mark.parametrize("asks", [True, False])
def test_from_another_cluster_nothing_is_decided(desk: Searched, asks: bool) -> None:
    desk.begin("parallel: 2")
    desk.round()
    one_more(desk)
    before = desk.sweep_dir.journal.read_text()
    desk.slurm.cluster_name, here = "othercluster", desk.slurm.cluster_name
    with desk.around() as around:
        reports = tick_all(around, only=desk.sweep_dir if asks else None)
    assert [len(report.problems) for report in reports] == ([1] if asks else [])
    assert desk.sweep_dir.journal.read_text() == before
    desk.slurm.cluster_name = here
    desk.round()
    assert len(desk.alive()) == 3


def test_the_site_of_a_sweep_that_is_at_rest_may_be_gone(desk: Searched) -> None:
    desk.begin()
    append(desk.sweep_dir, [StopRequested(at=desk.clock.now(), by="ada")])
    with desk.around() as around:
        gone = replace(around, find_site=lambda name: load_site(name, search=[]))
        (report,) = tick_all(gone)
    assert report.problems == []


def test_what_was_asked_for_and_not_sent_is_not_begun_after_the_deadline(desk: Searched) -> None:
    desk.begin("budget: {deadline: 10m}\nparallel: 1")
    one_more(desk)
    desk.clock.advance(600)
    for _ in range(2):
        desk.round()
        assert desk.alive() == []
        desk.clock.advance(3600)
    assert desk.round().state is SweepState.OVER
    assert desk.alive() == []
    assert desk.trial(0).is_void


def test_what_waits_when_the_sweep_is_halted_is_not_begun_and_it_comes_to_rest(
    desk: Searched,
) -> None:
    desk.begin("parallel: 2")
    desk.round()
    one_more(desk)
    halted = Halted(at=desk.clock.now(), why="three have failed", next_action="look")
    append(desk.sweep_dir, [halted])
    desk.round()
    assert len(desk.alive()) == 2
    for number in (0, 1):
        desk.completes(number, 0.5)
    desk.round()
    assert desk.progress.is_at_rest
    desk.resume_sweep()
    assert desk.round().asked == [3, 4]


@pytest.mark.parametrize("submit", ["single", "array"])
@pytest.mark.parametrize("why", ["halted", "stopped", "deadline"])
def test_what_slurm_did_not_take_is_not_begun_by_anybody_later(
    desk: Searched, submit: str, why: str
) -> None:
    desk.slurm = FakeScheduler(desk.clock, cluster_name="devcluster", max_jobs=0)
    desk.begin(f"submit: {submit}\nparallel: 3\nbudget: {{deadline: 10m}}")
    desk.round()
    if why == "halted":
        halted = Halted(at=desk.clock.now(), why="three have failed", next_action="look")
        append(desk.sweep_dir, [halted])
    elif why == "stopped":
        append(desk.sweep_dir, [StopRequested(at=desk.clock.now(), by="ada")])
    else:
        desk.clock.advance(600)
    desk.slurm.max_jobs = 10
    for _ in range(4):
        desk.round()
        assert desk.alive() == []
        desk.clock.advance(3600)
    state = {"halted": SweepState.HALTED, "stopped": SweepState.STOPPED}.get(why, SweepState.OVER)
    assert desk.progress.state is state
    assert desk.progress.is_at_rest
    assert all(trial.is_void for trial in desk.progress.trials)
    assert desk.slurm.calls.count("cancel") == 0, "there was nothing to be cancelled"


def test_after_a_stop_nothing_is_trained_anew(desk: Searched) -> None:
    desk.begin("retries: 3")
    desk.round()
    append(desk.sweep_dir, [StopRequested(at=desk.clock.now(), by="ada")])
    desk.slurm.end(desk.job(0), "FAILED", exit_code=1)
    desk.round()
    assert str(desk.trial(0).told).count("the sweep was stopped")
    assert len(desk.alive()) == 3


def test_of_several_repeats_one_that_fails_takes_its_own_time_alone(desk: Searched) -> None:
    desk.config.write_text(desk.config.read_text().replace("10m", "60m, gpus_per_node: 1"))
    desk.begin("budget: {gpu_hours: 2.5}\nretries: 1\nrepeats: 2")
    assert desk.round().asked == [0]
    desk.clock.advance(20 * 60)
    desk.slurm.end(desk.job(0), "FAILED", exit_code=1)
    desk.round()
    assert len(desk.alive()) == 2


def test_when_the_partition_is_gone_what_runs_is_still_collected(desk: Searched) -> None:
    desk.config.write_text(desk.config.read_text().replace("account:", "partition: gpu, account:"))
    desk.begin("retries: 1")
    desk.round()
    others = {name: each for name, each in desk.site.partitions.items() if name != "gpu"}
    desk.site = desk.site.model_copy(update={"partitions": others, "default_partition": None})
    desk.slurm.end(desk.job(0), "FAILED", exit_code=1)
    for number in (1, 2, 3):
        desk.completes(number, 0.5)
    for _ in range(3):
        desk.round()
    assert desk.states()[1:4] == ["complete"] * 3
    assert desk.progress.state is SweepState.HALTED
    assert "gpu" in str(desk.progress.halted)


def test_values_whose_sum_is_no_number_have_a_mean(desk: Searched) -> None:
    desk.begin("repeats: 2\nparallel: 1\nbudget: {trials: 1}")
    desk.round()
    for repeat in (0, 1):
        desk.completes(0, 1.7e308, repeat=repeat)
    desk.round()
    assert desk.trial(0).values == [1.7e308]


def test_nothing_is_trained_anew_beyond_the_budget(desk: Searched) -> None:
    desk.config.write_text(desk.config.read_text().replace("10m", "60m, gpus_per_node: 1"))
    desk.begin("budget: {gpu_hours: 1.5}\nretries: 3")
    assert desk.round().asked == [0]
    desk.clock.advance(20 * 60)
    desk.slurm.end(desk.job(0), "FAILED", exit_code=1)
    desk.round()
    assert len(desk.alive()) == 1, "half an hour is left, and it is needed for nothing else"
    desk.clock.advance(20 * 60)
    desk.slurm.end(desk.job(0), "FAILED", exit_code=1)
    desk.round()
    told = desk.trial(0).told
    assert told is not None
    assert str(told.why).endswith("; a retry may exceed the budget of 1.5 GPU hours")
    assert desk.alive() == []


def one_more(desk: Searched) -> None:
    """A trial was asked for, and a round was killed before it was sent."""
    number = len(desk.progress.trials)
    asked = Asked(
        at=desk.clock.now(), trial=number, params={"lr": 0.5}, runs=["x-20260301-aaaaaaaa"]
    )
    append(desk.sweep_dir, [asked])


def test_what_was_asked_for_and_not_made_is_not_begun_after_a_stop(desk: Searched) -> None:
    desk.begin("parallel: 2")
    desk.round()
    one_more(desk)
    append(desk.sweep_dir, [StopRequested(at=desk.clock.now(), by="ada")])
    desk.round()
    assert len(desk.alive()) == 2
    assert desk.states()[2] == "failed"


def test_who_lets_it_go_on_from_a_slow_clock_is_heard(desk: Searched) -> None:
    desk.begin()
    desk.round()
    for number in range(3):
        desk.slurm.end(desk.job(number), "FAILED", exit_code=1)
    assert desk.round().state is SweepState.HALTED
    desk.clock.advance(-100)
    desk.resume_sweep()
    desk.clock.advance(100)
    assert desk.round().state is SweepState.RUNNING


def test_what_others_write_in_the_middle_of_a_round_is_not_written_over(
    desk: Searched, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.begin("budget: {trials: 1}")
    desk.round()
    desk.completes(0, 0.5)

    def resumed(*_: object) -> list[object]:
        monkeypatch.setattr(closing, "failures_in_a_row", lambda _: [])
        record = GoOn(at=desk.clock.now(), by="ada", budget={"trials": 3})
        append(desk.sweep_dir, [record])
        return []

    monkeypatch.setattr(closing, "failures_in_a_row", resumed)
    assert desk.round().state is not SweepState.OVER
    assert desk.round().asked == [1, 2]


def test_what_one_sweep_holds_up_holds_up_no_other(desk: Searched) -> None:
    desk.begin()
    broken = desk.sweep_dir
    text = broken.sweep_json.read_text().replace('"parallel": 4', '"parallel": 0')
    broken.sweep_json.write_text(text)
    desk.begin("name: other")
    assert desk.round().asked == [0, 1, 2, 3]
    with pytest.raises(StorageError, match="is damaged"):
        read_sweep(broken)


def test_beside_one_that_a_newer_hpcflow_started_no_other_of_its_name_is(desk: Searched) -> None:
    desk.begin()
    text = desk.sweep_dir.sweep_json.read_text()
    desk.sweep_dir.sweep_json.write_text(text.replace('"format": 1', '"format": 99'))
    with pytest.raises(StorageError, match="newer hpcflow"):
        desk.begin()
