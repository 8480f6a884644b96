"""The weights of `partition: auto`: the section ``weights`` of a site file."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from hpcflow.model.kinds import Kind, Section

Weight = Annotated[
    float, Field(strict=False, ge=0, le=10, allow_inf_nan=False), Kind("number from 0 to 10")
]


class Weights(Section):
    """The weight of each criterion when `auto` chooses; 0 ignores it."""

    cost: Weight = Field(1.0, description="Expected cost of the run.")
    time: Weight = Field(1.0, description="Expected time until the run ends: wait and run time.")
    fair_share: Weight = Field(1.0, description="The account's fair-share factor, from 0 to 1.")
