"""A run as it is frozen into ``run.json``: who asked for what, when, from which code."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_serializer, field_validator

from hpcflow.clock import to_text
from hpcflow.model.moment import Moment
from hpcflow.model.spec import RunSpec, frozen, thaw

#: Version of the format of run.json, journal and events. A reader refuses what is newer.
FORMAT = 1


class Provenance(BaseModel):
    """Where a run came from, so that it can be explained and repeated."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    hpcflow_version: str
    python_version: str
    submit_host: str
    config_path: str | None = None
    overrides: list[str] = Field(default_factory=list)
    git_commit: str | None = None
    git_dirty: bool | None = None
    data: dict[str, str] = Field(default_factory=dict, description="Data set -> version.")


class Mirror(BaseModel):
    """Where the copy of a run goes, and how: the site's section ``mirror``, filled in."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    url: str = Field(description="A folder of a store; the run's own is below it.")
    endpoint_url: str | None = None
    encryption: str | None = None
    kms_key: str | None = None
    storage_class: str | None = None
    bandwidth_bytes_s: int | None = Field(None, ge=1, description="None for as fast as it goes.")
    keep_last: int | None = Field(None, ge=1, description="Newest that stay there; None for all.")
    keep_for_s: int | None = Field(None, ge=1, description="How long they stay; None for ever.")
    partition: str | None = Field(None, description="Where a job sends; None for the daemon.")
    shared: bool = Field(False, description="For a plain folder: whether its group may read.")


class Run(BaseModel):
    """One run. Written once, before anything is sent; never changed."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    format: int = FORMAT
    run_id: str
    user: str
    site: str
    created_at: Moment
    run_dir: str
    place: str | None = Field(
        None, description="Random, new with each move; None where it never moved."
    )
    place_before: str | None = Field(None, description="The place that it was taken over from.")
    working_dir: str
    partition: str = Field(description="The partition that `auto` became.")
    gpu_type: str | None = None
    umask: str | None = Field(
        None,
        pattern="^0[0-7]{3}$",
        description="The program's, in every attempt; None in runs made before it was kept.",
    )
    spec: RunSpec
    mirror: Mirror | None = None
    parent_sweep: str | None = Field(None, description="Id of the sweep that it is a trial of.")
    trial: int | None = Field(None, ge=0, description="Which one, from 0.")
    begins_from: str | None = Field(
        None,
        pattern="^start/[0-9]{1,18}$",
        description="A checkpoint of another run that it goes on from as long as it has none of "
        "its own, relative to the run directory.",
    )
    repeat: int | None = Field(None, ge=0, description="Which of the runs of that trial, from 0.")
    estimated_cost_usd: str | None = Field(None, description="Decimal, as text.")
    provenance: Provenance

    @property
    def place_id(self) -> str:
        """Whose the run's folder in a store is: two clusters may have the same paths."""
        return self.place or self.run_dir

    @field_validator("spec", mode="before")
    @classmethod
    def _thaw(cls, value: object) -> object:
        return thaw(value) if isinstance(value, dict) else value

    @field_serializer("spec")
    def _freeze(self, spec: RunSpec) -> dict[str, Any]:
        return frozen(spec)

    @field_serializer("created_at")
    def _time(self, value: Any) -> str:
        return to_text(value)
