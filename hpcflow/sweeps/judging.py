"""Decide which running trials to prune."""

from __future__ import annotations

from hpcflow.model.pruner import PrunerKind
from hpcflow.model.sweep_records import Judged
from hpcflow.sweeps.population import is_among_worst, next_point, source_for
from hpcflow.sweeps.round import Round
from hpcflow.sweeps.state import Trial


def judge(this: Round) -> None:
    """Judge running trials by the pruner, or by their population."""
    for trial in this.progress.open:
        if trial.is_doomed and trial.told is None:  # a round was killed between the two records
            _prune(this, trial)
    if this.is_population:
        _judge_population(this)
    if this.progress.spec.pruner.kind is PrunerKind.NONE:
        return
    for trial in this.progress.open:
        if trial.told is not None or trial.is_finished:
            continue
        if not any(point > trial.judged_to for point in trial.points()):
            continue
        verdict = this.study_to_judge().judge(trial)
        if verdict is None:
            continue
        this.write(
            Judged(
                at=this.around.clock.now(),
                trial=trial.number,
                to=verdict.to,
                attrs=verdict.attrs,
                prune=verdict.prune,
            )
        )
        if verdict.prune:
            _prune(this, trial)


def _judge_population(this: Round) -> None:
    """Prune the worst trials of a population, if a better one has a checkpoint to continue from."""
    progress = this.progress
    for trial in progress.open:
        if trial.told is not None or trial.is_finished:
            continue
        point = next_point(progress, trial)
        is_worst = None if point is None else is_among_worst(progress, trial, point)
        if point is None or is_worst is None:
            continue
        if is_worst:
            source = source_for(progress, trial, point)
            if source is None or not this.runs.has_checkpoint(source.current_runs[0]):
                continue  # a better trial may reach the point or save a checkpoint later
        now = this.around.clock.now()
        this.write(Judged(at=now, trial=trial.number, to=point, prune=is_worst))
        if is_worst:
            _prune(this, trial)


def _prune(this: Round, trial: Trial) -> None:
    """Tell that a trial is pruned at the last point that was judged."""
    point = trial.judged_to
    value = trial.points().get(point)
    this.tell(
        trial,
        "pruned",
        values=[] if value is None else [value],
        why=f"at {this.progress.spec.pruner.per.value} {point}",
    )
