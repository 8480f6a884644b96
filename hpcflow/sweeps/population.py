"""Population based training: which trial is replaced, from which checkpoint, with which values.

docs/sweeps.md describes it. After Jaderberg et al., Population Based Training of Neural Networks,
2017 (arXiv:1711.09846): truncation selection, and perturbation by a fifth.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Final

from hpcflow.model.space import Choice, Parameter, Range, Scalar, Space
from hpcflow.sweeps.state import SweepProgress, Trial, TrialState

#: Probability that a value is drawn at random instead of perturbed.
_RANDOM_SHARE: Final = 0.25
_FACTORS: Final = (0.8, 1.2)


def next_point(progress: SweepProgress, trial: Trial) -> int | None:
    """Return the newest point to compare ``trial`` at; None if it was compared there already."""
    interval = progress.spec.sampler.interval_or_default
    reached = max(trial.points(), default=0)
    point = reached // interval * interval
    return point if point > trial.judged_to else None


def is_among_worst(progress: SweepProgress, trial: Trial, point: int) -> bool | None:
    """Return whether ``trial`` is one of the worst at ``point``; None if too few reached it."""
    rivals = _reached(progress, point)
    if 2 * len(rivals) < progress.spec.sampler.population_or_default:
        return None
    if trial.points()[point] is None:
        return True  # its objective is not finite
    worst = _ranked(progress, rivals, point)[-_share(progress, len(rivals)) :]
    return len(rivals) > 1 and trial in worst


def source_for(progress: SweepProgress, loser: Trial, point: int) -> Trial | None:
    """Return the trial whose checkpoint replaces ``loser``; None if no running trial is better.

    Ended trials do not count: after their last checkpoint there is nothing left to train.
    """
    rivals = [
        trial
        for trial in _reached(progress, point)
        if trial.told is None
        and not trial.is_finished
        and _rank(progress, trial, point) < _rank(progress, loser, point)
    ]
    if not rivals:
        return None
    best = _ranked(progress, rivals, point)[: _share(progress, len(rivals))]
    return _chance(progress, loser.number).choice(best)


def to_replace(progress: SweepProgress) -> list[Trial]:
    """Return the pruned trials without a successor; a void successor does not count."""
    replaced = {trial.replaces for trial in progress.trials if not trial.is_void}
    return [
        trial
        for trial in progress.trials
        if trial.state is TrialState.PRUNED and trial.number not in replaced
    ]


def is_complete(progress: SweepProgress) -> bool:
    """Return whether all trials of the first population were asked for."""
    founders = sum(trial.replaces is None and not trial.is_void for trial in progress.trials)
    return founders >= progress.spec.sampler.population_or_default


def explore(progress: SweepProgress, source: Trial, number: int) -> dict[str, Scalar]:
    chance = _chance(progress, number)
    space: Space = progress.spec.space
    chosen: dict[str, Scalar] = {}
    for parameter in space.parameters:
        if parameter.is_there(chosen):
            chosen[parameter.name] = _near(parameter, source.params, chance)
    return chosen


def _near(parameter: Parameter, params: Mapping[str, Scalar], chance: random.Random) -> Scalar:
    values, old = parameter.values, params.get(parameter.name)
    if parameter.name not in params or chance.random() < _RANDOM_SHARE:
        return _drawn(values, chance)
    if isinstance(values, Choice):
        return old
    assert isinstance(old, (int, float))
    return _fitting(values, old * chance.choice(_FACTORS), old)


def _drawn(values: Choice | Range, chance: random.Random) -> Scalar:
    if isinstance(values, Choice):
        return chance.choice(values.choices)
    if values.is_log:
        drawn = math.exp(chance.uniform(math.log(values.low), math.log(values.high)))
    else:
        drawn = chance.uniform(values.low, values.high)
    return _fitting(values, drawn, None)


def _fitting(values: Range, wanted: float, old: float | None) -> int | float:
    """Return the value of the range that is nearest to ``wanted``; on a grid, not ``old``."""
    wanted = min(max(wanted, values.low), values.high)
    points = values.points()
    if points is None:
        return wanted
    nearest = min(range(len(points)), key=lambda index: abs(points[index] - wanted))
    if old is not None and points[nearest] == old and len(points) > 1:
        up = wanted > old or nearest == 0
        nearest = min(nearest + 1, len(points) - 1) if up else nearest - 1
    return points[nearest]


def _reached(progress: SweepProgress, point: int) -> list[Trial]:
    return [
        trial
        for trial in progress.trials
        if trial.state is not TrialState.FAILED and point in trial.points()
    ]


def _ranked(progress: SweepProgress, trials: list[Trial], point: int) -> list[Trial]:
    """Return ``trials``, best first; trials without a finite value come last."""
    return sorted(trials, key=lambda trial: _rank(progress, trial, point))


def _rank(progress: SweepProgress, trial: Trial, point: int) -> float:
    value = trial.points().get(point)
    if value is None:
        return math.inf
    return -value if progress.spec.goals[0].direction.value == "maximize" else value


def _share(progress: SweepProgress, count: int) -> int:
    return max(1, int(progress.spec.sampler.quantile_or_default * count))


def _chance(progress: SweepProgress, number: int) -> random.Random:
    return random.Random(f"{progress.spec.sampler.seed}/{number}")  # noqa: S311 - no secret
