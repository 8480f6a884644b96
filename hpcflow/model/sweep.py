"""The schema of a sweep's YAML.

The section ``space`` is in :mod:`hpcflow.model.space_section`; the run that every trial is, in
:mod:`hpcflow.model.spec`. :mod:`hpcflow.config.sweep` reads files into this.
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

#: A trial's run is called after the sweep, with ``-t99999r99`` behind it, and names have an end.
MAX_NAME_CHARS: Final = 50


class Direction(str, Enum):
    """Which value of a metric is the better one."""

    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"


class Submit(str, Enum):
    """How trials are sent."""

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
        """Whether a sweep with this budget ends by itself."""
        parts = (self.trials, self.gpu_hours, self.cost_usd, self.deadline_s)
        return any(part is not None for part in parts)


def _by_its_type(kinds: type[SamplerKind] | type[PrunerKind]) -> BeforeValidator:
    """``tpe`` for ``{type: tpe}``."""
    words = [kind.value for kind in kinds]

    def full(value: object) -> object:
        if isinstance(value, str) and value not in words:
            raise ValueError(f"expected one of {', '.join(words)}")
        return {"type": value} if isinstance(value, str) else value

    return BeforeValidator(full)


class SweepSpec(Section):
    """A sweep as its user asked for it."""

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
    sampler: Annotated[Sampler, _by_its_type(SamplerKind)] = Field(
        default_factory=lambda: Sampler(), description=Sampler.__doc__
    )
    pruner: Annotated[Pruner, _by_its_type(PrunerKind)] = Field(
        default_factory=lambda: Pruner(), description=Pruner.__doc__
    )
    parallel: Parallel | None = Field(
        None,
        description="How many trials are pending or running in Slurm at once. A few more than can "
        "run keep all GPUs busy between two rounds. Default: 1; for pbt, its population.",
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
            yield WrongKey("no trial is ended early by several objectives", "pruner")
        if self.budget.target is not None:
            yield WrongKey("of which of the objectives?", "budget", "target")
        if self.sampler.kind is SamplerKind.CMAES:
            yield WrongKey("cmaes has one objective; take nsga2 or tpe", "sampler")
        if self.sampler.kind is SamplerKind.PBT:
            yield WrongKey("pbt has one objective; take nsga2 or tpe", "sampler")

    def _wrong_sampler(self) -> Iterator[WrongKey]:
        kind = self.sampler.kind
        if kind is SamplerKind.GRID:
            yield from self._wrong_grid()
        elif kind is SamplerKind.PBT:
            yield from self._wrong_population()
        elif kind in (SamplerKind.CMAES, SamplerKind.QMC) and self.space.is_conditional:
            yield WrongKey(f"{kind.value} knows no conditions; take tpe", "sampler")
        elif kind is SamplerKind.CMAES:
            choices = [e.name for e in self.space.parameters if isinstance(e.values, Choice)]
            if choices:
                yield WrongKey(
                    f"cmaes is for numbers alone, and {choices[0]} has choices; take tpe", "sampler"
                )
            elif len(self.space.parameters) < 2:
                yield WrongKey("cmaes needs two parameters that vary; take tpe", "sampler")

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
                f"more than {MAX_POINTS:,} combinations; give fewer values, or take another "
                "sampler",
                "space",
            )
        if self.start_from:
            yield WrongKey("a grid has every combination anyway", "start_from")

    def _wrong_population(self) -> Iterator[WrongKey]:
        """What cannot go with population based training."""
        if self.pruner.kind is not PrunerKind.NONE:
            yield WrongKey("pbt itself says who gives up; write `type: none`", "pruner")
        if self.repeats > 1:
            yield WrongKey("the members of a population are trained once", "repeats")
        if self.start_from:
            yield WrongKey("a population begins by chance", "start_from")
        if self.parallel == 1:
            yield WrongKey(
                "a population is trained side by side; leave it out, or say how many", "parallel"
            )
        if self.submit is Submit.ARRAY:
            yield WrongKey("members of a population are sent one by one", "submit")
        interval = self.sampler.interval_or_default
        if self.pruner.per is Per.PERCENT and interval >= 100:
            yield WrongKey("a training has 100 percent", "sampler", "interval")
        if interval % self.pruner.every:
            yield WrongKey("must be a multiple of pruner.every", "sampler", "interval")

    def _wrong_budget(self) -> Iterator[WrongKey]:
        if not self.budget.ends and self.sampler.kind not in (SamplerKind.GRID, SamplerKind.PBT):
            yield WrongKey(
                "say when it has had enough: `trials`, `gpu_hours`, `cost_usd` or `deadline`; "
                "write it like `budget: {trials: 60}`",
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
        """The objectives; mostly one."""
        return self.objectives or ([self.objective] if self.objective else [])

    @property
    def parallel_or_default(self) -> int:
        """How many trials are pending or running in Slurm at once."""
        is_population = self.sampler.kind is SamplerKind.PBT
        return self.parallel or (self.sampler.population_or_default if is_population else 1)

    def most_trials(self, budget: Budget) -> int | None:
        """How many trials there are at most with ``budget``; None where something else ends it."""
        counts = [budget.trials]
        if self.sampler.kind is SamplerKind.GRID:
            counts.append(self.space.number_of_combinations())
        return min((count for count in counts if count is not None), default=None)


def _wrong_start(
    by_name: dict[str, Parameter], params: dict[str, Any], name: str, value: object
) -> str | None:
    """What is wrong with one value of one of the first trials."""
    parameter = by_name.get(name)
    if parameter is None:
        return f"no parameter that varies; there are: {', '.join(by_name)}"
    for other, values in parameter.when.items():
        if other in params and not is_one_of(params[other], values):
            return f"is not there where {other} is {shown(params[other])}"
    return parameter.complaint(value)


def trial_params(spec: SweepSpec, chosen: dict[str, Scalar]) -> dict[str, Scalar]:
    """All parameters of a trial: the constants of the space, and what was chosen."""
    return {**spec.space.constants, **chosen}
