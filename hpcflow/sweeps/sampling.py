"""Create the sampler and the pruner that a sweep's file names.

The sampler is created for each new trial, with a seed from the sweep's seed and the number of the
trial. So the same sweep asks for the same trials, even if a round is killed between two trials.
"""

from __future__ import annotations

import random
from importlib.util import find_spec
from typing import Final

import optuna

from hpcflow.errors import InputError, Where
from hpcflow.model.pruner import Pruner, PrunerKind
from hpcflow.model.sampler import SamplerKind
from hpcflow.model.space import Scalar
from hpcflow.model.sweep import SweepSpec

#: Packages needed beside Optuna.
_NEEDS: Final = {
    SamplerKind.GP: ("scipy", "torch"),
    SamplerKind.CMAES: ("cmaes",),
    SamplerKind.QMC: ("scipy",),
}
_STARTUP: Final = 10
_PRUNER_STARTUP: Final = 5
_REDUCTION: Final = 3


def require_sampler(spec: SweepSpec) -> None:
    """Raise InputError if a package that the sampler needs is not installed."""
    missing = [name for name in _NEEDS.get(spec.sampler.kind, ()) if find_spec(name) is None]
    if missing:
        raise InputError(
            f"the sampler {spec.sampler.kind.value} needs {' and '.join(missing)}, where hpcflow "
            "is installed",
            where=Where(key="sampler"),
            next_action=f"pip install {' '.join(missing)}; or use another sampler, such as tpe",
        )


def sampler_for(spec: SweepSpec, number: int) -> optuna.samplers.BaseSampler:
    asked = spec.sampler
    seed = random.Random(f"{asked.seed}/{number}").randrange(2**32)  # noqa: S311 - no secret
    startup = _STARTUP if asked.startup_trials is None else asked.startup_trials
    is_alone = spec.parallel_or_default == 1
    if asked.kind is SamplerKind.TPE:
        is_conditional = spec.space.is_conditional
        return optuna.samplers.TPESampler(
            seed=seed,
            n_startup_trials=startup,
            multivariate=True,
            group=is_conditional,
            # Otherwise trials asked for at once would be close to each other.
            constant_liar=not is_alone,
            warn_independent_sampling=False,
        )
    if asked.kind is SamplerKind.GP:
        return optuna.samplers.GPSampler(seed=seed, n_startup_trials=startup)
    if asked.kind is SamplerKind.CMAES:
        return optuna.samplers.CmaEsSampler(
            seed=seed,
            n_startup_trials=1 if asked.startup_trials is None else asked.startup_trials,
            popsize=asked.population,
            warn_independent_sampling=False,
        )
    if asked.kind is SamplerKind.QMC:
        # The study holds the place in the sequence, so the sequence must stay the same.
        return optuna.samplers.QMCSampler(
            seed=asked.seed, scramble=True, warn_independent_sampling=False
        )
    if asked.kind is SamplerKind.NSGA2:
        return optuna.samplers.NSGAIISampler(seed=seed, population_size=asked.population or 50)
    return optuna.samplers.RandomSampler(seed=seed)  # also for a grid, which fixes all values


def grid_of(spec: SweepSpec) -> list[dict[str, Scalar]]:
    """Return the combinations of a grid, in the order of its trials.

    The order is random, so that a sweep stopped early has covered the whole space.
    """
    points = list(spec.space.points())
    random.Random(spec.sampler.seed).shuffle(points)  # noqa: S311 - no secret
    return points


def pruner_for(asked: Pruner) -> optuna.pruners.BasePruner:
    startup = _PRUNER_STARTUP if asked.startup_trials is None else asked.startup_trials
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
