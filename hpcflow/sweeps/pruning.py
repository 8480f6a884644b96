"""Create the pruner that a sweep's file names."""

from __future__ import annotations

import optuna

from hpcflow.model.pruner import Pruner, PrunerKind

_REDUCTION: int = 3
_STARTUP: int = 5


def pruner_for(asked: Pruner) -> optuna.pruners.BasePruner:
    startup = _STARTUP if asked.startup_trials is None else asked.startup_trials
    warmup = asked.warmup or 0
    factor = asked.reduction_factor or _REDUCTION
    if asked.kind is PrunerKind.MEDIAN:
        return optuna.pruners.MedianPruner(n_startup_trials=startup, n_warmup_steps=warmup)
    if asked.kind is PrunerKind.PERCENTILE:
        return optuna.pruners.PercentilePruner(
            asked.percentile or 25.0, n_startup_trials=startup, n_warmup_steps=warmup
        )
    if asked.kind is PrunerKind.ASHA:
        return optuna.pruners.SuccessiveHalvingPruner(
            min_resource=asked.lowest, reduction_factor=factor
        )
    if asked.kind is PrunerKind.HYPERBAND:
        return optuna.pruners.HyperbandPruner(
            min_resource=asked.lowest, max_resource=asked.highest or "auto", reduction_factor=factor
        )
    if asked.kind is PrunerKind.PATIENCE:
        return optuna.pruners.PatientPruner(
            None, patience=asked.patience or 1, min_delta=asked.min_delta or 0.0
        )
    if asked.kind is PrunerKind.THRESHOLD:
        return optuna.pruners.ThresholdPruner(
            lower=asked.lower, upper=asked.upper, n_warmup_steps=warmup
        )
    return optuna.pruners.NopPruner()
