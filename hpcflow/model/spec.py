"""What a user asks for: the schema of a run's YAML.

This is the one description of it. The reference page in docs/ and the JSON Schema for editors are
made from the fields, their descriptions and examples; :mod:`hpcflow.config` reads files into it.
The keys of the YAML are the aliases (``time_limit``); the names in the code carry the unit
(``time_limit_min``). What kinds of value there are stands in :mod:`hpcflow.model.kinds`.
"""

from __future__ import annotations

import json
import re
from enum import Enum
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, model_validator

from hpcflow.model.adopt import Adopt
from hpcflow.model.kinds import (
    Count,
    CountOrAll,
    CountOrNone,
    IntervalAutoOrNever,
    IntervalOrNever,
    Kind,
    Matching,
    Megabytes,
    Metric,
    Minutes,
    Module,
    Name,
    Params,
    Path,
    Seconds,
    Section,
    StoreUrlOrNever,
    TrainSteps,
    Variable,
    Variables,
    Word,
    Words,
    WrongKey,
    parsed,
)
from hpcflow.model.state import RESUBMIT_EXIT_CODE


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


class WhenBusy(str, Enum):
    """What becomes of a save that is due while another is being written."""

    WAIT = "wait"
    SKIP = "skip"


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
        description="A partition of the site, or `auto`: the first that fits; for a run without "
        "GPUs, one without GPUs if there is any.",
        examples=["gpu"],
    )
    account: Word | None = Field(
        None, description="The Slurm account that is charged.", examples=["vision"]
    )
    qos: Word | None = Field(None, description="The Slurm quality of service.", examples=["normal"])
    constraint: (
        Annotated[
            str,
            Matching(
                r"[A-Za-z0-9_.,&|*()\[\]!:=+-]+",
                "not a constraint as sbatch takes it, such as gpu&hbm80g",
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
                "not a list of hosts as Slurm takes it, such as n[1-3],n7",
                4096,
            ),
            Kind("host list"),
        ]
        | None
    ) = Field(
        None, description="Nodes to keep away from, as a Slurm host list.", examples=["n[1-3],n7"]
    )

    @property
    def ranks_per_node(self) -> int:
        """Tasks on every node once the defaults are filled in."""
        return self.tasks_per_node or max(1, self.gpus_per_node)


