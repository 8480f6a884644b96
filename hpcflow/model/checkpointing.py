"""When a run saves, and which checkpoints it keeps: a section of a run's YAML."""

from __future__ import annotations

import json
from enum import Enum
from typing import Any

from pydantic import Field, model_validator

from hpcflow.model.adopt import Adopt
from hpcflow.model.kinds import (
    Count,
    CountOrAll,
    IntervalAutoOrNever,
    Metric,
    Seconds,
    Section,
    TrainSteps,
    WrongKey,
)


class WhenBusy(str, Enum):
    """What to do with a save that is due while another is being written."""

    WAIT = "wait"
    SKIP = "skip"


class Mode(str, Enum):
    """Which value of a metric is better."""

    MIN = "min"
    MAX = "max"


class KeepBest(Section):
    """Keep the checkpoints that were best by a metric, however old they are.

    The value of a checkpoint is the last one that was logged before it was saved. If checkpoints
    have the same value, the earliest counts as the best. While no checkpoint has the metric, none
    is removed.
    """

    metric: Metric = Field(
        description="A metric that the program logs.", examples=["validation_loss"]
    )
    mode: Mode = Field(
        description="Whether the lowest value is the best, or the highest.", examples=["min"]
    )
    count: Count = Field(1, description="How many of the best to keep.", examples=[3])


class Checkpoint(Section):
    """When `hpcflow.runtime` saves, and which checkpoints it keeps.

    When a new checkpoint is complete, hpcflow removes those that none of `keep_last`, `keep_best`
    and `keep_every` keeps. It never removes the newest complete checkpoint, the one that the
    running attempt was resumed from, a folder that it did not make for this run, or a folder that
    holds a file of yours. See [checkpoints.md](checkpoints.md).
    """

    interval_s: IntervalAutoOrNever = Field(
        600,
        alias="interval",
        description="Save when this much time has passed. `never`: not by time. `auto`: hpcflow "
        "computes the interval that loses the least time, from the duration of a save and from how "
        "often jobs of the partition are ended: [checkpoints.md](checkpoints.md#how-often).",
        examples=["30m", "auto"],
    )
    every_train_steps: TrainSteps | None = Field(
        None, description="Save after every so many train steps.", examples=[1000]
    )
    when_busy: WhenBusy = Field(
        WhenBusy.WAIT,
        description="What to do if a save is due by `every_train_steps` while the one before is "
        "still being written. `wait`: the training waits for it. `skip`: the new save is left out.",
        examples=["skip"],
    )
    notice_s: Seconds = Field(
        120,
        alias="notice",
        description="How long before the time limit the job gets its notice, so that it can save "
        "and exit.",
        examples=["5m"],
    )
    keep_last: CountOrAll = Field(
        3,
        description="How many of the newest checkpoints to keep. `all`: remove none. The default "
        "is enough to resume even if the disk has damaged the newest one. An interval of 10m makes "
        "144 checkpoints a day: if all were kept, they could fill your quota, and the training "
        "could save no more.",
        examples=["all"],
    )
    keep_best: KeepBest | None = Field(
        None,
        description=KeepBest.__doc__,
        examples=[{"metric": "validation_loss", "mode": "min"}],
    )
    keep_every: TrainSteps | None = Field(
        None,
        description="Also keep the first checkpoint in each period of this many train steps; the "
        "first period begins at this number.",
        examples=[10_000],
    )
    adopt: Adopt | None = Field(
        None, description=Adopt.__doc__, examples=[{"like": "huggingface", "folder": "out"}]
    )

    @model_validator(mode="after")
    def _check_adopt(self) -> Checkpoint:
        if self.adopt is None:
            return self
        default = type(self).model_fields["interval_s"].default
        given = {
            "every_train_steps": self.every_train_steps is not None,
            "when_busy": self.when_busy is not WhenBusy.WAIT,
            "interval": self.interval_s not in (None, default),
        }
        for key, is_given in given.items():
            if is_given:
                raise WrongKey(
                    "applies to saves by hpcflow.runtime, but with `adopt` the program saves by "
                    "itself; remove this key or `adopt`",
                    key,
                )
        if self.keep_best is not None:
            raise WrongKey(
                "adopted checkpoints have no metrics; remove this key, or use `keep_every`",
                "keep_best",
            )
        return self

    @property
    def keep(self) -> str | None:
        """Return the rule for the job as JSON, see `hpcflow/runtime/rule.py`; None to keep all."""
        if self.keep_last is None:
            return None
        rule: dict[str, Any] = {"last": self.keep_last}
        if self.keep_best is not None:
            is_more_better = self.keep_best.mode is Mode.MAX
            rule |= {"best": self.keep_best.count, "metric": self.keep_best.metric}
            rule["is_more_better"] = is_more_better
        if self.keep_every is not None:
            rule["every"] = self.keep_every
        return json.dumps(rule)
