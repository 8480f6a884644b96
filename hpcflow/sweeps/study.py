"""The trials of a sweep as an Optuna study: ask for the next, judge the running, export all.

Each round rebuilds the study from the journal. What sampler and pruner store in the study
(``system_attrs``) is written to the journal too. So a round may be killed anywhere, and no round
waits for a database. CMA-ES stores a pickle: it is read from the journal only, which lies in a
folder that only the user can write.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.storages import InMemoryStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as State

from hpcflow.errors import InputError, shell_word
from hpcflow.model.sampler import SamplerKind
from hpcflow.model.space import Choice, Parameter, Range, Scalar, Space
from hpcflow.storage.files import write_durably
from hpcflow.sweeps.sampling import grid_of, pruner_for, sampler_for
from hpcflow.sweeps.state import SweepProgress, Trial, TrialState

STATES: Final = {
    TrialState.RUNNING: State.RUNNING,
    TrialState.COMPLETE: State.COMPLETE,
    TrialState.PRUNED: State.PRUNED,
    TrialState.FAILED: State.FAIL,
}
#: CMA-ES keeps pickles in these attributes. A file that may be handed on has none.
_PICKLED: Final = ("cma:", "sepcma:", "cmawm:")


@dataclass(frozen=True)
class Question:
    """A new trial: its values, and the attributes to journal with them.

    Attributes:
        start: its index in ``start_from``.
    """

    params: dict[str, Scalar]
    how: str
    attrs: dict[str, Any] = field(default_factory=dict)
    study_attrs: dict[str, Any] = field(default_factory=dict)
    start: int | None = None


@dataclass(frozen=True)
class Verdict:
    """The pruner's decision on a trial, from its points up to ``to``."""

    to: int
    prune: bool
    attrs: dict[str, Any] = field(default_factory=dict)


class Study:
    """A sweep's study, built from its journal."""

    def __init__(self, sweep_id: str, progress: SweepProgress) -> None:
        self._progress = progress
        self._storage = InMemoryStorage()
        with quiet():
            self._study = optuna.create_study(
                storage=self._storage,
                study_name=sweep_id,
                directions=[goal.direction.value for goal in progress.spec.goals],
                pruner=pruner_for(progress.spec.pruner),
            )
            self._id = self._storage.get_study_id_from_name(sweep_id)
            for name, value in progress.study_attrs.items():
                self._storage.set_study_system_attr(self._id, name, value)
            for trial in progress.trials:
                self._storage.create_new_trial(self._id, frozen_trial(progress, trial))

    @property
    def optuna_study(self) -> optuna.Study:
        """The study itself, for Optuna's tools; changes to it are not journaled."""
        return self._study

    def ask(self) -> Question | None:
        """Return the next trial, and add it to the study as running; None if none is left."""
        progress = self._progress
        spec, number = progress.spec, len(self._storage.get_all_trials(self._id, deepcopy=False))
        how: str = "sampler"
        fixed: dict[str, Scalar] | None = None
        first: int | None = None
        if spec.sampler.kind is SamplerKind.GRID:
            how, fixed = "grid", self._next_of_grid()
            if fixed is None:
                return None
        elif (first := self._next_first()) is not None:
            how, fixed = "start_from", dict(spec.start_from[first])
        before = dict(self._storage.get_study_system_attrs(self._id))
        with quiet():
            self._study.sampler = sampler_for(spec, number)
            if fixed is not None:
                self._study.enqueue_trial(fixed)
            trial = self._study.ask()
            params = suggest(trial, spec.space)
        attrs = dict(self._storage.get_trial_system_attrs(trial._trial_id))
        attrs.pop("fixed_params", None)
        return Question(params, how, attrs, self._changed(before), first)

    def _next_first(self) -> int | None:
        """Return the first index of ``start_from`` without a trial; void trials do not count."""
        asked = {trial.start for trial in self._progress.trials if not trial.is_void}
        wanted = range(len(self._progress.spec.start_from))
        return next((index for index in wanted if index not in asked), None)

    def _next_of_grid(self) -> dict[str, Scalar] | None:
        """Return the first combination without a trial; void trials do not count."""
        void = {trial.number for trial in self._progress.trials if trial.is_void}
        asked = self._storage.get_all_trials(self._id, deepcopy=False)
        done = {_key(each.params) for each in asked if each.number not in void}
        return next((dict(point) for point in self._grid if _key(point) not in done), None)

    @cached_property
    def _grid(self) -> list[dict[str, Scalar]]:
        return grid_of(self._progress.spec)

    def judge(self, trial: Trial) -> Verdict | None:
        """Ask the pruner about each new point of ``trial``; None if there is no new point."""
        points = {p: v for p, v in trial.points().items() if p > trial.judged_to}
        if not points:
            return None
        trial_id = self._storage.get_trial_id_from_study_id_trial_number(self._id, trial.number)
        before = dict(self._storage.get_trial_system_attrs(trial_id))
        to, prune = trial.judged_to, False
        with quiet():
            for point, value in points.items():
                number = math.nan if value is None else value
                self._storage.set_trial_intermediate_value(trial_id, point, number)
                to = point
                seen = self._storage.get_trial(trial_id)
                if prune := bool(self._study.pruner.prune(self._study, seen)):
                    break
        after = self._storage.get_trial_system_attrs(trial_id)
        attrs = {name: value for name, value in after.items() if before.get(name) != value}
        return Verdict(to, prune, attrs)

    def _changed(self, before: dict[str, Any]) -> dict[str, Any]:
        after = self._storage.get_study_system_attrs(self._id)
        return {name: value for name, value in after.items() if before.get(name) != value}


