"""How a run is executed: resources, launcher, container, environment.

Sections of a run's YAML, which :mod:`hpcflow.model.spec` defines.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Annotated, Final

from pydantic import AfterValidator, Field, model_validator

from hpcflow.model.kinds import (
    Count,
    CountOrNone,
    Kind,
    Matching,
    Megabytes,
    Minutes,
    Module,
    Path,
    Section,
    Text,
    Variable,
    Variables,
    Word,
    WrongKey,
)
from hpcflow.model.sbatch import SbatchOptions


class Launcher(str, Enum):
    """The program that starts the processes of an attempt."""

    TORCHRUN = "torchrun"  # one torchrun per node, which starts the ranks
    SRUN = "srun"  # one srun task per rank
    NONE = "none"  # the command itself, once, on the first node


class CodeMode(str, Enum):
    """The state of the code that an attempt executes."""

    SNAPSHOT = "snapshot"  # at the creation of the run
    LIVE = "live"  # at the start of the attempt


class Framework(str, Enum):
    """The framework that determines the environment variables for the rendezvous of the ranks."""

    PYTORCH = "pytorch"
    TENSORFLOW = "tensorflow"
    JAX = "jax"
    MPI = "mpi"
    NONE = "none"


class ContainerRuntime(str, Enum):
    """The program that runs the container."""

    APPTAINER = "apptainer"
    PYXIS = "pyxis"


_DEPENDENCY: Final = (
    r"(?:after(?:any|burstbuffer|corr|notok|ok)?(?::[0-9_*]+(?:\+[0-9]+)?)+"
    r"|expand:[0-9]+|singleton)"
)
_MOUNT: Final = re.compile(r"[^:,\0-\x1f-][^:,\0-\x1f]*:/[^:,\0-\x1f]*(:r[ow])?")


def _check_mount(mount: str) -> str:
    # A comma would begin the next mount in the options of apptainer and pyxis.
    if not _MOUNT.fullmatch(mount):
        raise ValueError("not a mount; write SOURCE:/TARGET or SOURCE:/TARGET:ro, without commas")
    return mount


Mount = Annotated[str, AfterValidator(_check_mount), Kind("mount")]


class Resources(Section):
    """What to ask Slurm for."""

    nodes: Count = Field(1, description="Number of nodes.", examples=[4])
    gpus_per_node: CountOrNone = Field(
        0, description="GPUs on every node; 0 for a CPU job.", examples=[8]
    )
    gpu_type: Word | None = Field(
        None,
        description="Type of the GPUs as the site file names it; any if absent.",
        examples=["a100"],
    )
    tasks_per_node: Count | None = Field(
        None,
        description="Ranks on every node. Default: one per GPU; without GPUs one.",
        examples=[4],
    )
    cpus_per_task: Count | None = Field(
        None,
        description="CPU cores for every rank. Default: the node's cores shared by its ranks.",
        examples=[16],
    )
    mem_mb: Megabytes | None = Field(
        None,
        alias="mem",
        description="Memory on every node. Default: what the partition gives.",
        examples=["200G"],
    )
    time_limit_min: Minutes | None = Field(
        None,
        alias="time_limit",
        description="Longest time of one attempt. Default: the partition's own.",
        examples=["4h"],
    )
    partition: Word = Field(
        "auto",
        description="A partition of the site. `auto`: hpcflow chooses among those that fit, by "
        "cost, waiting time and fair share: [placement.md](placement.md).",
        examples=["gpu"],
    )
    account: Word | None = Field(
        None,
        description="The Slurm account that is charged. `auto`: each of your accounts is a "
        "candidate when hpcflow chooses the partition. Default: the site's, else Slurm's.",
        examples=["vision"],
    )
    qos: Word | None = Field(None, description="The Slurm quality of service.", examples=["normal"])
    constraint: (
        Annotated[
            str,
            Matching(
                r"[A-Za-z0-9_.,&|*()\[\]!:=+-]+",
                "not a constraint for sbatch; write it like gpu&hbm80g",
            ),
            Kind("node features"),
        ]
        | None
    ) = Field(
        None,
        description="Node features, as `sbatch --constraint` takes them.",
        examples=["gpu&hbm80g"],
    )
    exclude: (
        Annotated[
            str,
            Matching(
                r"[A-Za-z0-9_.,\[\]-]+",
                "not a Slurm host list; write it like n[1-3],n7",
                4096,
            ),
            Kind("host list"),
        ]
        | None
    ) = Field(
        None, description="Nodes to keep away from, as a Slurm host list.", examples=["n[1-3],n7"]
    )
    dependency: (
        Annotated[
            str,
            Matching(
                rf"{_DEPENDENCY}(?:[,?]{_DEPENDENCY})*",
                "not a dependency for sbatch; write it like afterok:1234",
                1000,
            ),
            Kind("dependency"),
        ]
        | None
    ) = Field(
        None,
        description="Jobs that must end before the run starts, as for `sbatch --dependency`. It "
        "applies until an attempt has started, and again when `resume --set` sets it.",
        examples=["afterok:1234"],
    )
    begin: (
        Annotated[
            str,
            Matching(
                r"(?:now|today|tomorrow|midnight|noon|fika|teatime|elevenses)(?:[+T-][A-Za-z0-9:]+)?"
                r"|[0-9]{1,8}(?:[:/.T-][0-9]{1,4})*(?:[AaPp][Mm])?",
                "not a time for sbatch; write it like now+2hours or 2026-12-24T20:00",
            ),
            Kind("time"),
        ]
        | None
    ) = Field(
        None,
        description="Earliest start of the run, as for `sbatch --begin`. It applies until an "
        "attempt has started, and again when `resume --set` sets it.",
        examples=["now+2hours"],
    )
    nice: (
        Annotated[int, Field(strict=True, ge=0, le=2_147_483_645), Kind("whole number from 0")]
        | None
    ) = Field(
        None,
        description="Lower the priority of each attempt by this much, as `sbatch --nice`.",
        examples=[1000],
    )
    sbatch: SbatchOptions = Field(
        default_factory=dict,
        description="Further options of sbatch, by their long names without dashes; `true` for "
        "an option without a value. Options that hpcflow sets are refused.",
        examples=[{"reservation": "course", "mail-type": "FAIL,END"}],
    )

    @property
    def ranks_per_node(self) -> int:
        """Return the number of tasks on every node, with defaults applied."""
        return self.tasks_per_node or max(1, self.gpus_per_node)


class Launch(Section):
    """How the processes are started."""

    framework: Framework = Field(
        Framework.PYTORCH,
        description="The framework of the ranks: it decides which variables for their rendezvous "
        "are set.",
        examples=["jax"],
    )
    launcher: Launcher | None = Field(
        None,
        description=(
            "How the ranks are started. `torchrun`: one torchrun on each node. `srun`: one task "
            "per rank. `none`: the command itself is started, once, on the first node. Default: "
            "for pytorch what the site prefers (usually torchrun), but srun for a `command` of one "
            "rank; for tensorflow, jax and mpi srun, because torchrun does not support them; for "
            "`framework: none`, `none`."
        ),
        examples=["srun"],
    )


class Container(Section):
    """A container that the command runs in."""

    runtime: ContainerRuntime = Field(
        ContainerRuntime.APPTAINER,
        description="`apptainer`, or `pyxis` (srun --container-image).",
        examples=["pyxis"],
    )
    image: Path = Field(
        description="A file (with a `/` at its beginning, `./`, `../`, `~/`, or ending in .sif, "
        ".sqsh or .simg), or an image reference that the runtime knows.",
        examples=["./train.sif"],
    )
    mounts: list[Mount] = Field(
        default_factory=list,
        description="`SOURCE:TARGET[:ro]`. The run directory, the working directory and the "
        "folder of the program's code are always mounted.",
        examples=[["/data/imagenet:/data:ro"]],
    )


class Environment(Section):
    """The environment of the command."""

    modules: list[Module] = Field(
        default_factory=list,
        description="Environment modules to load, in this order.",
        examples=[["cuda/12.4", "nccl"]],
    )
    venv: Path | None = Field(
        None,
        description="A virtual environment. Default: the activated one; else the one that hpcflow "
        "runs in, unless modules, conda or container are given.",
        examples=["~/envs/train"],
    )
    conda: Path | None = Field(
        None,
        description="A conda environment: its name, or its folder (then with a `/`).",
        examples=["train"],
    )
    setup: list[Text] = Field(
        default_factory=list,
        description="Lines of bash. The job script runs them in the working directory of the "
        "first node, after modules, venv or conda are loaded. Exported variables reach the program "
        "on all nodes; `variables` and `secrets` override them. If an item fails or ends the "
        "shell, the attempt fails. Shell options last until the last item, a trap on EXIT until "
        "the end of the job.",
        examples=[["source /opt/intel/setvars.sh", "ulimit -s unlimited"]],
    )
    container: Container | None = Field(
        None, description="A container to run in.", examples=[{"image": "./train.sif"}]
    )
    variables: Variables = Field(
        default_factory=dict,
        description="Environment variables; nothing secret. `{{ params.NAME }}`, `{{ run.id }}`, "
        "`{{ run.name }}` and `{{ run.dir }}` are filled in.",
        examples=[{"OMP_NUM_THREADS": 8, "WANDB_RUN_ID": "{{ run.id }}"}],
    )
    secrets: dict[Variable, Path] = Field(
        default_factory=dict,
        description="Environment variable -> file that holds its value, and that only you can "
        "read. Read inside the job; the value is in no script, journal or log.",
        examples=[{"WANDB_API_KEY": "~/.secrets/wandb"}],
    )

    @model_validator(mode="after")
    def _one_python(self) -> Environment:
        if self.venv and self.conda:
            raise WrongKey("give either `venv` or `conda`, not both", "conda")
        return self
