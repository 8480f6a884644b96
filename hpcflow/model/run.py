"""A run as it is frozen in ``run.json``: the request, its time, and its code."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_serializer, field_validator

from hpcflow.model.bounds import Moment
from hpcflow.model.spec import RunSpec, frozen, thaw
from hpcflow.model.start import StartedFrom

#: Version of the format of run.json, journal and events. Readers refuse newer versions.
FORMAT = 1


class Provenance(BaseModel):
    """The origin of a run, to explain and to repeat it."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    hpcflow_version: str
    python_version: str
    submit_host: str
    config_path: str | None = None
    overrides: list[str] = Field(default_factory=list)
    git_commit: str | None = None
    git_dirty: bool | None = None
    data: dict[str, str] = Field(default_factory=dict, description="Data set -> version.")


class CodeSnapshot(BaseModel):
    """The code that all attempts of a run execute; its files: hpcflow.storage.code_snapshot."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    digest: str = Field(pattern="^[0-9a-f]{64}$", description="Of all names, modes and bytes.")
    root: str = Field(description="The copied folder.")
    folder: str = Field(".", description="The working directory, relative to the root.")
    files: dict[str, str] = Field(
        default_factory=dict,
        description="Word of the program -> the file that it names, relative to the root.",
    )
    paths: list[str] = Field(
        default_factory=list,
        description="Folders with Python packages, relative to the root, for PYTHONPATH.",
    )


def short_digest(digest: str) -> str:
    """Return the part of a digest that is used in file names."""
    return digest[:20]


@lru_cache(maxsize=16)
def _code_files(run_dir: str, digest: str) -> str:
    """Return the folder with the files of a run's snapshot. Rendering a run calls this often."""
    return str(code_place(Path(run_dir).parents[1], digest) / "files")


def code_place(runs: Path, digest: str) -> Path:
    """Return the folder of a snapshot below the folder with all runs of a user."""
    return runs / ".code" / short_digest(digest)


class Mirror(BaseModel):
    """The destination and rules of a run's mirror: the resolved site section ``mirror``."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    url: str = Field(description="A folder of a store; the run's folder is below it.")
    endpoint_url: str | None = None
    encryption: str | None = None
    kms_key: str | None = None
    storage_class: str | None = None
    bandwidth_bytes_s: int | None = Field(None, ge=1, description="None for no limit.")
    keep_last: int | None = Field(None, ge=1, description="Newest that are kept; None for all.")
    keep_for_s: int | None = Field(None, ge=1, description="Retention; None for ever.")
    partition: str | None = Field(None, description="Where a job uploads; None if the daemon does.")
    shared: bool = Field(False, description="For a plain folder: whether its group can read.")


class Result(BaseModel):
    """The result of a completed run before it was extended: a final checkpoint."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    attempt: int = Field(ge=1, description="The attempt that completed the run.")
    train_step: int = Field(ge=0)


class Run(BaseModel):
    """One run. Written once, before any submission; never changed."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    format: int = FORMAT
    run_id: str
    user: str
    site: str
    created_at: Moment
    run_dir: str
    place: str | None = Field(None, description="Random, new with each move; None without a move.")
    place_before: str | None = Field(None, description="The place before the last move.")
    working_dir: str
    partition: str = Field(description="The partition that `auto` became.")
    gpu_type: str | None = None
    umask: str | None = Field(
        None,
        pattern="^0[0-7]{3}$",
        description="For the program in every attempt; None in runs older than this field.",
    )
    spec: RunSpec
    mirror: Mirror | None = None
    parent_sweep: str | None = Field(None, description="Id of the sweep of this trial.")
    trial: int | None = Field(None, ge=0, description="Number of the trial, from 0.")
    begins_from: str | None = Field(
        None,
        pattern="^start/[0-9]{1,18}$",
        description="A checkpoint of another run, relative to the run directory. The run resumes "
        "from it until it has one of its own. The name of its folder is its train step in this "
        "run.",
    )
    started_from: StartedFrom | None = Field(
        None, description="The resolved `start_from` of the spec: train step 0 of this run."
    )
    results: list[Result] = Field(default_factory=list, description="One for each extension.")
    repeat: int | None = Field(None, ge=0, description="Number within the trial, from 0.")
    estimated_cost_usd: str | None = Field(None, description="Decimal, as text.")
    code: CodeSnapshot | None = Field(None, description="None with `code: live`.")
    provenance: Provenance

    @property
    def place_id(self) -> str:
        """Return the mark of the run's folder in a store: clusters may have equal paths."""
        return self.place or self.run_dir

    def in_code(self, name: str = ".") -> str:
        """Return the path on scratch of a file or folder in the snapshot, which must exist."""
        assert self.code is not None
        files = _code_files(self.run_dir, self.code.digest)
        return files if name == "." else f"{files}/{name}"

    @field_validator("spec", mode="before")
    @classmethod
    def _thaw(cls, value: object) -> object:
        return thaw(value) if isinstance(value, dict) else value

    @field_serializer("spec")
    def _freeze(self, spec: RunSpec) -> dict[str, Any]:
        return frozen(spec)
