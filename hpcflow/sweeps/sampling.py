"""Create the sampler that a sweep's file names.

It is created for each trial that is asked for, with a seed that follows from the sweep's and the
number of the trial: so the same sweep asks the same, even if killed between two trials.
"""

from __future__ import annotations

import random
from importlib.util import find_spec
from typing import Final

import optuna

from hpcflow.errors import InputError, Where
from hpcflow.model.sampler import SamplerKind
from hpcflow.model.space import Scalar
from hpcflow.model.sweep import SweepSpec

#: Beside Optuna itself.
_NEEDS: Final = {
    SamplerKind.GP: ("scipy", "torch"),
    SamplerKind.CMAES: ("cmaes",),
    SamplerKind.QMC: ("scipy",),
}
_STARTUP: Final = 10


def require_sampler(spec: SweepSpec) -> None:
    """Whether what the sampler needs is installed.

    Raises:
        InputError: it is not.
    """
    missing = [name for name in _NEEDS.get(spec.sampler.kind, ()) if find_spec(name) is None]
    if missing:
        raise InputError(
            f"the sampler {spec.sampler.kind.value} needs {' and '.join(missing)}, where hpcflow "
            "is installed",
            where=Where(key="sampler"),
            next_action=f"pip install {' '.join(missing)}; or take another sampler, such as tpe",
        )


def sampler_for(spec: SweepSpec, number: int) -> optuna.samplers.BaseSampler:
    """The sampler that chooses the values of trial ``number``."""
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
            # Else all that are asked for at once would be next to each other.
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
        # The place in the sequence is in the study; the sequence itself must stay the same one.
        return optuna.samplers.QMCSampler(
            seed=asked.seed, scramble=True, warn_independent_sampling=False
        )
    if asked.kind is SamplerKind.NSGA2:
        return optuna.samplers.NSGAIISampler(seed=seed, population_size=asked.population or 50)
    return optuna.samplers.RandomSampler(seed=seed)  # also beside a grid, which leaves no choice


def grid_of(spec: SweepSpec) -> list[dict[str, Scalar]]:
    """The combinations of a grid, in the order of its trials.

    That is one by chance, so that a sweep that is stopped early has seen all corners.
    """
    points = list(spec.space.points())
    random.Random(spec.sampler.seed).shuffle(points)  # noqa: S311 - no secret
    return points