class Launch(Section):
    """How the processes are started."""

    framework: Framework = Field(
        Framework.PYTORCH,
        description="Whose rendezvous variables are set for the ranks.",
        examples=["jax"],
    )
    launcher: Launcher | None = Field(
        None,
        description=(
            "Who starts the ranks: one `torchrun` on every node, one `srun` task per rank, or "
            "`none`: the command itself, once, on the first node. Default: for pytorch what the "
            "site prefers (torchrun, mostly), but srun for a `command` of one rank; srun for "
            "tensorflow, jax and mpi, which torchrun does not serve; none for none."
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
        "script's folder are always mounted.",
        examples=[["/data/imagenet:/data:ro"]],
    )


class Environment(Section):
    """What the command finds around it."""

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
    container: Container | None = Field(
        None, description="A container to run in.", examples=[{"image": "./train.sif"}]
    )
    variables: Variables = Field(
        default_factory=dict,
        description="Environment variables; nothing secret.",
        examples=[{"OMP_NUM_THREADS": 8}],
    )
    secrets: dict[Variable, Path] = Field(
        default_factory=dict,
        description="Environment variable -> file that holds its value, and that only you can "
        "read. Read inside the job; the value stands in no script, journal or log.",
        examples=[{"WANDB_API_KEY": "~/.secrets/wandb"}],
    )

    @model_validator(mode="after")
    def _one_python(self) -> Environment:
        if self.venv and self.conda:
            raise WrongKey("venv and conda exclude each other: which Python is meant?", "conda")
        return self


class Mode(str, Enum):
    """Which value of a metric is the better one."""

    MIN = "min"
    MAX = "max"


class KeepBest(Section):
    """Keep the checkpoints that were best by a metric, however old they are.

    A checkpoint has the value that was logged last before it was made; of several with the same
    value the earliest counts. While no checkpoint has the metric, none is removed.
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

    Right after a new checkpoint is complete, those go that none of `keep_last`, `keep_best` and
    `keep_every` keeps; never the newest complete one, never the one that the running attempt was
    resumed from, and never a folder that hpcflow did not make for this run or that holds a file of
    yours. [checkpoints.md](checkpoints.md) tells more.
    """

    interval_s: IntervalAutoOrNever = Field(
        600,
        alias="interval",
        description="Save when this much time has passed; `never` for never by time; `auto` for "
        "what loses least by what saves cost and how often jobs are ended in the partition: "
        "[checkpoints.md](checkpoints.md#how-often).",
        examples=["30m", "auto"],
    )
    every_train_steps: TrainSteps | None = Field(
        None, description="Save after every so many train steps.", examples=[1000]
    )
    when_busy: WhenBusy = Field(
        WhenBusy.WAIT,
        description="What becomes of a save that is due by `every_train_steps` while the one "
        "before is still being written: the training waits for that one, or this one is left out.",
        examples=["skip"],
    )
    notice_s: Seconds = Field(
        120,
        alias="notice",
        description="How long before the time limit the job gets its notice, to save and leave.",
        examples=["5m"],
    )
    keep_last: CountOrAll = Field(
        3,
        description="How many of the newest checkpoints to keep; `all` never removes any. The "
        "default is enough to go on from, also where the disk has damaged the newest: they are "
        "made by the clock, a hundred and more a day, and all of them would fill a quota in the "
        "middle of the training, which then saves nothing any more.",
        examples=["all"],
    )
    keep_best: KeepBest | None = Field(
        None,
        description=KeepBest.__doc__,
        examples=[{"metric": "validation_loss", "mode": "min"}],
    )
    keep_every: TrainSteps | None = Field(
        None,
        description="Keep the first checkpoint in every so many train steps, too, from this number "
        "on: for looking back.",
        examples=[10_000],
    )
    adopt: Adopt | None = Field(
        None, description=Adopt.__doc__, examples=[{"like": "huggingface", "folder": "out"}]
    )

    @model_validator(mode="after")
    def _one_saver(self) -> Checkpoint:
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
                    "says when hpcflow.runtime saves, but `adopt` says that the program does so by "
                    "itself; take one of the two away",
                    key,
                )
        if self.keep_best is not None:
            raise WrongKey(
                "adopted checkpoints carry no metrics to find the best by; take it away, or use "
                "`keep_every`",
                "keep_best",
            )
        return self

    @property
    def keep(self) -> str | None:
        """The rule as the job gets it: JSON, see `hpcflow/runtime/rule.py`; None to keep all."""
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


Budget = Annotated[int, Field(strict=True, ge=0, le=10_000), Kind("whole number from 0")]


