"""The sampler of a sweep: a section of a sweep's YAML."""

from __future__ import annotations

from enum import Enum

from pydantic import (
    Field,
    model_validator,
)

from hpcflow.model.kinds import (
    CountOrNone,
    Section,
    WrongKey,
)
from hpcflow.model.numbers import (
    FromTwo,
    Points,
    Quantile,
    Seed,
)


class SamplerKind(str, Enum):
    """Optuna's samplers, and population based training."""

    GRID = "grid"
    RANDOM = "random"
    TPE = "tpe"
    GP = "gp"
    CMAES = "cmaes"
    QMC = "qmc"
    NSGA2 = "nsga2"
    PBT = "pbt"


class Sampler(Section):
    """How the values of the next trial are chosen. `sampler: tpe` is short for `{type: tpe}`."""

    kind: SamplerKind = Field(
        SamplerKind.TPE,
        alias="type",
        description="`grid`: every combination once. `random`. `tpe`: tree-structured Parzen "
        "estimators. `gp`: a Gaussian process, for few and costly trials. `cmaes`: CMA-ES, only "
        "for numbers. `qmc`: a Sobol sequence. `nsga2`: a genetic algorithm, for several "
        "objectives. `pbt`: population based training. It ends the worst trials early, and starts "
        "new ones from the checkpoints of the best, with other values.",
        examples=["gp"],
    )
    seed: Seed = Field(
        0, description="Two sweeps with the same seed begin with the same trials.", examples=[7]
    )
    startup_trials: CountOrNone | None = Field(
        None,
        description="For tpe, gp and cmaes: the number of random trials before the first chosen "
        "one. Default: 10; for cmaes 1.",
        examples=[20],
    )
    population: FromTwo | None = Field(
        None,
        description="For nsga2 and cmaes: trials in a generation. For pbt: trials that train at "
        "the same time. Default for pbt: 8.",
        examples=[24],
    )
    interval: Points | None = Field(
        None,
        description="For pbt: how far a trial trains between two comparisons with the others, in "
        "the unit of `pruner.per` (default: percent). Default: 20.",
        examples=[10],
    )
    quantile: Quantile | None = Field(
        None,
        description="For pbt: the fraction of the population that is ended, and also the fraction "
        "whose checkpoints are used. Default: 0.25.",
        examples=[0.2],
    )

    @model_validator(mode="after")
    def _check_keys(self) -> Sampler:
        kinds_of = {
            "startup_trials": (SamplerKind.TPE, SamplerKind.GP, SamplerKind.CMAES),
            "population": (SamplerKind.NSGA2, SamplerKind.CMAES, SamplerKind.PBT),
            "interval": (SamplerKind.PBT,),
            "quantile": (SamplerKind.PBT,),
        }
        for key, kinds in kinds_of.items():
            if getattr(self, key) is not None and self.kind not in kinds:
                raise WrongKey(f"does not apply to {self.kind.value}", key)
        return self

    @property
    def population_or_default(self) -> int:
        """Return the number of parallel trainings of pbt."""
        return self.population or 8

    @property
    def interval_or_default(self) -> int:
        """Return how far pbt trains between two comparisons."""
        return self.interval or 20

    @property
    def quantile_or_default(self) -> float:
        """Return the fraction of the population that pbt ends, and that it copies from."""
        return self.quantile or 0.25
