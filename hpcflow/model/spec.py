"""What a user asks for: the schema of a run's YAML.

This is the one description of it. The reference page in docs/ and the JSON Schema for editors are
made from the fields and their descriptions; :mod:`hpcflow.config` reads files into it. The keys of
the YAML are the aliases (``time_limit``); the names in the code carry the unit
(``time_limit_min``).
"""

from __future__ import annotations

import re
from enum import Enum
from pathlib import PurePosixPath
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    model_validator,
)

from hpcflow.model.ids import check_name
from hpcflow.model.state import RESUBMIT_EXIT_CODE
from hpcflow.model.units import parse_duration_min, parse_duration_s, parse_memory_mb


class Launcher(str, Enum):
    """Who starts the processes of an attempt."""

    TORCHRUN = "torchrun"  # one torchrun a node, which starts the ranks
    SRUN = "srun"  # one srun task a rank
    NONE = "none"  # the command itself, once, on the first node


class Framework(str, Enum):
    """Whose environment variables the ranks find each other by."""

    PYTORCH = "pytorch"
    TENSORFLOW = "tensorflow"
    JAX = "jax"
    MPI = "mpi"
    NONE = "none"


class ContainerRuntime(str, Enum):
    """Who runs the container."""

    APPTAINER = "apptainer"
    PYXIS = "pyxis"


def _from_text(parse: Any) -> Any:
    """A validator that parses text, lets through what was parsed before, and refuses the rest."""

    def convert(value: object) -> object:
        if isinstance(value, str):
            return parse(value)
        if isinstance(value, _Parsed):
            return int(value)
        raise ValueError("a number without a unit; write the unit, like 4h or 200G")

    return BeforeValidator(convert, json_schema_input_type=str)


class _Parsed(int):
    """An integer that is already in the unit of its field: from run.json, not from a person."""


def parsed(value: int) -> int:
    """Mark ``value`` as being in the unit of the field already, so that it is not refused."""
    return _Parsed(value)


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("a NUL byte cannot be passed to a program")
    return text


_WORD: Final = r"^[A-Za-z0-9_][A-Za-z0-9_.@:+-]*$"
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_RESERVED: Final = re.compile(r"(SLURM|SBATCH|SRUN|PMI|PMIX|HPCFLOW)_", re.ASCII)
_SECRET: Final = re.compile(r"(TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|PRIVATE_?KEY|CREDENTIAL)")
_MAX_NODES: Final = 100_000


def _check_variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise ValueError("not the name of an environment variable")
    if _RESERVED.match(name):
        raise ValueError("this name belongs to Slurm or to hpcflow")
    return name


def _check_public(variables: dict[str, str]) -> dict[str, str]:
    for name in variables:
        if _SECRET.search(name.upper()):
            raise ValueError(
                f"{name} looks like a secret, and scripts and journals are kept for long; put it "
                "into a file that only you can read and name that file under environment.secrets"
            )
    return variables


Name = Annotated[str, AfterValidator(check_name)]
Text = Annotated[str, StringConstraints(max_length=100_000), AfterValidator(_without_nul)]
Word = Annotated[str, StringConstraints(pattern=_WORD, max_length=128)]
Path = Annotated[
    str, StringConstraints(min_length=1, max_length=4096), AfterValidator(_without_nul)
]
Variable = Annotated[str, AfterValidator(_check_variable)]
Minutes = Annotated[int, _from_text(parse_duration_min)]
Seconds = Annotated[int, _from_text(parse_duration_s)]
Megabytes = Annotated[int, _from_text(parse_memory_mb)]
Count = Annotated[int, Field(strict=True, ge=1, le=_MAX_NODES)]
CountOrNone = Annotated[int, Field(strict=True, ge=0, le=_MAX_NODES)]