class Retry(Section):
    """How often, and how soon, the requeue daemon sends a run again, by the cause of its end.

    What was used up is counted from the last time that a person said `hpcflow resume` or
    `hpcflow release`.
    """

    resubmit_exit_codes: list[
        Annotated[int, Field(strict=True, ge=1, le=255), Kind("whole number from 1 to 255")]
    ] = Field(
        default=[RESUBMIT_EXIT_CODE],
        description='Exit codes of the command that mean "checkpointed, send me again".',
        examples=[[75, 85]],
    )
    preemptions: Budget | None = Field(
        None,
        description="Times that a run is sent again after a preemption; any number if absent.",
        examples=[20],
    )
    timeouts: Budget | None = Field(
        None,
        description="Times after the time limit, or after it left by itself with a checkpoint; any "
        "number if absent.",
        examples=[100],
    )
    node_failures: Budget = Field(
        10,
        description="Times after a node failed, the launch failed, or the job vanished without a "
        "word.",
        examples=[3],
    )
    failures: Budget = Field(3, description="Times after the program failed.", examples=[0])
    stalls: Budget = Field(
        3, description="Times after it made no progress and was ended for that.", examples=[1]
    )
    out_of_memory: Budget = Field(
        1,
        description="Times after it ran out of memory; each with more memory, where it asked for "
        "an amount and the partition's nodes have more.",
        examples=[2],
    )
    without_checkpoint: Count = Field(
        3,
        description="Stop when so many attempts in a row that ran brought no new checkpoint, "
        "whatever the budgets say.",
        examples=[5],
    )
    backoff_s: Seconds = Field(
        30,
        alias="backoff",
        description="How long to wait after the first failure in a row; twice as long after each "
        "further one, with up to a quarter more by chance. Preemptions, time limits and "
        "checkpoints wait for nothing.",
        examples=["1m"],
    )
    backoff_max_s: Seconds = Field(
        3600, alias="backoff_max", description="The longest such wait.", examples=["15m"]
    )
    stall_after_s: IntervalOrNever = Field(
        1800,
        alias="stall_after",
        description="An attempt that shows no progress for so long has stalled: it is told to save "
        "and leave, and cancelled when it has not after `checkpoint.notice`. It is given longer "
        "where its own rhythm is slower: `stall_factor` times the median time between two progress "
        "events, three times the longest; twice as long before the first one, and again after each "
        "attempt that stalled. `never` leaves it to the time limit. A run that never wrote a "
        "progress event is left alone, unless `stall_log` is set.",
        examples=["2h"],
    )
    stall_factor: Count = Field(
        20,
        description="How many median times between two progress events without one are a stall, "
        "if that is longer than `stall_after`.",
        examples=[50],
    )
    stall_log: bool = Field(
        False,
        description="Take the growth of the attempt's log for progress, too: for programs that "
        "only print.",
        examples=[True],
    )
    avoid_bad_nodes: bool = Field(
        True,
        description="Whether an attempt that is sent again keeps away from nodes that have failed "
        "several runs of late (`hpcflow nodes` shows which, and why).",
        examples=[False],
    )
    standby: bool = Field(
        False,
        description="While an attempt runs, let the next one wait in the queue for its end "
        "(`--dependency=afterany`), so that the run goes on after a preemption or a time limit "
        "even where no daemon lives by then. A daemon sends it, once an attempt runs. It "
        "is one more job in the queue for each run, and counts toward limits of submitted jobs. "
        "Meanwhile its priority grows with age only where the site has set "
        "`PriorityFlags=ACCRUE_ALWAYS`; elsewhere it begins to age when the attempt ends. It "
        "leaves at once where the attempt completed, failed or was cancelled. Slurm only.",
        examples=[True],
    )
    deadline_s: Seconds | None = Field(
        None,
        alias="deadline",
        description="Send nothing any more when so much time has passed since the run was made.",
        examples=["7d"],
    )


