"""Population based training: the worst give up, and others go on from the best."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from hpcflow.model.sweep_records import Asked, Retried, StopRequested
from hpcflow.storage.sweeps import append
from hpcflow.sweeps.state import SweepState
from tests.requeue.killing import Killer
from tests.sweeps.killing import assert_once, killed_at_each
from tests.sweeps.searched import Searched

POPULATION = """
sampler: {type: pbt, population: 4, interval: 20, seed: 5}
budget: {}
space:
  lr: {low: 1.0e-4, high: 1.0, log: true}
  depth: {low: 1, high: 8}
  kind: {choices: [a, b, c]}
"""


@pytest.fixture
def desk(tmp_path: Path) -> Searched:
    return Searched(tmp_path)


def saves(desk: Searched, trial: int, train_step: int) -> None:
    """A trial makes a checkpoint."""
    folder = desk.run_dir(trial).checkpoints / f"{train_step:09d}"
    (folder / "network").mkdir(parents=True)
    (folder / "network" / "weights.npz").write_text(f"of {trial} at {train_step}")
    (folder / "manifest.json").write_text("{}")


def come_to(desk: Searched, percent: int, values: Mapping[int, float | None]) -> None:
    for trial, value in values.items():
        desk.reports(trial, percent, value)
        saves(desk, trial, percent)


def test_the_worst_gives_up_and_its_successor_goes_on_from_the_best(desk: Searched) -> None:
    desk.begin(POPULATION)
    assert desk.round().asked == [0, 1, 2, 3]
    come_to(desk, 20, {0: 0.5, 1: 0.9, 2: 0.1, 3: 0.6})
    assert desk.round().pruned == [2]
    assert desk.round().asked == [4], "its place is free"
    successor, best = desk.trial(4), desk.trial(1)
    assert (successor.replaces, successor.source) == (2, 1)
    weights = desk.run_dir(4).path / "start" / "000000020" / "network" / "weights.npz"
    assert weights.read_text() == "of 1 at 20"
    script = desk.run_dir(4).attempt(1).script.read_text()
    assert '"$HPCFLOW_RUN_DIR"/start/000000020' in script
    shutil.rmtree(desk.run_dir(1).checkpoints)
    assert weights.exists(), "it does not need the other's any more"
    old, new = best.params, successor.params
    assert new != old
    assert 1e-4 <= new["lr"] <= 1.0
    assert new["depth"] in range(1, 9)
    assert desk.run_dir(2).cancel.read_text() == "pruned\n"


def test_a_successor_that_fails_and_is_trained_anew_goes_on_from_the_same_run(
    desk: Searched,
) -> None:
    desk.config.write_text(desk.config.read_text() + "retry: {failures: 0}\n")
    desk.begin(POPULATION + "retries: 1\n")
    desk.round()
    come_to(desk, 20, {0: 0.5, 1: 0.9, 2: 0.1, 3: 0.6})
    desk.round()
    desk.round()
    first = desk.run_dir(4)
    desk.slurm.end(desk.job(4), "FAILED", exit_code=1)
    desk.round()
    assert desk.run_dir(4).path != first.path
    weights = desk.run_dir(4).path / "start" / "000000020" / "network" / "weights.npz"
    assert weights.read_text() == "of 1 at 20"


def test_nobody_gives_up_for_a_worse_one(desk: Searched) -> None:
    desk.begin(POPULATION.replace("interval: 20", "interval: 20, quantile: 0.5"))
    desk.round()
    for trial in (0, 1):
        come_to(desk, 100, {trial: 0.9})
        desk.completes(trial, 0.9)
    desk.round()
    come_to(desk, 20, {2: 0.3, 3: 0.05})
    assert 2 not in desk.round().pruned


def test_what_has_no_number_any_more_gives_up_as_soon_as_another_has_saved(desk: Searched) -> None:
    desk.begin(POPULATION)
    desk.round()
    for trial, value in {0: 0.5, 1: 0.9, 2: None, 3: 0.6}.items():
        desk.reports(trial, 20, value)
    assert desk.round().pruned == []
    saves(desk, 1, 20)
    assert desk.round().pruned == [2]


def test_a_successor_that_is_sent_again_goes_on_from_where_it_began(desk: Searched) -> None:
    desk.begin(POPULATION)
    desk.round()
    come_to(desk, 20, {0: 0.5, 1: 0.9, 2: 0.1, 3: 0.6})
    desk.round()
    desk.round()
    desk.end(desk.job(4), "PREEMPTED")
    desk.clock.advance(300)
    desk.round()
    script = desk.run_dir(4).attempt(2).script.read_text()
    assert '"$HPCFLOW_RUN_DIR"/start/000000020' in script


def test_nobody_is_judged_before_half_of_them_have_come_so_far(desk: Searched) -> None:
    desk.begin(POPULATION)
    desk.round()
    come_to(desk, 20, {2: 0.1})
    assert desk.round().pruned == []
    come_to(desk, 20, {0: 0.5})
    assert desk.round().pruned == [2]


def test_nobody_gives_up_for_one_that_has_saved_nothing(desk: Searched) -> None:
    desk.begin(POPULATION)
    desk.round()
    for trial, value in {0: 0.5, 1: 0.9, 2: 0.1, 3: 0.6}.items():
        desk.reports(trial, 20, value)
    assert desk.round().pruned == []


def test_nobody_goes_on_from_a_training_that_is_done(desk: Searched) -> None:
    desk.begin(POPULATION)
    desk.round()
    come_to(desk, 100, {1: 0.9})
    desk.completes(1, 0.9)
    desk.round()
    come_to(desk, 20, {0: 0.5, 2: 0.1, 3: 0.6})
    desk.round()
    desk.round()
    assert desk.trial(4).replaces == 2
    assert desk.trial(4).source in (0, 3)


def test_a_successor_was_never_at_the_points_before_it_began(desk: Searched) -> None:
    desk.begin(POPULATION)
    desk.round()
    come_to(desk, 40, {0: 0.5, 1: 0.9, 2: 0.1, 3: 0.6})
    desk.round()
    desk.round()
    desk.event(4, "train_started", train_step=40, total_train_steps=100)
    desk.reports(4, 45, 0.95)
    desk.round()
    assert min(desk.trial(4).points()) == 41


def test_the_population_comes_to_its_end(desk: Searched) -> None:
    desk.begin(POPULATION)
    desk.round()
    come_to(desk, 20, {0: 0.5, 1: 0.9, 2: 0.1, 3: 0.6})
    desk.round()
    desk.round()
    for trial in desk.running():
        desk.completes(trial, trial / 10)
    report = desk.round()
    assert report.state is SweepState.OVER
    assert report.said == ["over: all trials of the population have ended"]
    assert desk.states() == ["complete", "complete", "pruned", "complete", "complete"]


@pytest.mark.parametrize("others", [{}, {0: 0.5}, {0: 0.5, 3: 0.6}])
def test_what_has_no_number_any_more_gives_up_whatever_the_others_are(
    desk: Searched, others: dict[int, float]
) -> None:
    desk.begin(POPULATION)
    desk.round()
    come_to(desk, 20, {1: 0.9, 2: None, **others})
    assert desk.round().pruned == [2]
    desk.round()
    assert desk.trial(4).replaces == 2
    assert desk.trial(4).source == 1


def test_a_population_that_was_stopped_with_its_members_begins_anew(desk: Searched) -> None:
    desk.begin(POPULATION)
    desk.round()
    append(desk.sweep_dir, [StopRequested(at=desk.clock.now(), by="ada", cancel=True)])
    for _ in range(2):
        desk.round()
    assert desk.progress.state is SweepState.STOPPED
    desk.resume_sweep()
    assert desk.round().asked == [4, 5, 6, 7]


def test_a_successor_that_was_stopped_with_the_sweep_has_a_successor_itself(
    desk: Searched,
) -> None:
    desk.begin(POPULATION)
    desk.round()
    come_to(desk, 20, {0: 0.5, 1: 0.9, 2: 0.1, 3: 0.6})
    desk.round()
    asked_for_2(desk)
    shutil.rmtree(desk.run_dir(1).checkpoints)
    desk.round()
    assert desk.trial(4).is_void, "there is nothing left that it could go on from"
    come_to(desk, 40, {1: 0.9})
    desk.round()
    assert (desk.trial(5).replaces, desk.trial(5).source) == (2, 1)


def test_a_successor_goes_on_from_the_run_that_was_the_best_when_it_was_asked_for(
    desk: Searched,
) -> None:
    desk.begin(POPULATION)
    desk.round()
    come_to(desk, 20, {0: 0.5, 1: 0.9, 2: 0.1, 3: 0.6})
    desk.round()
    source = desk.trial(1).current_runs[0]
    asked_for_2(desk, source_run=source)
    retried = Retried(at=desk.clock.now(), trial=1, failed=source, run="y-20260301-aaaaaaaa")
    append(desk.sweep_dir, [retried])
    desk.round()
    weights = desk.run_dir(4).path / "start" / "000000020" / "network" / "weights.npz"
    assert weights.read_text() == "of 1 at 20"


def asked_for_2(desk: Searched, source_run: str | None = None) -> None:
    """A successor of 2 was asked for, and the round was killed before it was sent."""
    asked = Asked(
        at=desk.clock.now(),
        trial=4,
        params=desk.trial(1).params,
        runs=["x-20260301-aaaaaaaa"],
        how="population",
        replaces=2,
        source=1,
        source_run=source_run,
    )
    append(desk.sweep_dir, [asked])


def test_the_same_seed_gives_the_same_population(tmp_path: Path) -> None:
    params = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        desk = Searched(tmp_path / name)
        desk.begin(POPULATION)
        desk.round()
        come_to(desk, 20, {0: 0.5, 1: 0.9, 2: 0.1, 3: 0.6})
        desk.round()
        desk.round()
        params.append([trial.params for trial in desk.progress.trials])
    assert params[0] == params[1]


def test_killed_anywhere_each_that_gives_up_has_one_successor(
    tmp_path: Path, killer: Killer
) -> None:
    for moment, desk in killed_at_each(killer, tmp_path):
        desk.begin(POPULATION)
        desk.round()
        come_to(desk, 20, {0: 0.5, 1: 0.9, 2: 0.1, 3: 0.6})
        with killer.armed():
            desk.round()
        for _ in range(3):
            desk.clock.advance(400)
            desk.round()
        assert desk.running() == [0, 1, 3, 4], f"killed at moment {moment}"
        assert desk.trial(4).replaces == 2
        assert_once(desk, moment)
    assert moment > 12
