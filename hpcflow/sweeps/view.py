"""A sweep as it is shown: counts, the best trial, cost, savings, and its estimated end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from hpcflow.model.sweep_records import Sweep
from hpcflow.storage.sweeps import SweepDir, read_journal, read_sweep
from hpcflow.sweeps.state import (
    SweepProgress,
    Trial,
    TrialState,
    fold,
    named_values,
    spent,
)


@dataclass(frozen=True)
class TrialView:
    """One trial.

    Attributes:
        at: its newest point, in the unit of the pruner; None if it has reported none.
        newest: the newest value of each objective.
        saved_s: seconds saved by pruning it, estimated from the mean of complete trials; None if it
            was not pruned.
    """

    trial: int
    state: str
    params: Mapping[str, Any]
    values: Mapping[str, float]
    newest: Mapping[str, float | None]
    at: int | None
    why: str | None
    runs: list[str]
    asked_at: datetime
    ended_at: datetime | None
    seconds: float | None
    gpu_hours: float | None
    cost_usd: str | None
    saved_s: float | None = None


@dataclass(frozen=True)
class SweepSummary:
    """One sweep, without its trials.

    Attributes:
        best: the Pareto front; with one objective at most one trial.
        saved_s: seconds of attempts that pruning has saved, estimated.
        over_at: when it may be over, extrapolated from its pace.
    """

    sweep_id: str
    name: str
    state: str
    why: str | None
    next_action: str | None
    user: str
    site: str
    created_at: datetime
    goals: Mapping[str, str]
    sampler: str
    pruner: str
    parallel: int
    max_trials: int | None
    running: int
    complete: int
    pruned: int
    failed: int
    best: list[TrialView]
    gpu_hours: float
    cost_usd: str | None
    seconds: float
    saved_s: float
    saved_gpu_hours: float
    over_at: datetime | None = None


@dataclass(frozen=True)
class SweepView(SweepSummary):
    """One sweep with its trials."""

    trials: list[TrialView] = field(default_factory=list)

    @property
    def summary(self) -> SweepSummary:
        names = [each.name for each in fields(SweepSummary)]
        return SweepSummary(**{name: getattr(self, name) for name in names})


def look(sweep_dir: SweepDir) -> tuple[Sweep, SweepProgress]:
    sweep = read_sweep(sweep_dir)
    return sweep, fold(sweep.spec, sweep.created_at, read_journal(sweep_dir))


def sweep_view(sweep: Sweep, progress: SweepProgress, now: datetime) -> SweepView:
    spec = sweep.spec
    whole_s = _whole_s(progress)
    trials = [trial_view(progress, trial, whole_s) for trial in progress.trials]
    front = {trial.number for trial in progress.front()}
    hours, money = spent(progress.trials)
    halted = progress.halted if progress.stop is None and progress.over is None else None
    has_price = any(t.closed is not None and t.closed.cost_usd for t in progress.trials)
    pruned = [trial for trial in trials if trial.saved_s is not None]
    return SweepView(
        sweep_id=sweep.sweep_id,
        name=spec.name,
        state=progress.state.value,
        why=_why(progress),
        next_action=halted.next_action if halted else None,
        user=sweep.user,
        site=sweep.site,
        created_at=sweep.created_at,
        goals={goal.metric: goal.direction.value for goal in spec.goals},
        sampler=spec.sampler.kind.value,
        pruner=spec.pruner.kind.value,
        parallel=progress.parallel,
        max_trials=progress.spec.most_trials(progress.budget),
        running=progress.count(TrialState.RUNNING),
        complete=progress.count(TrialState.COMPLETE),
        pruned=progress.count(TrialState.PRUNED),
        failed=progress.count(TrialState.FAILED),
        best=[trial for trial in trials if trial.trial in front],
        gpu_hours=round(hours, 4),
        cost_usd=str(money.quantize(Decimal("0.01"))) if has_price else None,
        seconds=round(sum(trial.seconds or 0.0 for trial in trials), 1),
        saved_s=round(sum(trial.saved_s or 0.0 for trial in pruned), 1),
        saved_gpu_hours=round(sum(_saved_gpu_hours(trial) for trial in pruned), 4),
        over_at=_over_at(progress, now),
        trials=trials,
    )


def trial_view(progress: SweepProgress, trial: Trial, whole_s: float | None) -> TrialView:
    closed, told = trial.closed, trial.told
    points = trial.points()
    saved_s = None
    if trial.state is TrialState.PRUNED and closed is not None and whole_s is not None:
        saved_s = max(0.0, whole_s - closed.seconds)
    return TrialView(
        trial=trial.number,
        state=trial.state.value,
        params={**progress.spec.space.constants, **trial.params},
        values=named_values(progress.spec, trial.values),
        newest=trial.newest(),
        at=max(points) if points else None,
        why=told.why if told else None,
        runs=trial.all_runs,
        asked_at=trial.asked_at,
        ended_at=told.at if told else None,
        seconds=closed.seconds if closed else None,
        gpu_hours=closed.gpu_hours if closed else None,
        cost_usd=closed.cost_usd if closed else None,
        saved_s=saved_s,
    )


def _saved_gpu_hours(trial: TrialView) -> float:
    if not trial.seconds or trial.gpu_hours is None:
        return 0.0
    return (trial.saved_s or 0.0) * trial.gpu_hours / trial.seconds


def _whole_s(progress: SweepProgress) -> float | None:
    """Return the mean seconds of a complete trial; None if no trial is complete."""
    took = [
        trial.closed.seconds
        for trial in progress.trials
        if trial.closed is not None and trial.state is TrialState.COMPLETE
    ]
    return sum(took) / len(took) if took else None


def _why(progress: SweepProgress) -> str | None:
    if progress.over is not None:
        return progress.over.why
    if progress.stop is not None:
        return f"{progress.stop.by} stopped it"
    return progress.halted.why if progress.halted is not None else None


def _over_at(progress: SweepProgress, now: datetime) -> datetime | None:
    """Extrapolate when the sweep is over, from its pace until the last ended trial."""
    most = progress.spec.most_trials(progress.budget)
    ended = sum(trial.told is not None for trial in progress.trials)
    if most is None or not ended or progress.state.value != "running":
        return None
    begun = min(trial.asked_at for trial in progress.trials)
    last = max(trial.told.at for trial in progress.trials if trial.told is not None)
    pace_s = (last - begun).total_seconds() / ended
    try:
        at = last + timedelta(seconds=pace_s * max(0, most - ended))
    except OverflowError:  # a clock was centuries off
        return None
    deadline_s = progress.budget.deadline_s
    if deadline_s is not None:
        at = min(at, max(now, progress.started_at + timedelta(seconds=deadline_s)))
    return at
