"""The schema of a site file.

:mod:`hpcflow.sites.loader` reads the files. docs/site_reference.md is generated from the
descriptions here.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, PrivateAttr, model_validator

from hpcflow.documents import Document
from hpcflow.errors import Where
from hpcflow.model.execution import Launcher
from hpcflow.model.kinds import (
    Count,
    CountOrAll,
    CountOrNone,
    EndpointUrl,
    Kind,
    Matching,
    Megabytes,
    Minutes,
    Module,
    Name,
    Path,
    Seconds,
    Section,
    StoreUrl,
    Text,
    Variables,
    Word,
    WrongKey,
)
from hpcflow.model.sbatch import DEPENDED_ON, SbatchOptions
from hpcflow.sites.prices import Price, ScratchPrice, StorePrice

Weight = Annotated[
    float, Field(strict=False, ge=0, le=10, allow_inf_nan=False), Kind("number from 0 to 10")
]


class Weights(Section):
    """The weight of each criterion when `auto` chooses; 0 ignores it."""

    cost: Weight = Field(1.0, description="Expected cost of the run.")
    time: Weight = Field(1.0, description="Expected time until the run ends: wait and run time.")
    fair_share: Weight = Field(1.0, description="The account's fair-share factor, from 0 to 1.")


#: Options that would change the one job step that a script starts.
_NOT_FOR_SRUN: Final = frozenset({
    "multi-prog", "test-only", "help", "usage", "version", "input", "output", "error", "export",
    "nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "kill-on-bad-exit", "no-kill", "wait",
    "jobid", "pty", "chdir", "uid", "gid",
})  # fmt: skip


def _without(refused: frozenset[str]) -> AfterValidator:
    """Refuse options by prefix, because Slurm's programs accept abbreviated options."""

    def check(option: str) -> str:
        name = option[2:].partition("=")[0]
        meant = sorted(each for each in refused if each.startswith(name))
        if meant:
            raise ValueError(f"a site may not set --{meant[0]}: hpcflow itself depends on it")
        return option

    return AfterValidator(check)


_OPTION: Final = Matching(
    r"--[a-z][a-z-]*(=[A-Za-z0-9_.,:+/&|*()\[\]%@=-]+)?",
    "not an option in its long form, such as --hint=nomultithread",
)
#: An option of a ``#SBATCH`` line, such as ``--network=disable_rdzv_get``.
Option = Annotated[str, _OPTION, _without(DEPENDED_ON), Kind("sbatch option")]
SrunOption = Annotated[str, _OPTION, _without(_NOT_FOR_SRUN), Kind("srun option")]
Features = Annotated[
    str,
    Matching(
        r"[A-Za-z0-9_.,&|*()\[\]!:=+-]+",
        "not a constraint of sbatch, such as gpu&hbm80g",
    ),
    Kind("node features"),
]
Folder = Annotated[
    str,
    Matching(
        r"/(?!.*(?:^|/)\.\.(?:/|$))[^\x00-\x1f\x7f]+", "not an absolute path without '..'", 4096
    ),
    Kind("absolute path"),
]
HostPattern = Annotated[
    str,
    Matching(r"[A-Za-z0-9.*?-]+", "not a pattern of host names, such as login*.example.org"),
    Kind("pattern of host names"),
]


class SchedulerKind(str, Enum):
    """The scheduler of a site."""

    SLURM = "slurm"
    LOCAL = "local"


class GpuDialect(str, Enum):
    """How jobs request GPUs."""

    GRES = "gres"  # --gres=gpu:TYPE:N
    GPUS_PER_NODE = "gpus-per-node"  # --gpus-per-node=TYPE:N
    IMPLIED = "implied"  # jobs get whole nodes; a request is an error


class Dialect(Section):
    """The sbatch options that this site needs."""

    gpus: GpuDialect = Field(
        GpuDialect.GRES,
        description="`gres`, `gpus-per-node`, or `implied` if jobs get whole nodes.",
    )
    gpu_type_in_request: bool = Field(
        True, description="Whether requests name the GPU type: gpu:a100:4, or gpu:4."
    )
    mem: bool = Field(True, description="Whether `--mem` may be used.")
    export: bool = Field(True, description="Whether `--export=NONE` may be used.")
    required: list[Literal["account", "nodes", "time_limit", "partition", "qos", "constraint"]] = (
        Field(default_factory=list, description="Keys of `resources` that a run must have here.")
    )
    options: list[Option] = Field(default_factory=list, description="sbatch options of every job.")