class RunSpec(Section):
    """One run as its user asked for it."""

    name: Name = Field(
        description="Name of the run; a run id is made from it.", examples=["digits"]
    )
    project: Name = Field(
        "default", description="What the run belongs to; a folder on scratch.", examples=["vision"]
    )
    command: Words | None = Field(
        None,
        min_length=1,
        description="Program and arguments, each an item of its own. It goes through no shell.",
        examples=[["./simulate", "--threads", 8]],
    )
    script: Path | None = Field(
        None,
        description="A Python script, relative to the file that names it; run by the "
        "environment's python3. A run has either a script or a command.",
        examples=["train.py"],
    )
    args: Words = Field(
        default_factory=list,
        description="Arguments of the script or command. `{{ params.NAME }}`, `{{ run.id }}` and "
        "`{{ run.dir }}` are filled in; put such an item in quotes.",
        examples=[["--lr", "{{ params.lr }}"]],
    )
    resume_args: Words = Field(
        default_factory=list,
        description="Arguments that follow `args` when there is a checkpoint to go on from, and "
        "only then. In them `{{ resume.path }}` is filled in, too: the checkpoint, or, of one that "
        "was adopted, the file or folder as the program wrote it.",
        examples=[["--resume", "{{ resume.path }}"]],
    )
    params: Params = Field(
        default_factory=dict,
        description="Parameters: in `runtime.params`, in the file that $HPCFLOW_PARAMS names, "
        "and in `args`. Anything that JSON can hold; `null` is a value here.",
        examples=[{"lr": 0.1, "layers": [64, 64]}],
    )
    resources: Resources = Field(default_factory=Resources, description=Resources.__doc__)
    launch: Launch = Field(default_factory=Launch, description=Launch.__doc__)
    environment: Environment = Field(default_factory=Environment, description=Environment.__doc__)
    checkpoint: Checkpoint = Field(default_factory=Checkpoint, description=Checkpoint.__doc__)
    retry: Retry = Field(default_factory=Retry, description=Retry.__doc__)
    mirror: StoreUrlOrNever | None = Field(
        None,
        description="Where completed checkpoints and the run's small files are copied to: an "
        "`s3://` URL, any that fsspec knows, or an absolute folder; `$USER` and other variables "
        "are filled in; `never` for nowhere. Default: what the site says. "
        "[mirror.md](mirror.md) tells more.",
        examples=["s3://lab-checkpoints/$USER"],
    )
    tags: list[Name] = Field(
        default_factory=list, description="Words to find the run by.", examples=[["baseline"]]
    )

    @model_validator(mode="after")
    def _one_program(self) -> RunSpec:
        if self.command is None and self.script is None:
            raise ValueError("nothing to run: give either `script` or `command`")
        if self.command is not None and self.script is not None:
            raise WrongKey("give either `script` or `command`, not both", "command")
        if self.command is not None and not self.command[0]:
            raise WrongKey("the program has no name", "command", 0)
        return self

    @property
    def program(self) -> list[str]:
        """The words to run before `args` are added."""
        if self.command is not None:
            return list(self.command)
        assert self.script is not None
        return ["python3", "-u", self.script]


#: Way to a section -> names of its fields whose YAML carries a unit, for :func:`thaw`.
_WITH_UNIT: Final = {
    ("resources",): ("mem_mb", "time_limit_min"),
    ("checkpoint",): ("interval_s", "notice_s"),
    ("checkpoint", "adopt"): ("stable_s",),
    ("retry",): ("backoff_s", "backoff_max_s", "stall_after_s", "deadline_s"),
}


def frozen(spec: RunSpec) -> dict[str, Any]:
    """``spec`` as JSON values under the names with units, as run.json keeps it."""
    return spec.model_dump(mode="json")


def as_config(spec: RunSpec) -> dict[str, Any]:
    """``spec`` as the values of a config, under the keys of the YAML; others can go over them."""
    data = spec.model_dump(mode="json", by_alias=True)
    for way, names in _WITH_UNIT.items():
        section: Any = spec
        for name in way:
            section = getattr(section, name)
        if section is not None:
            fields = type(section).model_fields
            data = _marked(data, way, tuple(fields[name].alias or name for name in names))
    return data


def thaw(data: dict[str, Any]) -> RunSpec:
    """The inverse of :func:`frozen`.

    Raises:
        pydantic.ValidationError: the data was not written by :func:`frozen`.
    """
    for way, names in _WITH_UNIT.items():
        data = _marked(data, way, names)
    return RunSpec.model_validate(data)


def _marked(data: dict[str, Any], way: tuple[str, ...], names: tuple[str, ...]) -> dict[str, Any]:
    """``data`` with those numbers of one section marked as being in their units already."""
    if way:
        inner = data.get(way[0])
        return {**data, way[0]: _marked(inner, way[1:], names)} if isinstance(inner, dict) else data
    return {
        name: parsed(value) if name in names and type(value) is int else value
        for name, value in data.items()
    }
