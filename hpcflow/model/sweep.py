"""The schema of a sweep's YAML.

The section ``space`` is in :mod:`hpcflow.model.space_section`, the run of each trial in
:mod:`hpcflow.model.spec`. :mod:`hpcflow.config.sweep` reads files into this schema.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    model_validator,
)

from hpcflow.model.kinds import (
    CountOrNone,
    Metric,
    Name,
    Path,
    Seconds,
    Section,
    WrongKey,
)
from hpcflow.model.numbers import (
    MAX_TRIALS,
    Amount,
    Number,
    Parallel,
    Repeats,
    Trials,
    not_zero,
)
from hpcflow.model.pruner import Per, Pruner, PrunerKind
from hpcflow.model.sampler import Sampler, SamplerKind
from hpcflow.model.scalars import shown
from hpcflow.model.space import MAX_POINTS, Choice, Parameter, Scalar, is_one_of
from hpcflow.model.space_section import SpaceField, all_wrong

#: The name of a trial's run is the sweep's with ``-t99999r99`` appended, within the limit of names.
MAX_NAME_CHARS: Final = 50


class Direction(str, Enum):
    """Which value of a metric is better."""

    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"


class Submit(str, Enum):
    """How trials are submitted."""

    SINGLE = "single"
    ARRAY = "array"


class Objective(Section):
    """A metric that the program reports, and which way it should go."""

    metric: Metric = Field(
        description="The name under which the program logs it or passes it to `run.finish()`. The "
        "last value counts.",
        examples=["accuracy"],
    )
    direction: Direction = Field(
        description="Whether the lowest value is the best, or the highest.", examples=["maximize"]
    )


class Budget(Section):
    """When a sweep ends: when the first of these limits is reached. Running trials are finished."""

    trials: Trials | None = Field(
        None, description="The number of trials, including failed and pruned ones.", examples=[60]
    )
    gpu_hours: Amount | None = Field(
        None,
        description="GPU hours of all trials together. No trial is started that could exceed them.",
        examples=[100],
    )
    cost_usd: Amount | None = Field(
        None,
        description="USD for all trials together, by the prices of the site. No trial is started "
        "that could exceed them.",
        examples=[250],
    )
    deadline_s: Annotated[Seconds, AfterValidator(not_zero)] | None = Field(
        None,
        alias="deadline",
        description="No trial is started when this much time has passed since the sweep started.",
        examples=["2d"],
    )
    target: Number | None = Field(
        None,
        description="No trial is started when one has reached this value of the objective. Not "
        "allowed with several objectives.",
        examples=[0.98],
    )

    @property
    def ends(self) -> bool:
        """Return whether a sweep with this budget ends by itself."""
        parts = (self.trials, self.gpu_hours, self.cost_usd, self.deadline_s)
        return any(part is not None for part in parts)


def _from_type_name(kinds: type[SamplerKind] | type[PrunerKind]) -> BeforeValidator:
    """Return a validator that turns ``tpe`` into ``{type: tpe}``."""
    words = [kind.value for kind in kinds]

    def full(value: object) -> object:
        if isinstance(value, str) and value not in words:
            raise ValueError(f"expected one of {', '.join(words)}")
        return {"type": value} if isinstance(value, str) else value

    return BeforeValidator(full)


class SweepSpec(Section):
    """A sweep as its user requested it."""

    name: Name = Field(
        json_schema_extra={"maxLength": MAX_NAME_CHARS},
        description="Name of the sweep; its id and the names of its runs are made from it. At most "
        f"{MAX_NAME_CHARS} characters.",
        examples=["digits-tpe"],
    )
    base: Path = Field(
        description="The YAML file of the run that each trial executes, relative to the file that "
        "names it. The values of a trial override its `params`.",
        examples=["config.yaml"],
    )
    space: SpaceField = Field(
        description="The parameters: `{choices: […]}`, or `{low:, high:}`, with `step` or `log` if "
        "you like. If `low` and `high` are whole numbers, so are all values. With `when`, a "
        "parameter exists only if others have certain values. A single value is the same in all "
        "trials.",
        examples=[{"lr": {"low": 1e-5, "high": 0.1, "log": True}}],
    )
    objective: Objective | None = Field(None, description=Objective.__doc__)
    objectives: list[Objective] | None = Field(
        None,
        json_schema_extra={"minItems": 2},
        description="Several objectives instead of one. The result is a Pareto front, and there is "
        "no best trial.",
    )
    sampler: Annotated[Sampler, _from_type_name(SamplerKind)] = Field(
        default_factory=lambda: Sampler(), description=Sampler.__doc__
    )
    pruner: Annotated[Pruner, _from_type_name(PrunerKind)] = Field(
        default_factory=lambda: Pruner(), description=Pruner.__doc__
    )
    parallel: Parallel | None = Field(
        None,
        description="How many trials are pending or running in Slurm at once. With a few more than "
        "can run, no GPU is idle between two rounds. Default: 1; for pbt, its population.",
        examples=[8],
    )
    submit: Submit = Field(
        Submit.SINGLE,
        description="`single`: a job for each run. `array`: runs that are submitted at the "
        "same time are one Slurm array, which is faster for hundreds of runs; each is resubmitted "
        "on its own.",
        examples=["array"],
    )
    budget: Budget = Field(default_factory=lambda: Budget(), description=Budget.__doc__)
    start_from: list[dict[str, Any]] = Field(
        default_factory=list,
        json_schema_extra={"maxItems": MAX_TRIALS},
        description="Values of the first trials. The sampler chooses the parameters that are not "
        "given.",
        examples=[[{"lr": 0.001}]],
    )
    repeats: Repeats = Field(
        1,
        description="Number of runs of each trial; the mean of their values counts. They differ "
        "in $HPCFLOW_REPEAT and, if the run's `params` have a `seed`, in the seed: it is increased "
        "by 0, 1, ….",
        examples=[3],
    )
    retries: CountOrNone = Field(
        0,
        description="How often a run that has finally failed is trained again with the same values "
        "before its trial counts as failed.",
        examples=[1],
    )

    @model_validator(mode="after")
    def _complete(self) -> SweepSpec:
        problems = [
            *self._wrong_objectives(),
            *self._wrong_sampler(),
            *self._wrong_budget(),
            *self._wrong_starts(),
        ]
        if len(self.name) > MAX_NAME_CHARS:
            problems.insert(0, WrongKey(f"longer than {MAX_NAME_CHARS} characters", "name"))
        if problems:
            raise all_wrong(problems, {})
        return self

    def _wrong_objectives(self) -> Iterator[WrongKey]:
        if self.objective is not None and self.objectives is not None:
            yield WrongKey("give either `objective` or `objectives`, not both", "objectives")
        elif self.objectives is None:
            if self.objective is None:
                yield WrongKey(
                    "is missing; write it like `objective: {metric: accuracy, direction: "
                    "maximize}`",
                    "objective",
                )
        elif len(self.objectives) < 2:
            yield WrongKey("give at least two, or `objective`", "objectives")
        else:
            yield from self._wrong_several([each.metric for each in self.objectives])

    def _wrong_several(self, metrics: list[str]) -> Iterator[WrongKey]:
        for index, metric in enumerate(metrics):
            if metric in metrics[:index]:
                yield WrongKey("the same metric twice", "objectives", index, "metric")
        if self.pruner.kind is not PrunerKind.NONE:
            yield WrongKey("not allowed with several objectives", "pruner")
        if self.budget.target is not None:
            yield WrongKey("not allowed with several objectives", "budget", "target")
        if self.sampler.kind is SamplerKind.CMAES:
            yield WrongKey("cmaes supports one objective; use nsga2 or tpe", "sampler")
        if self.sampler.kind is SamplerKind.PBT:
            yield WrongKey("pbt supports one objective; use nsga2 or tpe", "sampler")

    def _wrong_sampler(self) -> Iterator[WrongKey]:
        kind = self.sampler.kind
        if kind is SamplerKind.GRID:
            yield from self._wrong_grid()
        elif kind is SamplerKind.PBT:
            yield from self._wrong_population()
        elif kind in (SamplerKind.CMAES, SamplerKind.QMC) and self.space.is_conditional:
            yield WrongKey(f"{kind.value} supports no conditions; use tpe", "sampler")
        elif kind is SamplerKind.CMAES:
            choices = [e.name for e in self.space.parameters if isinstance(e.values, Choice)]
            if choices:
                yield WrongKey(
                    f"cmaes supports only numbers, but {choices[0]} has choices; use tpe", "sampler"
                )
            elif len(self.space.parameters) < 2:
                yield WrongKey("cmaes needs at least two parameters that vary; use tpe", "sampler")

    def _wrong_grid(self) -> Iterator[WrongKey]:
        uncountable = self.space.uncountable()
        for name in uncountable:
            yield WrongKey(
                "a grid needs values that can be counted: give a `step`, or `choices`",
                "space",
                name,
            )
        number = None if uncountable else self.space.number_of_combinations()
        if not uncountable and (number is None or number > MAX_POINTS):
            yield WrongKey(
                f"more than {MAX_POINTS:,} combinations; give fewer values, or use another sampler",
                "space",
            )
        if self.start_from:
            yield WrongKey("not needed: a grid tries every combination", "start_from")

    def _wrong_population(self) -> Iterator[WrongKey]:
        """Yield what cannot be combined with population based training."""
        if self.pruner.kind is not PrunerKind.NONE:
            yield WrongKey("pbt itself decides which trials end; write `type: none`", "pruner")
        if self.repeats > 1:
            yield WrongKey("must be 1 with pbt", "repeats")
        if self.start_from:
            yield WrongKey("not allowed with pbt, which starts from random values", "start_from")
        if self.parallel == 1:
            yield WrongKey("pbt trains in parallel; remove this key, or give 2 or more", "parallel")
        if self.submit is Submit.ARRAY:
            yield WrongKey("pbt submits each run on its own; write `single`", "submit")
        interval = self.sampler.interval_or_default
        if self.pruner.per is Per.PERCENT and interval >= 100:
            yield WrongKey("must be less than 100 percent", "sampler", "interval")
        if interval % self.pruner.every:
            yield WrongKey("must be a multiple of pruner.every", "sampler", "interval")

    def _wrong_budget(self) -> Iterator[WrongKey]:
        if not self.budget.ends and self.sampler.kind not in (SamplerKind.GRID, SamplerKind.PBT):
            yield WrongKey(
                "needs a limit: `trials`, `gpu_hours`, `cost_usd` or `deadline`; write it like "
                "`budget: {trials: 60}`",
                "budget",
            )

    def _wrong_starts(self) -> Iterator[WrongKey]:
        by_name = {each.name: each for each in self.space.parameters}
        if len(self.start_from) > MAX_TRIALS:
            yield WrongKey(f"more than {MAX_TRIALS:,}", "start_from")
        for index, params in enumerate(self.start_from):
            for name, value in params.items():
                if (said := _wrong_start(by_name, params, name, value)) is not None:
                    yield WrongKey(said, "start_from", index, name)

    @property
    def goals(self) -> list[Objective]:
        return self.objectives or ([self.objective] if self.objective else [])

    @property
    def parallel_or_default(self) -> int:
        """Return how many trials are pending or running in Slurm at once."""
        is_population = self.sampler.kind is SamplerKind.PBT
        return self.parallel or (self.sampler.population_or_default if is_population else 1)

    def most_trials(self, budget: Budget) -> int | None:
        """Return the most trials with ``budget``; None if something else ends the sweep."""
        counts = [budget.trials]
        if self.sampler.kind is SamplerKind.GRID:
            counts.append(self.space.number_of_combinations())
        return min((count for count in counts if count is not None), default=None)


def _wrong_start(
    by_name: dict[str, Parameter], params: dict[str, Any], name: str, value: object
) -> str | None:
    """Return what is wrong with one value in ``start_from``; None if nothing is."""
    parameter = by_name.get(name)
    if parameter is None:
        return f"not a parameter that varies; there are: {', '.join(by_name)}"
    for other, values in parameter.when.items():
        if other in params and not is_one_of(params[other], values):
            return f"does not exist if {other} is {shown(params[other])}"
    return parameter.complaint(value)


def trial_params(spec: SweepSpec, chosen: dict[str, Scalar]) -> dict[str, Scalar]:
    """Return all parameters of a trial: the constants of the space, and the chosen values."""
    return {**spec.space.constants, **chosen}