def _key(params: Mapping[str, Any]) -> str:
    return json.dumps(params, sort_keys=True)


def frozen_trial(
    progress: SweepProgress, trial: Trial, points: Mapping[int, float | None] | None = None
) -> FrozenTrial:
    """Return a trial as Optuna has it; its times are local, without a time zone.

    Args:
        points: its intermediate values. Default: all of a complete trial, and of another those
            that the pruner has seen.
    """
    state = STATES[trial.state]
    values = None
    if trial.told is not None and trial.told.values and state in (State.COMPLETE, State.PRUNED):
        values = list(trial.told.values)
    return FrozenTrial(
        number=trial.number,
        state=state,
        value=None,
        values=values,
        datetime_start=_local(trial.asked_at),
        datetime_complete=_local(trial.told.at) if trial.told else None,
        params=dict(trial.params),
        distributions=distributions_of(progress.spec.space, trial.params),
        user_attrs={"runs": trial.current_runs},
        system_attrs=dict(trial.attrs),
        intermediate_values={
            point: math.nan if value is None else value
            for point, value in (_seen(trial) if points is None else points).items()
        },
        trial_id=trial.number,
    )


def _local(time: datetime) -> datetime:
    return datetime.fromtimestamp(time.timestamp())


def _seen(trial: Trial) -> dict[int, float | None]:
    """Return the points that the pruner compares others with: of a complete trial all of them."""
    return trial.points() if trial.state is TrialState.COMPLETE else trial.judged


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress Optuna's log and its warnings about experimental features."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)


def distribution_of(values: Choice | Range) -> BaseDistribution:
    if isinstance(values, Choice):
        return CategoricalDistribution(values.choices)
    return _of_range(values)


@lru_cache(maxsize=256)  # slow for a fine step, and called for each trial
def _of_range(values: Range) -> BaseDistribution:
    if values.is_int:
        low, high, step = int(values.low), int(values.high), int(values.step or 1)
        return IntDistribution(low, high - (high - low) % step, log=values.is_log, step=step)
    if values.step is None:
        return FloatDistribution(values.low, values.high, log=values.is_log)
    points = values.points()
    assert points
    return FloatDistribution(values.low, points[-1], step=values.step)


def distributions_of(space: Space, params: dict[str, Scalar]) -> dict[str, BaseDistribution]:
    return {
        each.name: distribution_of(each.values) for each in space.parameters if each.name in params
    }


def suggest(trial: optuna.Trial, space: Space) -> dict[str, Scalar]:
    """Let Optuna choose a value for every parameter whose conditions hold."""
    chosen: dict[str, Scalar] = {}
    for parameter in space.parameters:
        if parameter.is_there(chosen):
            chosen[parameter.name] = _suggest(trial, parameter)
    return chosen


def _suggest(trial: optuna.Trial, parameter: Parameter) -> Scalar:
    found: Any = distribution_of(parameter.values)
    name = parameter.name
    value: Scalar
    if isinstance(found, CategoricalDistribution):
        value = trial.suggest_categorical(name, found.choices)
    elif isinstance(found, IntDistribution):
        value = trial.suggest_int(name, found.low, found.high, step=found.step, log=found.log)
    else:
        value = trial.suggest_float(name, found.low, found.high, step=found.step, log=found.log)
        return _as_written(parameter.values, value)
    return value


def _as_written(values: Choice | Range, value: float) -> float:
    """Return the point of the range nearest to ``value``: Optuna returns 0.30000000000000004."""
    points = values.points() if isinstance(values, Range) and values.step is not None else None
    return min(points, key=lambda point: abs(point - value)) if points else value


def export_study(sweep_id: str, progress: SweepProgress, target: Path) -> None:
    """Write the study ``sweep_id`` to ``target``, a new file in Optuna's journal format.

    The study has each trial under its number, with all points that its runs have reported. The user
    attributes of a trial are the ids of its runs and the constants of the space.

    Raises:
        InputError: ``target`` exists.
    """
    constants = progress.spec.space.constants
    with tempfile.TemporaryDirectory() as folder, quiet():
        path = Path(folder) / "study"
        study = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(path))),
            study_name=sweep_id,
            directions=[goal.direction.value for goal in progress.spec.goals],
        )
        study.set_metric_names([goal.metric for goal in progress.spec.goals])
        for trial in progress.trials:
            frozen = frozen_trial(progress, trial, points=trial.points())
            frozen.user_attrs = {**constants, "runs": trial.all_runs}
            frozen.system_attrs = {
                name: value for name, value in trial.attrs.items() if not name.startswith(_PICKLED)
            }
            study.add_trial(frozen)
        data = path.read_bytes()
    if os.path.lexists(target):
        raise InputError(
            f"{target} exists",
            next_action=f"name another file, or remove this one: rm {shell_word(target)}",
        )
    write_durably(target, data)
