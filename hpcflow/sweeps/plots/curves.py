"""The intermediate values of the trials of a sweep, as a study that can be drawn.

All of it, also of trials that still run, and of those that no pruner has looked at: the study of
the sweep itself has only what its pruner has seen.
"""

from __future__ import annotations

from typing import Final

import optuna
from optuna.trial import FrozenTrial, TrialState, create_trial

from hpcflow.sweeps.state import SweepProgress

#: More lines are a carpet, in a page that takes long to open.
MOST_LINES: Final = 200
_MOST_POINTS: Final = 200


def study_of_curves(progress: SweepProgress) -> tuple[optuna.Study, int, int]:
    """The study; how many trials have reported something; and how many of them are in it."""
    points = {each.number: found for each in progress.trials if (found := each.points())}
    chosen = _some(progress, sorted(points))
    study = optuna.create_study(direction=progress.spec.goals[0].direction.value)
    study.add_trials(
        _line(points[each.number] if each.number in chosen else {}) for each in progress.trials
    )
    return study, len(points), len(chosen)


def _some(progress: SweepProgress, numbers: list[int]) -> set[int]:
    """As many trials as can be told apart: the best, and of the others one in so many."""
    known = set(numbers)
    best = [trial.number for trial in progress.front() if trial.number in known][:MOST_LINES]
    others = [number for number in numbers if number not in set(best)]
    return {*best, *_evenly(others, MOST_LINES - len(best))}


def _evenly(found: list[int], most: int) -> list[int]:
    """At most so many of ``found``, the first and the last among them."""
    if len(found) <= most:
        return found
    if most < 2:
        return found[:most]
    return [found[index * (len(found) - 1) // (most - 1)] for index in range(most)]


def _line(points: dict[int, float | None]) -> FrozenTrial:
    kept = _evenly(list(points), _MOST_POINTS)
    values = {point: value for point in kept if (value := points[point]) is not None}
    return create_trial(state=TrialState.PRUNED, intermediate_values=values)
