"""ASHA against random search on the digits: what is found, and for how much compute.

The learning curves are real: each set of values is trained once, in numpy, with the program of
examples/sweep. The sweeps are hpcflow's own rounds over a cluster in memory, whose trials report
these curves, an epoch a minute, eight at a time.
"""

from __future__ import annotations

import runpy
from functools import cache
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from hpcflow.sweeps.state import SweepState, TrialState
from tests.benchmarks.timing import Row
from tests.sweeps.searched import Searched

_SEEDS: Final = 5
_TRIALS: Final = 30
_EPOCHS: Final = 20
_EXAMPLE: Final = Path(__file__).resolve().parents[2] / "examples" / "sweep" / "train.py"

_SPACE: Final = """
space:
  lr: {low: 1.0e-4, high: 1.0, log: true}
  momentum: {low: 0.0, high: 0.95}
  hidden: {low: 8, high: 128, step: 8}
  batch_size: {choices: [32, 64, 128]}
  activation: {choices: [relu, tanh]}
parallel: 8
"""


def rows() -> list[Row]:
    """The same trials with and without a pruner."""
    hours: list[float] = []
    lost: list[float] = []
    best: list[float] = []
    for seed in range(_SEEDS):
        whole, whole_minutes = _search(seed, "none")
        early, early_minutes = _search(seed, "{type: asha, min_resource: 10}")
        hours.append(early_minutes / whole_minutes)
        lost.append(whole - early)
        best.append(early)
    return [
        Row(
            f"ASHA against random search, {_TRIALS} trials on the digits, {_SEEDS} seeds",
            f"{median(hours):.2f} × the compute ({min(hours):.2f} to {max(hours):.2f}) for a best "
            f"accuracy of {median(best):.4f}, which is {median(lost):.4f} less (at most "
            f"{max(lost):.4f})",
            "the same best accuracy for at most 0.5 ×",
            median(hours) <= 0.5 and median(lost) <= 0.0,
        )
    ]


def _search(seed: int, pruner: str) -> tuple[float, int]:
    """The best accuracy of a sweep, and the minutes that its trials ran."""
    minutes = 0
    with TemporaryDirectory() as folder:
        desk = Searched(Path(folder))
        desk.begin(
            f"{_SPACE}sampler: {{type: random, seed: {seed}}}\npruner: {pruner}\n"
            f"budget: {{trials: {_TRIALS}}}\n"
        )
        epochs: dict[int, int] = {}
        while desk.round().state is not SweepState.OVER:
            for trial in desk.running():
                curve = _curve(tuple(sorted(desk.trial(trial).params.items())))
                epochs[trial] = epoch = epochs.get(trial, 0) + 1
                minutes += 1
                if epoch < _EPOCHS:
                    desk.event(
                        trial,
                        "progress",
                        train_step=epoch,
                        total_train_steps=_EPOCHS,
                        metrics={"accuracy": curve[epoch - 1]},
                    )
                else:
                    desk.completes(trial, curve[-1])
        done = [t for t in desk.progress.trials if t.state is TrialState.COMPLETE]
        return max((trial.values or [0.0])[0] for trial in done), minutes


@cache
def _program() -> dict[str, Any]:
    return runpy.run_path(str(_EXAMPLE))


@cache
def _digits() -> tuple[Any, Any]:
    images, digits = _program()["read_digits"]()
    return images, digits


@cache
def _curve(params: tuple[tuple[str, Any], ...]) -> list[float]:
    """The accuracy after each epoch, as the program computes it."""
    program, given = _program(), dict(params)
    images, digits = _digits()
    order = np.random.default_rng(0).permutation(len(digits))
    train, held_out = order[:1437], order[1437:]
    network = program["Network"](given["hidden"], given["activation"], 0)
    size, curve = given["batch_size"], []
    for epoch in range(_EPOCHS):
        shuffled = np.random.default_rng([0, epoch]).permutation(train)
        for begin in range(0, len(train), size):
            chosen = shuffled[begin : begin + size]
            network.train_step(images[chosen], digits[chosen], given["lr"], given["momentum"])
        curve.append(program["accuracy"](network, images[held_out], digits[held_out]))
    return curve