class TimeLimitBin(Section):
    """The longest time limit of jobs up to a number of nodes."""

    nodes_max: Count = Field(description="Maximum number of nodes of a job in this bin.")
    time_limit_max_min: Minutes = Field(
        alias="time_limit_max", description="Maximum time limit of a job in this bin."
    )


class Partition(Section):
    """A partition, or a combination of a partition with a QOS or a constraint."""

    slurm_partition: Word | None = Field(
        None,
        alias="partition",
        description="Its name in Slurm, if different from the key; `null` if jobs name no "
        "partition, and QOS or constraint select it.",
    )
    description: Text | None = Field(None, description="A text for users.")
    gpu_type: Word | None = Field(
        None,
        description="Type of its GPUs, a key of `gpu_types`. Absent if they are mixed: then a run "
        "may request any of `gpu_types`.",
    )
    gpus_per_node: CountOrNone = Field(0, description="GPUs per node.")
    cpus_per_node: Count = Field(
        description="CPU cores per node that a job may use.", examples=[64]
    )
    mem_per_node_mb: Megabytes | None = Field(
        None, alias="mem_per_node", description="Memory per node that a job may use."
    )
    nodes_min: Count = Field(1, description="Minimum number of nodes of a job.")
    nodes_max: Count | None = Field(None, description="Maximum number of nodes of a job.")
    time_limit_max_min: Minutes | None = Field(
        None, alias="time_limit_max", description="Maximum time limit; none if absent."
    )
    time_limit_bins: list[TimeLimitBin] = Field(
        default_factory=list,
        description="Shorter limits for smaller jobs, at sites that favour large jobs; the "
        "smallest bin first.",
    )
    node_time_max_min: Minutes | None = Field(
        None,
        alias="node_time_max",
        description="Maximum node-time of a job, nodes × time limit; none if absent.",
    )
    time_limit_default_min: Minutes | None = Field(
        None,
        alias="time_limit_default",
        description="The time limit of a run that names none. Default: the maximum.",
    )
    whole_nodes: bool = Field(False, description="Whether a job always gets whole nodes.")
    preemptible: bool = Field(False, description="Whether Slurm may preempt jobs here.")
    grace_s: Seconds | None = Field(
        None, alias="grace", description="Time from the preemption signal to SIGKILL."
    )
    qos: Word | None = Field(None, description="Its QOS.")
    constraint: Features | None = Field(None, description="The constraint that its jobs need.")
    sbatch: SbatchOptions = Field(
        default_factory=dict,
        description="sbatch options of every job in this partition, as `resources.sbatch` in a "
        "config. The config overrides them.",
    )
    auto: bool = Field(True, description="Whether `partition: auto` may choose it.")
    price: Price | None = Field(None, description="Its price; unknown if absent.")

    @model_validator(mode="after")
    def _limits_agree(self) -> Partition:
        if self.nodes_max is not None and self.nodes_min > self.nodes_max:
            raise WrongKey("more than nodes_max", "nodes_min")
        default, longest = self.time_limit_default_min, self.time_limit_max_min
        if default is not None and longest is not None and default > longest:
            raise WrongKey("longer than time_limit_max", "time_limit_default")
        if self.gpu_type is not None and not self.gpus_per_node:
            raise WrongKey("given, and gpus_per_node is 0", "gpu_type")
        sizes = [each.nodes_max for each in self.time_limit_bins]
        if sizes != sorted(set(sizes)):
            raise WrongKey("must go from the smallest nodes_max to the largest", "time_limit_bins")
        return self

    def time_limit_for(self, nodes: int) -> int | None:
        """Return a job's maximum time limit on ``nodes`` nodes, in minutes; None without one."""
        limits = [self.time_limit_max_min]
        limits += [
            each.time_limit_max_min for each in self.time_limit_bins if nodes <= each.nodes_max
        ][:1]
        if self.node_time_max_min is not None:
            limits.append(max(1, self.node_time_max_min // nodes))
        return min((limit for limit in limits if limit is not None), default=None)


class GpuType(Section):
    """A type of GPU."""

    mem_mb: Megabytes | None = Field(None, alias="mem", description="Memory of one GPU.")
    gres_name: Word | None = Field(
        None, description="Its name in Slurm, if different from the key."
    )
    vendor: Literal["nvidia", "amd", "intel", "fake"] = Field(
        "nvidia", description="The vendor, which decides between NCCL and RCCL settings."
    )


class Scratch(Section):
    """The folder of run directories."""

    path: Path = Field(
        description="Folder of this user. `$NAME` is from the user's environment, `$USER` is the "
        "Unix user, `$ACCOUNT` the account that the run is charged to, and `$HPCFLOW_HOME` the "
        "user's hpcflow directory.",
        examples=["$SCRATCH"],
    )
    purge_days: Count | None = Field(
        None, description="Days without access until a file is purged.", examples=[30]
    )
    filesystem: str | None = Field(None, description="Its name in the documentation; a note.")
    trusted_users: list[Text] = Field(
        default_factory=list,
        description="Users besides root who may own a directory on the path to `path`, such as the "
        "head of a project. They can run commands as every user here. Variables as in `path`. "
        "[Why](sites.md#folders-that-others-may-write-in).",
    )
    trusted_groups: list[Text] = Field(
        default_factory=list,
        description="Groups that may write to such a directory. Their members can run commands as "
        "every user here. Variables as in `path`.",
    )
    price: ScratchPrice | None = Field(
        None, description="The price of storage there. [costs.md](costs.md#storage-and-transfer)."
    )


class Retention(Section):
    """How long checkpoints stay in the mirror.

    A checkpoint that no given key retains is removed from the mirror, unless it is the newest one
    of its run or its run directory still has it. Without a key, all stay.
    """

    keep_last: CountOrAll = Field(
        None, description="Number of a run's newest checkpoints to keep, or `all`."
    )
    keep_for_s: Seconds | None = Field(
        None, alias="keep_for", description="Keep checkpoints this long after they were mirrored."
    )


class SiteMirror(Section):
    """The store to which hpcflow copies complete checkpoints of all runs.

    Credentials come from the store's standard chain: for S3 the environment, `~/.aws`, or the
    machine's role.
    """

    url: StoreUrl = Field(
        description="A folder of an object store, such as `s3://bucket/$USER`, or an absolute "
        "folder on another file system. [mirror.md](mirror.md#set-it-up) has the kinds of store. "
        "Variables as in `scratch.path`.",
        examples=["s3://lab-checkpoints/$USER"],
    )
    endpoint_url: EndpointUrl | None = Field(
        None,
        description="Endpoint of an S3 store other than Amazon's. Default: `AWS_ENDPOINT_URL`, or "
        "the setting in `~/.aws/config`.",
    )
    encryption: Literal["AES256", "aws:kms"] | None = Field(
        None, description="Encryption by the store. Default: the bucket's."
    )
    kms_key: Text | None = Field(
        None, description="Id of the key for `aws:kms`. Default: the account's own."
    )
    storage_class: Word | None = Field(
        None, description="Storage class, such as `STANDARD_IA`. Default: the bucket's."
    )
    bandwidth_mb_s: Megabytes | None = Field(
        None,
        alias="bandwidth",
        description="Maximum bytes per second of one mirror, such as `200M`; no limit if absent.",
    )
    retention: Retention = Field(default_factory=Retention, description=Retention.__doc__)
    partition: Word | None = Field(
        None,
        description="Slurm's name of a partition for data transfer: the daemon submits the mirror "
        "as a job there. Default: it runs beside the daemon.",
    )
    shared: bool = Field(
        False,
        description="For a plain folder: let its group read the mirrored files (0750, 0640). "
        "Default: only the owner (0700, 0600).",
    )
    price: StorePrice | None = Field(
        None,
        description="The price of storing and fetching checkpoints. "
        "[costs.md](costs.md#storage-and-transfer).",
    )

    @model_validator(mode="after")
    def _key_has_a_use(self) -> SiteMirror:
        if self.kms_key is not None and self.encryption != "aws:kms":
            raise WrongKey("has no effect without `encryption: aws:kms`", "kms_key")
        if self.shared and not self.url.startswith("/"):
            raise WrongKey("applies only to a plain folder", "shared")
        return self


class Fabric(Section):
    """The network between the nodes."""

    variables: Variables = Field(
        default_factory=dict, description="Environment variables for NCCL, RCCL, libfabric, UCX."
    )
    master_port: int | None = Field(
        None, ge=1024, le=65535, description="A fixed rendezvous port, if only one is open."
    )


class SiteLaunch(Section):
    """How to start processes here."""

    pytorch: Launcher = Field(
        Launcher.TORCHRUN, description="Launcher for `framework: pytorch` if a run names none."
    )
    srun_options: list[SrunOption] = Field(
        default_factory=list, description="Options of every srun."
    )


class Modules(Section):
    """Environment modules of this site."""

    init: Path | None = Field(
        None, description="Script that defines `module`, if the batch shell lacks it."
    )
    load: list[Module] = Field(
        default_factory=list,
        description="Modules that every job loads first.",
        examples=[["cuda/12.4"]],
    )


class Site(Section):
    """One cluster."""

    name: Name = Field(
        description="The site's name; its file must be NAME.yaml.", examples=["mycluster"]
    )
    description: Text = Field("", description="One line for users.")
    source: Text | None = Field(None, description="Source of these values, and its date.")
    scheduler: SchedulerKind = Field(SchedulerKind.SLURM, description="`slurm` or `local`.")
    cluster_name: Word | None = Field(
        None, description="Slurm's ClusterName, which identifies the site."
    )
    hosts: list[HostPattern] = Field(
        default_factory=list, description="Patterns of login host names, which identify the site."
    )
    has_accounting: bool = Field(True, description="Whether sacct works here (slurmdbd).")
    time_limit_overrun_s: Seconds = Field(
        60,
        alias="time_limit_overrun",
        description="How long a job may run past its time limit: Slurm checks limits every 30 "
        "seconds, then waits KillWait before SIGKILL. Budgets include this time.",
    )
    dialect: Dialect = Field(default_factory=Dialect, description=Dialect.__doc__)
    partitions: dict[Word, Partition] = Field(
        min_length=1,
        description="Partitions, the preferred first.",
        examples=[{"gpu": {"cpus_per_node": 64}}],
    )
    gpu_types: dict[Word, GpuType] = Field(default_factory=dict, description="Types of GPU.")
    default_account: Word | None = Field(None, description="Account of a run that names none.")
    accounts: list[Word] | None = Field(
        None,
        description="All accounts of the site; unknown if absent.",
        examples=[["physics", "biology"]],
    )
    weights: Weights = Field(default_factory=Weights, description=Weights.__doc__)
    scratch: Scratch = Field(description="The folder of run directories.")
    mirror: SiteMirror | None = Field(None, description=SiteMirror.__doc__)
    budgets_dir: Folder | None = Field(
        None,
        description="Folder with the budgets of all users, so that several users can share one. "
        "All login nodes must mount it, and its group must be able to write to it. Default: each "
        "user's `$HPCFLOW_HOME/budgets`.",
    )
    fabric: Fabric = Field(default_factory=Fabric, description=Fabric.__doc__)
    launch: SiteLaunch = Field(default_factory=SiteLaunch, description=SiteLaunch.__doc__)
    modules: Modules = Field(default_factory=Modules, description=Modules.__doc__)
    login_nodes_differ: bool = Field(
        False,
        description="Whether login nodes have other modules, file systems or CPUs than compute "
        "nodes. Then `hpcflow run` only warns if it does not find something. "
        "[configuration.md](configuration.md#what-is-checked-before-a-submission)",
    )
    variables: Variables = Field(
        default_factory=dict, description="Environment variables of every job."
    )
    _document: Document | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _gpu_types_exist(self) -> Site:
        for name, partition in self.partitions.items():
            if partition.gpu_type is not None and partition.gpu_type not in self.gpu_types:
                raise WrongKey(
                    f"{partition.gpu_type} is not among gpu_types", "partitions", name, "gpu_type"
                )
            for key, gpu_type in partition.price.priced_types() if partition.price else ():
                if gpu_type not in self.gpu_types:
                    raise WrongKey(
                        f"{gpu_type} is not among gpu_types", "partitions", name, "price", key
                    )
        return self

    def read_from(self, document: Document) -> Site:
        """Store the document, for the lines of its keys; return the site."""
        self._document = document
        return self

    @property
    def file(self) -> str | None:
        """Return the file that it was read from; None if it was made in memory."""
        return self._document.place.file if self._document else None

    def where(self, *keys: str) -> Where:
        """Return file and line of a key, if known."""
        return self._document.where(keys) if self._document else Where(key=".".join(keys))

    def slurm_partition(self, name: str) -> str | None:
        """Return the value of ``--partition`` for the key ``name``; None if it must be absent."""
        options = self.partitions[name]
        if "slurm_partition" in options.model_fields_set:
            return options.slurm_partition
        return name
