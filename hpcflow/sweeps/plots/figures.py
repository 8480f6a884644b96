"""Select the figures of a sweep, and say why others are left out. Draws nothing.

With several objectives, each has its own history, slices and so on, drawn as if it were the only
one: so Optuna knows its direction, and draws its best value. Only the Pareto front shows all
objectives.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import optuna
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.trial import FrozenTrial, TrialState, create_trial

from hpcflow.model.pruner import Per
from hpcflow.model.sweep import Objective
from hpcflow.sweeps.state import SweepProgress
from hpcflow.sweeps.state import TrialState as Ended
from hpcflow.sweeps.study import Study

#: With fewer complete trials, importances are chance.
_ENOUGH: Final = 10
#: Optuna advises at least this many good trials to compute importances from.
_GOOD: Final = 5
#: More axes beside each other are not readable.
_MOST_PARAMETERS: Final = 20
_MOST_NAME_CHARS: Final = 60
_AXES: Final = (2, 3)
_FAR: Final = {
    Per.PERCENT: "Percent of the training",
    Per.EPOCH: "Epoch",
    Per.TRAIN_STEP: "Train step",
}
#: More lines are not readable, and their page is slow to open.
MOST_LINES: Final = 200
_MOST_POINTS: Final = 200


@dataclass(frozen=True)
class Figure:
    """One figure that can be drawn.

    Attributes:
        name: of its files, without suffix.
        function: of ``optuna.visualization`` and ``optuna.visualization.matplotlib``.
        labels: of both axes, to replace Optuna's.
        note: what the figure leaves out.
        sweep_id: for the title.
        pruned: trial -> the value at which it was pruned; None without a value.
    """

    name: str
    function: str
    study: optuna.Study
    options: dict[str, Any] = field(default_factory=dict)
    labels: tuple[str, str] | None = None
    note: str | None = None
    sweep_id: str = ""
    pruned: Mapping[int, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class LeftOut:
    """A figure that cannot be drawn, and why."""

    figure: str
    why: str


def figures_of(sweep_id: str, progress: SweepProgress) -> list[Figure | LeftOut]:
    """Return all figures of a sweep. The caller must suppress Optuna's warnings."""
    whole = Study(sweep_id, progress).optuna_study
    names = _file_names([goal.metric for goal in progress.spec.goals])
    found: list[Figure | LeftOut] = []
    for index, (goal, name) in enumerate(zip(progress.spec.goals, names, strict=True)):
        suffix = f"-{name}" if progress.is_several else ""
        study = _study_of(whole, goal, index) if progress.is_several else whole
        found += _of_goal(progress, goal, study, suffix)
    if progress.is_several:
        found.append(_pareto_front(progress, whole))
    found.append(_intermediate_values(progress))
    return [
        replace(each, sweep_id=sweep_id) if isinstance(each, Figure) else each for each in found
    ]


def _of_goal(
    progress: SweepProgress, goal: Objective, study: optuna.Study, suffix: str
) -> list[Figure | LeftOut]:
    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    of_space = [each.name for each in progress.spec.space.parameters]
    # By name, because Optuna's order is random.
    seen = sorted({name for trial in done for name in trial.params})
    shown = [name for name in of_space if name in seen][:_MOST_PARAMETERS]
    number = len(of_space)
    named: dict[str, Any] = {"target_name": goal.metric}
    some = {**named, "params": shown}
    important = {**named, "params": seen, "evaluator": _evaluator(len(done))}
    history = Figure(
        f"history{suffix}",
        "plot_optimization_history",
        study,
        named,
        pruned=_pruned(progress, goal),
    )
    parallel = Figure(f"parallel_coordinates{suffix}", "plot_parallel_coordinate", study, some)
    slices = Figure(f"slices{suffix}", "plot_slice", study, some)
    importances = Figure(f"importances{suffix}", "plot_param_importances", study, important)
    note = f"the first {len(shown)} of {len(seen)} parameters" if len(shown) < len(seen) else None
    no_other = _one_only(number, "nothing to compare it with")
    return [
        _unless(_too_few(done, 1), history),
        _unless(
            _too_few(done, 2) or _one_only(number, "its slice shows the same"),
            replace(parallel, note=note),
        ),
        _unless(_too_few(done, 2), replace(slices, note=note)),
        _unless(no_other or _too_few(done, _ENOUGH) or _all_the_same(done), importances),
    ]


