"""Fold the journal of a sweep into its trials and their states. Pure; no Optuna."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any

from hpcflow.errors import StorageError
from hpcflow.model.sweep import Budget, SweepSpec
from hpcflow.model.sweep_records import (
    Asked,
    Closed,
    GoOn,
    Halted,
    Judged,
    Late,
    Over,
    Read,
    Retried,
    StopRequested,
    SweepRecord,
    Told,
)
from hpcflow.resources import doc_page


class SweepState(str, Enum):
    RUNNING = "running"
    STOPPING = "stopping"  # no new trials; active ones run to their end
    STOPPED = "stopped"  # no new trials, and none is active
    HALTED = "halted"  # something is wrong with all trials; the user must act
    OVER = "over"  # the budget is used up, or the sampler has no more trials


class TrialState(str, Enum):
    RUNNING = "running"
    COMPLETE = "complete"
    PRUNED = "pruned"
    FAILED = "failed"


@dataclass
class RunReport:
    """The reports of one run of a trial.

    Attributes:
        offsets: attempt -> bytes of its events that were read.
        points: point -> the objective there; None if it was not finite.
        last: metric -> its newest value.
        others: names of other metrics.
        is_finished: its program reported the end of the training.
        said_by: metric -> the attempt of its newest value. A value of an earlier attempt is older,
            even if it is read later.
    """

    offsets: dict[int, int] = field(default_factory=dict)
    total: int | None = None
    points: dict[int, float | None] = field(default_factory=dict)
    last: dict[str, float | None] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)
    is_finished: bool = False
    said_by: dict[str, int] = field(default_factory=dict)


@dataclass
class Trial:
    """One trial.

    Attributes:
        params: the chosen values, without the constants.
        runs: for each repeat the ids of its runs: several if the repeat was retried.
        judged_to: the last point that the pruner has seen.
        judged: the points that the pruner has seen -> the objective there.
        is_doomed: it is to be pruned, but that is not told yet.
        replaces: with pbt: the pruned trial that it replaces.
        source: with pbt: the trial whose checkpoint it continues from.
        source_run: the run of that trial.
        start: its index in ``start_from``.
    """

    number: int
    params: dict[str, Any]
    runs: list[list[str]]
    how: str
    asked_at: datetime
    attrs: dict[str, Any] = field(default_factory=dict)
    replaces: int | None = None
    source: int | None = None
    source_run: str | None = None
    start: int | None = None
    reports: dict[str, RunReport] = field(default_factory=dict)
    judged_to: int = 0
    judged: dict[int, float | None] = field(default_factory=dict)
    is_doomed: bool = False
    told: Told | None = None
    closed: Closed | None = None

    @property
    def state(self) -> TrialState:
        return TrialState.RUNNING if self.told is None else TrialState(self.told.outcome)

    @property
    def is_closed(self) -> bool:
        return self.closed is not None

    @property
    def current_runs(self) -> list[str]:
        """The newest run of each repeat."""
        return [repeat[-1] for repeat in self.runs]

    @property
    def all_runs(self) -> list[str]:
        """All runs, also those that failed and were retried."""
        return [run_id for repeat in self.runs for run_id in repeat]

    @property
    def is_void(self) -> bool:
        """Whether it was stopped with its sweep, and so does not count."""
        return self.told is not None and self.told.stopped

    @property
    def values(self) -> list[float] | None:
        """Its objectives; None while it runs, or if none was told."""
        return self.told.values if self.told is not None and self.told.values else None

    def report(self, run_id: str) -> RunReport:
        return self.reports.setdefault(run_id, RunReport())

    def points(self) -> dict[int, float | None]:
        """Return point -> the mean objective of all repeats, for points that all have reached."""
        found = [self.reports.get(run_id, RunReport()).points for run_id in self.current_runs]
        if len(found) == 1:
            return found[0]
        common = set(found[0]).intersection(*found[1:])
        return {point: _mean([each[point] for each in found]) for point in sorted(common)}

    @property
    def is_finished(self) -> bool:
        """Whether all its programs reported their end: pruning would save nothing."""
        found = [self.reports.get(run_id) for run_id in self.current_runs]
        return all(report is not None and report.is_finished for report in found)

    def newest(self) -> dict[str, float | None]:
        """Return metric -> the mean newest value of all repeats, if all have one."""
        found = [self.reports.get(run_id, RunReport()).last for run_id in self.current_runs]
        common = [name for name in found[0] if all(name in each for each in found)]
        return {name: _mean([each[name] for each in found]) for name in common}


@dataclass
class SweepProgress:
    """The state of a sweep.

    Attributes:
        study_attrs: what sampler and pruner stored in the study.
        told_in_order: the trials that have ended, in the order in which they were told.
        looked_at: the length of ``told_in_order`` when the user last resumed the sweep.
        late_at: when a round last journaled that the deadline has passed.
    """

    spec: SweepSpec
    started_at: datetime
    budget: Budget
    parallel: int
    trials: list[Trial] = field(default_factory=list)
    study_attrs: dict[str, Any] = field(default_factory=dict)
    halted: Halted | None = None
    stop: StopRequested | None = None
    over: Over | None = None
    told_in_order: list[Trial] = field(default_factory=list)
    looked_at: int = 0
    late_at: datetime | None = None

    @property
    def open(self) -> list[Trial]:
        """Trials with a run that may be active."""
        return [trial for trial in self.trials if not trial.is_closed]

    @property
    def state(self) -> SweepState:
        if self.over is not None:
            return SweepState.OVER
        if self.stop is not None:
            return SweepState.STOPPING if self.open else SweepState.STOPPED
        return SweepState.HALTED if self.halted is not None else SweepState.RUNNING

    @property
    def is_at_rest(self) -> bool:
        """Whether a round has nothing to do."""
        return self.state in (SweepState.OVER, SweepState.STOPPED) or (
            self.state is SweepState.HALTED and not self.open
        )

    @property
    def is_several(self) -> bool:
        return len(self.spec.goals) > 1

    def is_better(self, one: float, other: float) -> bool:
        """Whether ``one`` is the better value of the one objective."""
        is_max = self.spec.goals[0].direction.value == "maximize"
        return one > other if is_max else one < other

    def best(self) -> Trial | None:
        """Return the best complete trial; None if there is none, or with several objectives."""
        if self.is_several:
            return None
        best: Trial | None = None
        for trial in self.trials:
            if trial.state is not TrialState.COMPLETE or not trial.values:
                continue
            if best is None or self.is_better(trial.values[0], (best.values or [0.0])[0]):
                best = trial
        return best

    def front(self) -> list[Trial]:
        """Return the Pareto front of the complete trials; with one objective the best trial."""
        if not self.is_several:
            best = self.best()
            return [best] if best is not None else []
        done = [trial for trial in self.trials if trial.state is TrialState.COMPLETE]
        signs = [1 if goal.direction.value == "minimize" else -1 for goal in self.spec.goals]
        scores = [[s * v for s, v in zip(signs, t.values or [], strict=True)] for t in done]
        return [
            trial
            for trial, score in zip(done, scores, strict=True)
            if not any(_dominates(other, score) for other in scores)
        ]

    def count(self, state: TrialState) -> int:
        return sum(trial.state is state for trial in self.trials)


def fold(spec: SweepSpec, started_at: datetime, records: Iterable[SweepRecord]) -> SweepProgress:
    progress = SweepProgress(spec, started_at, spec.budget, spec.parallel_or_default)
    for record in records:
        apply(progress, record)
    return progress


def apply(progress: SweepProgress, record: SweepRecord) -> None:
    if isinstance(record, (Read, Judged, Told, Closed, Retried)):
        if record.trial < len(progress.trials):
            _apply_to(progress, progress.trials[record.trial], record)
    elif isinstance(record, Asked):
        if record.trial > len(progress.trials):
            raise _damaged(f"trial {len(progress.trials)} is missing before trial {record.trial}")
        if len(record.runs) != progress.spec.repeats:
            raise _damaged(f"trial {record.trial} has {len(record.runs)} runs")
        if record.trial == len(progress.trials):
            progress.trials.append(_trial(record))
            progress.study_attrs.update(record.study_attrs)
    elif isinstance(record, Halted):
        progress.halted = record
    elif isinstance(record, Late):
        progress.late_at = record.at
    elif isinstance(record, StopRequested):
        progress.stop = record
    elif isinstance(record, GoOn):
        _go_on(progress, record)
    else:
        progress.over = record


def _apply_to(
    progress: SweepProgress, trial: Trial, record: Retried | Read | Judged | Told | Closed
) -> None:
    if isinstance(record, Read):
        _read(trial.report(record.run), record)
    elif isinstance(record, Judged):
        trial.attrs.update(record.attrs)
        first, last = trial.judged_to, record.to
        trial.judged.update({p: v for p, v in trial.points().items() if first < p <= last})
        trial.judged_to = max(first, last)
        trial.is_doomed = trial.is_doomed or record.prune
    elif isinstance(record, Told):
        if len(record.values) not in _numbers_of_values(progress.spec, record):
            raise _damaged(f"trial {record.trial} has {len(record.values)} values")
        if trial.told is None:
            trial.told = record
            progress.told_in_order.append(trial)
    elif isinstance(record, Closed):
        trial.closed = record
    else:
        for repeat in trial.runs:
            if repeat[-1] == record.failed:
                repeat.append(record.run)


def _numbers_of_values(spec: SweepSpec, record: Told) -> tuple[int, ...]:
    goals = len(spec.goals)
    return {"complete": (goals,), "pruned": (0, goals), "failed": (0,)}[record.outcome]


def _damaged(what: str) -> StorageError:
    return StorageError(
        f"the sweep's journal is damaged: {what}",
        next_action="no more trials are submitted; list the runs: hpcflow ls --all; start the "
        "sweep again under another name",
    )


def _trial(record: Asked) -> Trial:
    return Trial(
        record.trial,
        dict(record.params),
        [[run_id] for run_id in record.runs],
        record.how,
        record.at,
        dict(record.attrs),
        record.replaces,
        record.source,
        record.source_run,
        record.start,
    )


def _read(report: RunReport, record: Read) -> None:
    report.offsets[record.attempt] = record.offset_bytes
    report.total = record.total or report.total
    # The first value of a point counts. If all are new, as nearly always, a copy is much faster.
    points = dict(record.points)
    if report.points or len(points) < len(record.points):
        add = report.points.setdefault
        for point, value in record.points:
            add(point, value)
    else:
        report.points = points
    for name, value in record.last.items():
        if record.attempt >= report.said_by.get(name, 0):
            report.last[name], report.said_by[name] = value, record.attempt
    report.others.update(record.others)
    report.is_finished = report.is_finished or record.finished


def _go_on(progress: SweepProgress, record: GoOn) -> None:
    progress.stop = progress.halted = progress.over = progress.late_at = None
    progress.looked_at = len(progress.told_in_order)
    progress.parallel = record.parallel or progress.parallel
    if record.budget is not None:
        try:
            progress.budget = Budget.model_validate(record.budget, by_alias=True, by_name=False)
        except ValueError as error:
            raise StorageError(
                f"the sweep's journal has a budget that this hpcflow cannot read: "
                f"{str(error).splitlines()[0]}",
                next_action=f"update it: {doc_page('installation')}",
            ) from None


def _mean(values: list[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(values):
        return None
    try:
        return math.fsum(numbers) / len(numbers)
    except OverflowError:  # all are finite, and so is their mean
        return math.fsum(number / len(numbers) for number in numbers)


def _dominates(one: list[float], other: list[float]) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def spent(trials: Iterable[Trial]) -> tuple[float, Decimal]:
    """Return GPU hours and USD of the closed ones of ``trials``."""
    closed = [trial.closed for trial in trials if trial.closed is not None]
    hours = math.fsum(each.gpu_hours for each in closed)
    return hours, sum((Decimal(each.cost_usd) for each in closed if each.cost_usd), Decimal(0))


def failures_in_a_row(progress: SweepProgress) -> list[Trial]:
    """Return the trials that failed in a row until now, since the sweep was last resumed."""
    found: list[Trial] = []
    for trial in reversed(progress.told_in_order[progress.looked_at :]):
        if trial.is_void:
            continue
        if trial.state is not TrialState.FAILED:
            break
        found.append(trial)
    return found


def named_values(spec: SweepSpec, values: list[float] | None) -> Mapping[str, float]:
    names = [goal.metric for goal in spec.goals]
    return dict(zip(names, values, strict=True)) if values else {}
