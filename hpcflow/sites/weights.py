"""The weights of `partition: auto`: the section ``weights`` of a site file."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from hpcflow.model.kinds import Kind, Section

Weight = Annotated[
    float, Field(strict=False, ge=0, le=10, allow_inf_nan=False), Kind("number from 0 to 10")
]


class Weights(Section):
    """How much each thing counts where `auto` chooses; 0 for not at all."""

    cost: Weight = Field(1.0, description="What the run is expected to cost.")
    time: Weight = Field(1.0, description="When it is expected to be done: its wait and its run.")
    fair_share: Weight = Field(
        1.0, description="Standing of the account: the fair-share factor, from 0 to 1."
    )
