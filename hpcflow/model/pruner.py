"""Which trials of a sweep are pruned: a section of a sweep's YAML."""

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
    Number,
    NumberOrNone,
    Percentile,
    Points,
    PointsOrNone,
)


class PrunerKind(str, Enum):
    """Optuna's pruners."""

    NONE = "none"
    MEDIAN = "median"
    PERCENTILE = "percentile"
    ASHA = "asha"
    HYPERBAND = "hyperband"
    PATIENCE = "patience"
    THRESHOLD = "threshold"


class Per(str, Enum):
    """The unit of a trial's progress. Trials are compared at the same point."""

    PERCENT = "percent"
    EPOCH = "epoch"
    TRAIN_STEP = "train_step"


class Pruner(Section):
    """Which trials are ended early. `pruner: asha` is short for `{type: asha}`."""

    kind: PrunerKind = Field(
        PrunerKind.NONE,
        alias="type",
        description="`median`: end a trial that is worse than the median of the others at this "
        "point. `percentile`: end it if it is not among the best `percentile` percent. `asha`: "
        "asynchronous successive halving: at each rung, one trial of `reduction_factor` continues. "
        "`hyperband`: several of these, with rungs at different points. `patience`: end a trial "
        "that has not improved for `patience` points. `threshold`: end it if its value is outside "
        "`lower` and `upper`.",
        examples=["asha"],
    )
    per: Per = Field(
        Per.PERCENT,
        description="The unit of the points at which trials are compared, and of the numbers "
        "below. `percent` is that of a trial's own training: the program must report its number of "
        "train steps, as hpcflow.runtime does. If it does not, use `epoch` or `train_step`.",
        examples=["epoch"],
    )
    every: Points = Field(1, description="The distance between two points.", examples=[1000])
    min_resource: Points | None = Field(
        None,
        description="For asha and hyperband: the first rung. No trial is ended before it. Default: "
        "10 percent, or `every`.",
        examples=[5],
    )
    max_resource: Points | None = Field(
        None,
        description="For hyperband: the end of a training. Default: 100 percent; required with "
        "other units.",
        examples=[90],
    )
    reduction_factor: FromTwo | None = Field(
        None,
        description="For asha and hyperband: one of this many trials continues. Default: 3.",
        examples=[4],
    )
    percentile: Percentile | None = Field(
        None,
        description="For percentile: the percentage of trials that continue. Default: 25.",
        examples=[50],
    )
    startup_trials: CountOrNone | None = Field(
        None,
        description="For median and percentile: the number of trials that must have completed "
        "before one is ended early. Default: 5.",
        examples=[10],
    )
    warmup: PointsOrNone | None = Field(
        None,
        description="For median, percentile and threshold: no trial is ended before this point. "
        "Default: 0.",
        examples=[20],
    )
    patience: Points | None = Field(
        None, description="For patience: the number of points without improvement.", examples=[10]
    )
    min_delta: NumberOrNone | None = Field(
        None,
        description="For patience: a smaller change is no improvement. Default: 0.",
        examples=[1e-3],
    )
    lower: Number | None = Field(
        None, description="For threshold: a trial below this value is ended.", examples=[0.2]
    )
    upper: Number | None = Field(
        None, description="For threshold: a trial above this value is ended.", examples=[10.0]
    )

    @model_validator(mode="after")
    def _check_keys(self) -> Pruner:
        halving = (PrunerKind.ASHA, PrunerKind.HYPERBAND)
        compared = (PrunerKind.MEDIAN, PrunerKind.PERCENTILE)
        kinds_of = {
            "min_resource": halving,
            "max_resource": (PrunerKind.HYPERBAND,),
            "reduction_factor": halving,
            "percentile": (PrunerKind.PERCENTILE,),
            "startup_trials": compared,
            "warmup": (*compared, PrunerKind.THRESHOLD),
            "patience": (PrunerKind.PATIENCE,),
            "min_delta": (PrunerKind.PATIENCE,),
            "lower": (PrunerKind.THRESHOLD,),
            "upper": (PrunerKind.THRESHOLD,),
        }
        if self.model_fields_set and "kind" not in self.model_fields_set:
            raise WrongKey("is missing; write it like `type: asha` or `type: none`", "type")
        for key, kinds in kinds_of.items():
            if getattr(self, key) is not None and self.kind not in kinds:
                raise WrongKey(f"does not apply to {self.kind.value}", key)
        self._check_needs()
        self._check_points()
        return self

    def _check_needs(self) -> None:
        if self.kind is PrunerKind.PATIENCE and self.patience is None:
            raise WrongKey("is missing; write it like `patience: 10`", "patience")
        if self.kind is PrunerKind.THRESHOLD and self.lower is None and self.upper is None:
            raise WrongKey("needs `lower`, `upper`, or both", "type")
        if self.lower is not None and self.upper is not None and self.lower >= self.upper:
            raise WrongKey(f"must be more than `lower`, {self.lower!r}", "upper")
        if self.kind is PrunerKind.HYPERBAND and self.highest is None:
            raise WrongKey(
                f"is missing; give the number of {self.per.value}s of a training", "max_resource"
            )

    def _check_points(self) -> None:
        if self.per is Per.PERCENT:
            for key in ("every", "min_resource", "warmup"):
                if (getattr(self, key) or 0) >= 100:
                    raise WrongKey("must be less than 100 percent", key)
            if (self.max_resource or 0) > 100:
                raise WrongKey("must be at most 100 percent", "max_resource")
            if (self.patience or 0) * self.every >= 100:
                raise WrongKey("must be less than a whole training of 100 percent", "patience")
        if self.highest is not None and self.highest <= self.lowest:
            raise WrongKey(f"must be more than min_resource, {self.lowest}", "max_resource")

    @property
    def lowest(self) -> int:
        """Return the first rung of asha and hyperband."""
        return self.min_resource or (10 if self.per is Per.PERCENT else self.every)

    @property
    def highest(self) -> int | None:
        """Return the last rung of hyperband."""
        return self.max_resource or (100 if self.per is Per.PERCENT else None)
