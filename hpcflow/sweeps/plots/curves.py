"""The intermediate values of the trials of a sweep, as a study that can be drawn.

It also has the values of running trials, and values that no pruner has seen; the study of the sweep
has only values that its pruner has seen.
"""

from __future__ import annotations

from typing import Final

import optuna
from optuna.trial import FrozenTrial, TrialState, create_trial

from hpcflow.sweeps.state import SweepProgress

#: More lines are not readable, and their page is slow to open.
MOST_LINES: Final = 200
_MOST_POINTS: Final = 200


def study_of_curves(progress: SweepProgress) -> tuple[optuna.Study, int, int]:
    """Return the study, the number of trials with reports, and how many of them it contains."""
    points = {each.number: found for each in progress.trials if (found := each.points())}
    chosen = _some(progress, sorted(points))
    study = optuna.create_study(direction=progress.spec.goals[0].direction.value)
    study.add_trials(
        _line(points[each.number] if each.number in chosen else {}) for each in progress.trials
    )
    return study, len(points), len(chosen)


def _some(progress: SweepProgress, numbers: list[int]) -> set[int]:
    """Return at most ``MOST_LINES`` trials: the best, and an even selection of the others."""
    known = set(numbers)
    best = [trial.number for trial in progress.front() if trial.number in known][:MOST_LINES]
    others = [number for number in numbers if number not in set(best)]
    return {*best, *_evenly(others, MOST_LINES - len(best))}


def _evenly(found: list[int], most: int) -> list[int]:
    """Return at most ``most`` of ``found``, with the first and the last."""
    if len(found) <= most:
        return found
    if most < 2:
        return found[:most]
    return [found[index * (len(found) - 1) // (most - 1)] for index in range(most)]


def _line(points: dict[int, float | None]) -> FrozenTrial:
    kept = _evenly(list(points), _MOST_POINTS)
    values = {point: value for point in kept if (value := points[point]) is not None}
    return create_trial(state=TrialState.PRUNED, intermediate_values=values)