class Section(BaseModel):
    """A mapping of the YAML: unknown keys are errors, nothing changes once it is read."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, validate_default=False
    )


class Resources(Section):
    """What to ask Slurm for."""

    nodes: Count = Field(1, description="Number of nodes.")
    gpus_per_node: CountOrNone = Field(0, description="GPUs on every node; 0 for a CPU job.")
    gpu_type: Word | None = Field(
        None, description="Type of the GPUs as the site file names it, such as a100; any if absent."
    )
    tasks_per_node: Count | None = Field(
        None, description="Ranks on every node. Default: one per GPU; without GPUs one."
    )
    cpus_per_task: Count | None = Field(
        None, description="CPU cores for every rank. Default: the node's cores shared by its ranks."
    )
    mem_mb: Megabytes | None = Field(
        None,
        alias="mem",
        description="Memory on every node, such as 200G. Default: what the partition gives.",
    )
    time_limit_min: Minutes | None = Field(
        None,
        alias="time_limit",
        description="Longest time of one attempt, such as 4h. Default: the partition's own.",
    )
    partition: Word = Field(
        "auto", description="A partition of the site, or `auto`: the first that fits."
    )
    account: Word | None = Field(None, description="The Slurm account that is charged.")
    qos: Word | None = Field(None, description="The Slurm quality of service.")
    constraint: Annotated[
        str, StringConstraints(pattern=r"^[A-Za-z0-9_.,&|*()\[\]!:=+-]+$", max_length=256)
    ] | None = Field(None, description="Node features, as `sbatch --constraint` takes them.")
    exclude: Annotated[
        str, StringConstraints(pattern=r"^[A-Za-z0-9_.,\[\]-]+$", max_length=4096)
    ] | None = Field(None, description="Nodes to keep away from, as a Slurm host list.")

    @property
    def ranks_per_node(self) -> int:
        """Tasks on every node once the defaults are filled in."""
        return self.tasks_per_node or max(1, self.gpus_per_node)


class Launch(Section):
    """How the processes are started."""

    framework: Framework = Field(
        Framework.PYTORCH, description="Whose rendezvous variables are set for the ranks."
    )
    launcher: Launcher | None = Field(
        None,
        description=(
            "Default: what the site prefers for pytorch (torchrun, mostly), srun for tensorflow, "
            "jax and mpi, none for none."
        ),
    )


class Container(Section):
    """A container that the command runs in."""

    runtime: ContainerRuntime = Field(
        ContainerRuntime.APPTAINER, description="`apptainer`, or `pyxis` (srun --container-image)."
    )
    image: Path = Field(description="A .sif file, or an image reference that the runtime knows.")
    mounts: list[Path] = Field(
        default_factory=list,
        description="`SOURCE:TARGET[:ro]`. The run directory and the working directory are always "
        "mounted.",
    )


class Environment(Section):
    """What the command finds around it."""

    modules: list[
        Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+/=-]*$")]
    ] = Field(default_factory=list, description="Environment modules to load, in this order.")
    venv: Path | None = Field(
        None,
        description="A virtual environment. Default: the activated one; else the one that hpcflow "
        "runs in, unless modules, conda or container are given.",
    )
    conda: Path | None = Field(None, description="A conda environment: its name or its folder.")
    container: Container | None = Field(None, description="A container to run in.")
    variables: Annotated[dict[Variable, Text], AfterValidator(_check_public)] = Field(
        default_factory=dict, description="Environment variables; nothing secret."
    )
    secrets: dict[Variable, Path] = Field(
        default_factory=dict,
        description="Environment variable -> file that holds its value. Read inside the job; the "
        "value stands in no script, journal or log.",
    )

    @model_validator(mode="after")
    def _one_python(self) -> Environment:
        given = [key for key in ("venv", "conda") if getattr(self, key)]
        if len(given) > 1:
            raise ValueError("venv and conda exclude each other: which Python is meant?")
        return self


class Checkpoint(Section):
    """When `hpcflow.runtime` saves."""

    interval_s: Seconds | None = Field(
        600,
        alias="interval",
        description="Save when this much time has passed, such as 10m. `null` for never by time.",
    )
    every_train_steps: Count | None = Field(
        None, description="Save after every so many train steps."
    )
    notice_s: Seconds = Field(
        120,
        alias="notice",
        description="How long before the time limit the job gets its notice, to save and leave.",
    )


class Retry(Section):
    """What counts as a wish to be sent again."""

    resubmit_exit_codes: list[Annotated[int, Field(strict=True, ge=1, le=255)]] = Field(
        default=[RESUBMIT_EXIT_CODE],
        description='Exit codes of the command that mean "checkpointed, send me again".',
    )


class RunSpec(Section):
    """One run as its user asked for it."""

    name: Name = Field(description="Name of the run; a run id is made from it.")
    project: Name = Field("default", description="What the run belongs to; a folder on scratch.")
    command: list[Text] | None = Field(
        None,
        min_length=1,
        description="Program and arguments, each an item of its own. It goes through no shell.",
    )
    script: Path | None = Field(
        None,
        description="A Python script, relative to the file that names it; run by the "
        "environment's python3.",
    )
    args: list[Text] = Field(
        default_factory=list,
        description="Arguments of the script or command. `{{ params.NAME }}`, `{{ run.id }}` and "
        "`{{ run.dir }}` are filled in.",
    )
    params: dict[Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], JsonValue] = (
        Field(
            default_factory=dict,
            description="Parameters: in `runtime.params`, in the file that $HPCFLOW_PARAMS names, "
            "and in `args`.",
        )
    )
    resources: Resources = Field(default_factory=Resources, description=Resources.__doc__)
    launch: Launch = Field(default_factory=Launch, description=Launch.__doc__)
    environment: Environment = Field(default_factory=Environment, description=Environment.__doc__)
    checkpoint: Checkpoint = Field(default_factory=Checkpoint, description=Checkpoint.__doc__)
    retry: Retry = Field(default_factory=Retry, description=Retry.__doc__)
    tags: list[Name] = Field(default_factory=list, description="Words to find the run by.")

    @model_validator(mode="after")
    def _one_program(self) -> RunSpec:
        if (self.command is None) == (self.script is None):
            raise ValueError("give either `script` or `command`")
        return self

    @property
    def program(self) -> list[str]:
        """The words to run before `args` are added."""
        if self.command is not None:
            return list(self.command)
        assert self.script is not None
        return ["python3", "-u", str(PurePosixPath(self.script))]


def frozen(spec: RunSpec) -> dict[str, Any]:
    """``spec`` as JSON values under the names with units, as run.json keeps it."""
    return spec.model_dump(mode="json")


def thaw(data: dict[str, Any]) -> RunSpec:
    """The inverse of :func:`frozen`.

    Raises:
        pydantic.ValidationError: the data was not written by :func:`frozen`.
    """
    fields = {"resources": ("mem_mb", "time_limit_min"), "checkpoint": ("interval_s", "notice_s")}
    copy = {key: dict(value) if key in fields else value for key, value in data.items()}
    for section, names in fields.items():
        for name in names:
            if copy.get(section, {}).get(name) is not None:
                copy[section][name] = parsed(copy[section][name])
    return RunSpec.model_validate(copy)