def _pruned(progress: SweepProgress, goal: Objective) -> dict[int, float | None]:
    """Return trial -> its value when pruned, or its last reported value of the first goal."""
    index = progress.spec.goals.index(goal)
    found: dict[int, float | None] = {}
    for trial in progress.trials:
        if trial.state is Ended.PRUNED:
            points: list[float | None] = [None]
            points += [] if index else [v for v in trial.points().values() if v is not None]
            said = trial.values or []
            found[trial.number] = said[index] if index < len(said) else points[-1]
    return found


def _unless(why: str | None, figure: Figure) -> Figure | LeftOut:
    return LeftOut(figure.name, why) if why else figure


def _evaluator(done: int) -> PedAnovaImportanceEvaluator:
    """Return PED-ANOVA: it needs no package, is deterministic, and supports conditional spaces."""
    return PedAnovaImportanceEvaluator(target_quantile=min(0.5, max(0.1, _GOOD / max(1, done))))


def _too_few(done: Sequence[FrozenTrial], needed: int) -> str | None:
    if len(done) >= needed:
        return None
    if not done:
        return "no trial is complete yet"
    there_are = "there is 1" if len(done) == 1 else f"there are {len(done)}"
    return f"it needs {needed} complete trials, and {there_are}"


def _one_only(number: int, why: str) -> str | None:
    return f"the sweep has only one parameter: {why}" if number == 1 else None


def _all_the_same(done: Sequence[FrozenTrial]) -> str | None:
    is_same = len({trial.value for trial in done}) == 1
    return "all complete trials have the same value" if is_same else None


def _study_of(whole: optuna.Study, goal: Objective, index: int) -> optuna.Study:
    """Return a study of the same trials with this objective alone."""
    study = optuna.create_study(direction=goal.direction.value)
    study.add_trials(
        create_trial(
            state=each.state,
            value=each.values[index] if each.state is TrialState.COMPLETE else None,
            params=each.params,
            distributions=each.distributions,
            user_attrs=each.user_attrs,
        )
        for each in whole.get_trials(deepcopy=False)
    )
    return study


def _pareto_front(progress: SweepProgress, whole: optuna.Study) -> Figure | LeftOut:
    goals = [goal.metric for goal in progress.spec.goals]
    figure = Figure("pareto_front", "plot_pareto_front", whole, {"target_names": goals})
    if len(goals) not in _AXES:
        why = f"it needs 2 or 3 objectives, and there are {len(goals)}"
        return LeftOut(figure.name, why)
    done = whole.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return _unless(_too_few(done, 1), figure)


def _intermediate_values(progress: SweepProgress) -> Figure | LeftOut:
    name, spec = "intermediate_values", progress.spec
    metric, far = spec.goals[0].metric, _FAR[spec.pruner.per]
    study, number, shown = study_of_curves(progress)
    if not number:
        return LeftOut(name, f"no trial has reported {metric} and how far it is ({far.lower()})")
    left = f"without {number - shown} of {number} trials: so many lines are not readable"
    return Figure(
        name,
        "plot_intermediate_values",
        study,
        labels=(far, metric),
        note=left if shown < number else None,
        pruned={each.number: None for each in progress.trials if each.state is Ended.PRUNED},
    )


def _file_names(metrics: Sequence[str]) -> list[str]:
    """Return distinct names of metrics, safe for file names."""
    found: list[str] = []
    for number, metric in enumerate(metrics, 1):
        name = re.sub(r"[^A-Za-z0-9._-]+", "_", metric)[:_MOST_NAME_CHARS]
        found.append(f"{name}-{number}" if name.lower() in map(str.lower, found) else name)
    return found


def study_of_curves(progress: SweepProgress) -> tuple[optuna.Study, int, int]:
    """Return the intermediate values of the trials as a study, the number of trials with reports,
    and how many of them the study contains.

    It also has running trials, and values that no pruner has seen.
    """
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
