"""Sweeps of the other samplers on the real cluster, over real trainings of the digits.

A long proof: test_sweep.py has a shorter sweep; tests/sweeps has all samplers, on a cluster in
memory.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from hpcflow.testing.cluster import poll
from tests.e2e.conftest import Hpcflow, events
from tests.e2e.test_sweep import Search

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2400), pytest.mark.soak]

SWEEP = """
name: {name}
base: {base}
objective: {{metric: accuracy, direction: maximize}}
{more}
"""
GRID = """
sampler: grid
space:
  activation: {choices: [relu, tanh]}
  hidden: {low: 8, high: 24, step: 8}
  lr: 0.5
parallel: 6
"""
RANDOM = """
sampler: {type: random, seed: 3}
space: {lr: {low: 1.0e-3, high: 1.0, log: true}}
parallel: 4
budget: {trials: 5}
"""
GP = """
sampler: {type: gp, startup_trials: 3, seed: 3}
space: {lr: {low: 1.0e-6, high: 0.3, log: true}, momentum: {low: 0.0, high: 0.95}}
parallel: 3
budget: {trials: 9}
"""
#: One of the founders of this seed learns well by itself, for how many successors there are, and
#: from where they go on, depends on how fast the rounds are beside the trainings.
PBT = """
sampler: {type: pbt, population: 4, interval: 10, seed: 4}
space: {lr: {low: 1.0e-5, high: 0.3, log: true}, momentum: 0.5}
"""


def search(hpcflow: Hpcflow, name: str, more: str, **how: Any) -> list[dict[str, Any]]:
    """The trials of a sweep, once it is over; many of its rounds were killed."""
    found = Search(hpcflow, name, more, text=SWEEP, **how)
    found.start()
    found.until_over(random.Random(name))
    trials = found.trials()
    assert hpcflow("ledger", "check").returncode == 0
    return trials


def test_a_grid_trains_every_combination_once(hpcflow: Hpcflow) -> None:
    trials = search(hpcflow, "grid", GRID, pause_s=0.0)
    assert [trial["state"] for trial in trials] == ["complete"] * 6
    seen = {(trial["params"]["activation"], trial["params"]["hidden"]) for trial in trials}
    assert seen == {(name, size) for name in ("relu", "tanh") for size in (8, 16, 24)}
    assert all(trial["values"]["accuracy"] > 0.8 for trial in trials)


def test_random_search_trains_as_many_as_it_may(hpcflow: Hpcflow) -> None:
    trials = search(hpcflow, "random", RANDOM, pause_s=0.0)
    assert [trial["state"] for trial in trials] == ["complete"] * 5
    assert len({trial["params"]["lr"] for trial in trials}) == 5


def test_a_gaussian_process_learns_where_it_is_good(hpcflow: Hpcflow) -> None:
    trials = search(hpcflow, "gp", GP, pause_s=0.0)
    assert [trial["state"] for trial in trials] == ["complete"] * 9
    by_chance = [trial["values"]["accuracy"] for trial in trials[:3]]
    learned = [trial["values"]["accuracy"] for trial in trials[3:]]
    assert max(learned) > 0.95
    assert sum(learned) / len(learned) > sum(by_chance) / len(by_chance)


def test_a_population_goes_on_from_its_best(hpcflow: Hpcflow) -> None:
    base = "checkpoint: {interval: 1s}\n"
    found = Search(hpcflow, "population", PBT, text=SWEEP, pause_s=1.0, base=base)
    found.start()

    def is_over() -> bool:
        found.tick()
        return bool(found.status()["state"] == "over")

    poll(is_over, 600, "it never ended")
    trials = found.trials()
    founders, successors = trials[:4], trials[4:]
    assert len(founders) == 4
    assert successors, "nobody gave up"
    pruned = [trial for trial in trials if trial["state"] == "pruned"]
    assert len(pruned) >= len(successors)
    assert {trial["state"] for trial in trials} == {"pruned", "complete"}
    for trial in successors:
        (run_id,) = trial["runs"]
        run_dir = Path(hpcflow.json("show", run_id)["run_dir"])
        (begun, *_) = [each for each in events(run_dir, 1) if each["event"] == "train_started"]
        assert begun["train_step"] > 0, "it began at the beginning"
        assert trial["params"] not in [founder["params"] for founder in founders]
    best = max(trials, key=lambda trial: trial["values"].get("accuracy", 0))
    assert best["values"]["accuracy"] > 0.9
