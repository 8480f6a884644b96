"""What a round of a sweep does, from the first trial to the last, and whatever comes between."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcflow.model.state import Cause, RunState
from hpcflow.model.sweep_records import StopRequested
from hpcflow.storage import journal
from hpcflow.storage.sweeps import append
from hpcflow.sweeps.state import SweepState
from hpcflow.testing.fake_scheduler import Fault
from tests.sweeps.searched import Searched

NO_RETRY = "retry: {failures: 0}\n"


@pytest.fixture
def desk(tmp_path: Path) -> Searched:
    desk = Searched(tmp_path)
    desk.config.write_text(desk.config.read_text() + NO_RETRY)
    return desk


def test_a_sweep_from_its_first_trial_to_its_last(desk: Searched) -> None:
    desk.begin()
    assert desk.round().asked == [0, 1, 2, 3]
    assert len(desk.alive()) == 4
    assert desk.round().asked == [], "there is no room"
    desk.completes(2, 0.5)
    report = desk.round()
    assert (report.told, report.asked) == ([2], [4]), "a slot waits for nobody"
    for number in range(8):
        if number != 2:
            if number not in desk.running():
                desk.round()
            desk.completes(number, number / 10)
    assert desk.round().state is SweepState.OVER
    assert desk.states() == ["complete"] * 8
    best = desk.progress.best()
    assert best is not None
    assert (best.number, best.values) == (7, [0.7])
    assert len({trial.params["lr"] for trial in desk.progress.trials}) == 8
    assert desk.round().asked == [], "what is over stays over"


def test_a_trial_gets_its_values_in_every_way(desk: Searched) -> None:
    desk.config.write_text(
        desk.config.read_text().replace('["true"]', '[train, "{{ params.lr }}"]')
        + "params: {layers: [64, 64], depth: 3}\n"
    )
    desk.begin("start_from: [{lr: 0.125}]")
    desk.round()
    run_dir = desk.run_dir(0)
    script = run_dir.attempt(1).script.read_text()
    assert "0.125" in script
    assert "export HPCFLOW_PARAM_lr=0.125" in script
    assert "export HPCFLOW_PARAM_depth=3" in script
    assert f"export HPCFLOW_SWEEP={desk.sweep_dir.sweep_id}" in script
    assert "export HPCFLOW_TRIAL=0" in script
    assert '"lr": 0.125' in run_dir.params_json.read_text()


def test_a_preempted_trial_goes_on_and_is_still_one_trial(desk: Searched) -> None:
    desk.begin()
    desk.round()
    run = desk.trial(0).current_runs[0]
    desk.end(desk.job(0), "PREEMPTED", checkpoint=10)
    desk.round()
    assert desk.trial(0).current_runs == [run]
    assert desk.states()[0] == "running"
    assert desk.run_dir(0).attempt_numbers() == [1, 2]
    desk.completes(0, 0.9)
    desk.round()
    assert desk.trial(0).values == [0.9]


def test_a_failed_run_is_trained_anew_as_often_as_is_asked_for(desk: Searched) -> None:
    desk.begin("retries: 1")
    desk.round()
    first = desk.trial(0).current_runs
    desk.slurm.end(desk.job(0), "FAILED", exit_code=1)
    desk.round()
    second = desk.trial(0).current_runs
    assert second != first
    assert desk.states()[0] == "running"
    assert desk.running() == [0, 1, 2, 3]
    desk.slurm.end(desk.job(0), "FAILED", exit_code=1)
    desk.round()
    assert desk.states()[0] == "failed"
    assert desk.trial(0).runs == [[*first, *second]]
    told = desk.trial(0).told
    assert told is not None
    assert told.why == f"its run failed: failed ({second[0]})"


def test_a_run_that_its_owner_cancels_is_a_failed_trial(desk: Searched) -> None:
    desk.begin("retries: 3")
    desk.round()
    desk.cancel(desk.run_dir(1))
    assert desk.round().told == [1]
    assert "was cancelled" in str(desk.trial(1).told)


def test_when_all_trials_fail_no_more_are_sent(desk: Searched) -> None:
    desk.begin()
    desk.round()
    for number in range(3):
        desk.slurm.end(desk.job(number), "FAILED", exit_code=1)
    report = desk.round()
    assert report.state is SweepState.HALTED
    assert report.asked == []
    (said,) = report.said
    assert "3 trials in a row have failed" in said
    assert f"hpcflow logs {desk.trial(2).current_runs[0]}" in said
    assert f"hpcflow sweep resume {desk.sweep_dir.sweep_id}" in said
    desk.resume_sweep()
    assert desk.round().asked == [4, 5, 6]


def test_a_metric_that_is_never_reported_is_said_after_the_first_trial(desk: Searched) -> None:
    desk.begin()
    desk.round()
    desk.event(0, "finished", train_step=3, metrics={"accurracy": 0.5, "loss": 1.0})
    desk.slurm.end(desk.job(0), "COMPLETED", exit_code=0)
    report = desk.round()
    assert report.state is SweepState.HALTED
    (said,) = report.said
    assert "trial 0 completed but never reported 'accuracy'" in said
    assert "it reported accurracy, loss; did you mean 'accurracy'?" in said
    assert desk.states() == ["failed", "running", "running", "running"]


@pytest.mark.parametrize("last", [None, float("nan")])
def test_a_trial_that_ends_with_no_number_has_failed(desk: Searched, last: float | None) -> None:
    desk.begin()
    desk.round()
    desk.reports(0, 50, 0.5)
    desk.completes(0, last)
    desk.round()
    assert desk.states()[0] == "failed"
    assert "its last accuracy was not finite" in str(desk.trial(0).told)


def test_what_is_not_promising_is_ended_and_saves_nothing_more(desk: Searched) -> None:
    desk.begin("pruner: {type: median, startup_trials: 2, warmup: 20}")
    desk.round()
    for number, value in ((0, 0.8), (1, 0.9)):
        desk.reports(number, 50, value)
        desk.completes(number, value)
    desk.round()
    desk.reports(2, 10, 0.1)
    assert desk.round().pruned == [], "it is warming up"
    desk.reports(2, 30, 0.1)
    desk.reports(3, 30, 0.88)
    job = desk.job(2)
    report = desk.round()
    assert report.pruned == [2]
    assert (desk.run_dir(2).cancel.read_text(), job in desk.alive()) == ("pruned\n", False)
    desk.reports(2, 100, 1.0)
    desk.round()
    trial = desk.trial(2)
    assert trial.values == [0.1], "what it reports later changes nothing"
    assert trial.is_closed
    run = desk.seen(trial.current_runs[0]).run
    assert (run.state, run.cause) == (RunState.CANCELLED, Cause.PRUNED)
    records = [r for r in journal.read(desk.run_dir(2)) if r.record == "cancel_requested"]
    assert [r.why for r in records] == ["trial 2 of its sweep: pruned, at percent 20"]


def test_a_train_step_that_is_reported_twice_counts_once(desk: Searched) -> None:
    desk.begin("pruner: {type: threshold, lower: 0.3}")
    desk.round()
    desk.reports(0, 10, 0.5)
    desk.round()
    desk.end(desk.job(0), "PREEMPTED", checkpoint=5)
    desk.round()
    desk.reports(0, 10, 0.1)
    desk.reports(0, 9, 0.1)
    assert desk.round().pruned == []
    assert desk.trial(0).points()[10] == 0.5
    desk.reports(0, 11, 0.1)
    assert desk.round().pruned == [0]


def test_no_number_on_the_way_ends_a_trial_where_there_is_a_pruner(desk: Searched) -> None:
    desk.begin("pruner: {type: asha, min_resource: 10}")
    desk.round()
    desk.reports(0, 40, None)
    assert desk.round().pruned == [0]
    assert desk.states()[0] == "pruned"


def test_a_trial_that_has_finished_is_not_ended_any_more(desk: Searched) -> None:
    desk.begin("pruner: {type: threshold, lower: 0.3}")
    desk.round()
    desk.reports(0, 100, 0.1)
    desk.event(0, "finished", train_step=100, metrics={"accuracy": 0.1})
    assert desk.round().pruned == []
    desk.slurm.end(desk.job(0), "COMPLETED", exit_code=0)
    desk.round()
    assert (desk.states()[0], desk.trial(0).values) == ("complete", [0.1])


def test_repeats_are_runs_with_seeds_of_their_own_and_their_mean_counts(desk: Searched) -> None:
    desk.config.write_text(desk.config.read_text() + "params: {seed: 7}\n")
    desk.begin("repeats: 3\nparallel: 1")
    desk.round()
    assert len(desk.alive()) == 3
    seeds = [desk.run_dir(0, repeat).params_json.read_text() for repeat in range(3)]
    assert [f'"seed": {7 + n}' in text for n, text in enumerate(seeds)] == [True] * 3
    for repeat, value in enumerate((0.1, 0.2)):
        desk.completes(0, value, repeat=repeat)
    assert desk.round().told == []
    desk.completes(0, 0.6, repeat=2)
    desk.round()
    assert desk.trial(0).values == pytest.approx([0.3])


def test_when_one_repeat_fails_the_others_are_ended(desk: Searched) -> None:
    desk.begin("repeats: 2\nparallel: 1\nbudget: {trials: 1}")
    desk.round()
    desk.slurm.end(desk.job(0, 1), "FAILED", exit_code=1)
    desk.round()
    assert desk.states() == ["failed"]
    desk.round()
    assert desk.alive() == []
    assert desk.round().state is SweepState.OVER


def test_a_grid_has_every_combination_once(desk: Searched) -> None:
    desk.begin(
        "sampler: grid\nbudget: {}\nspace:\n  a: {choices: [x, y]}\n"
        "  b: {low: 1, high: 3, when: {a: x}}\n"
    )
    for _ in range(4):
        desk.round()
        for number in desk.running():
            desk.completes(number, 0.5)
    assert desk.round().state is SweepState.OVER
    params = [tuple(trial.params.items()) for trial in desk.progress.trials]
    points = {(("a", "x"), ("b", b)) for b in (1, 2, 3)} | {(("a", "y"),)}
    assert sorted(map(str, params)) == sorted(map(str, points))


@pytest.mark.parametrize("sampler", ["random", "tpe", "gp", "cmaes", "qmc"])
def test_every_sampler_asks_until_the_end(desk: Searched, sampler: str) -> None:
    desk.begin(
        f"sampler: {{type: {sampler}, seed: 3}}\nbudget: {{trials: 14}}\n"
        "space:\n  lr: {low: 1.0e-4, high: 1.0, log: true}\n  depth: {low: 1, high: 8}\n"
    )
    while desk.round().state is not SweepState.OVER:
        for number in desk.running():
            trial = desk.trial(number)
            desk.completes(number, 1.0 - abs(trial.params["depth"] - 4) / 10)
    assert desk.states() == ["complete"] * 14
    values = {tuple(trial.params.values()) for trial in desk.progress.trials}
    assert len(values) >= 12
    assert all(1e-4 <= trial.params["lr"] <= 1.0 for trial in desk.progress.trials)


def test_several_objectives_have_a_front(desk: Searched) -> None:
    desk.begin(
        "objectives:\n  - {metric: accuracy, direction: maximize}\n"
        "  - {metric: latency, direction: minimize}\nsampler: nsga2\nbudget: {trials: 3}\n"
        "objective: null\n"
    )
    desk.round()
    for number, (accuracy, latency) in enumerate(((0.9, 5.0), (0.8, 1.0), (0.7, 2.0))):
        metrics = {"accuracy": accuracy, "latency": latency}
        desk.event(number, "finished", train_step=1, metrics=metrics)
        desk.slurm.end(desk.job(number), "COMPLETED", exit_code=0)
    desk.round()
    assert desk.progress.best() is None
    assert [trial.number for trial in desk.progress.front()] == [0, 1]


def test_what_slurm_does_not_take_now_is_sent_later_and_asked_once(desk: Searched) -> None:
    desk.begin()
    desk.slurm.faults.append(Fault.DELAYED)
    report = desk.round()
    assert report.asked == [0], "no more are asked for than Slurm takes"
    assert report.problems
    for _ in range(3):
        desk.clock.advance(600)
        desk.round()
    assert [trial.number for trial in desk.progress.trials] == [0, 1, 2, 3]
    assert len(desk.alive()) == 4


def test_what_slurm_never_takes_halts_the_sweep(desk: Searched) -> None:
    desk.begin()
    desk.slurm.faults.append(Fault.REFUSED)
    report = desk.round()
    assert report.state is SweepState.HALTED
    assert "no trial can be submitted" in report.said[0]
    assert desk.alive() == []
    assert desk.states() == ["failed"]


def test_a_stopped_sweep_asks_no_more_and_its_trials_go_on(desk: Searched) -> None:
    desk.begin()
    desk.round()
    append(desk.sweep_dir, [StopRequested(at=desk.clock.now(), by="ada")])
    desk.completes(0, 0.5)
    assert desk.round().state is SweepState.STOPPING
    assert desk.states() == ["complete", "running", "running", "running"]
    for number in (1, 2, 3):
        desk.completes(number, 0.5)
    assert desk.round().state is SweepState.STOPPED
    desk.resume_sweep()
    assert desk.round().asked == [4, 5, 6, 7]


def test_a_sweep_that_is_cancelled_ends_its_trials(desk: Searched) -> None:
    desk.begin()
    desk.round()
    append(desk.sweep_dir, [StopRequested(at=desk.clock.now(), by="ada", cancel=True)])
    desk.round()
    desk.round()
    assert desk.alive() == []
    assert desk.states() == ["failed"] * 4
    assert desk.progress.state is SweepState.STOPPED


def test_a_sweep_ends_when_its_target_is_reached(desk: Searched) -> None:
    desk.begin("budget: {trials: 100, target: 0.95}")
    desk.round()
    desk.completes(0, 0.94)
    assert desk.round().asked == [4]
    desk.completes(1, 0.96)
    assert desk.round().asked == []
    for number in (2, 3, 4):
        desk.completes(number, 0.1)
    report = desk.round()
    assert report.state is SweepState.OVER
    assert report.said == ["over: trial 1 has reached accuracy 0.96"]


def test_a_sweep_ends_at_its_deadline(desk: Searched) -> None:
    desk.begin("budget: {deadline: 2h}")
    desk.round()
    desk.clock.advance(7200)
    for number in range(4):
        desk.completes(number, 0.5)
    report = desk.round()
    assert (report.asked, report.state) == ([], SweepState.RUNNING)
    said = "its deadline has passed; the sweep ends if a round confirms it in an hour"
    assert report.said == [said]
    desk.clock.advance(1800)
    assert desk.round().said == [], "it is said once"
    desk.clock.advance(1800)
    assert desk.round().state is SweepState.OVER


def test_its_file_and_that_of_its_base_run_may_be_deleted(desk: Searched) -> None:
    desk.begin()
    (desk.folder / "sweep.yaml").unlink()
    desk.config.unlink()
    assert desk.round().asked == [0, 1, 2, 3]


def test_with_a_larger_budget_it_goes_on_where_it_was(desk: Searched) -> None:
    desk.begin("budget: {trials: 2}")
    desk.round()
    for number in (0, 1):
        desk.completes(number, 0.5)
    assert desk.round().state is SweepState.OVER
    desk.resume_sweep("budget.trials=5")
    assert desk.round().asked == [2, 3, 4]
