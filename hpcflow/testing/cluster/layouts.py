"""Nodes, GPUs and partitions of a cluster. Pure values.

:func:`development` is the development cluster's layout. :data:`LAYOUTS` are those of other kinds of
clusters, to test hpcflow with them on a real Slurm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hpcflow.errors import InputError

GPU_TYPE = "a100"


@dataclass(frozen=True)
class Size:
    """The claimed size of the cluster; nodes may claim more than the machine has."""

    nodes: int = 4
    cpus: int = 8
    gpus: int = 4

    def __post_init__(self) -> None:
        limits = {"nodes": (1, 256), "cpus": (1, 4096), "gpus": (0, 64)}
        for name, (low, high) in limits.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise InputError(
                    f"--{name} {value}: must be between {low} and {high}",
                    next_action="try: python -m hpcflow.testing.cluster up",
                )

    @property
    def memory_mb(self) -> int:
        """Return the claimed memory of a node: 1 GB per CPU, at least 8 GB."""
        return 1024 * max(8, self.cpus)


@dataclass(frozen=True)
class Gres:
    """Generic resources of a node: ``gpu`` or ``shard``.

    Attributes:
        cores: cores near the GPUs, such as ``0-3``.
    """

    name: str
    count: int
    type: str = ""
    cores: str = ""


@dataclass(frozen=True)
class Node:
    """A node: its text in slurm.conf, and its generic resources."""

    words: str
    gres: tuple[Gres, ...] = ()

    @property
    def gres_words(self) -> str:
        """Return its Gres in slurm.conf, such as ``gpu:a100:4,shard:16``."""
        counts: dict[str, int] = {}
        for each in self.gres:
            key = f"{each.name}:{each.type}" if each.type else each.name
            counts[key] = counts.get(key, 0) + each.count
        return ",".join(f"{key}:{count}" for key, count in counts.items())


@dataclass(frozen=True)
class Layout:
    """The layout of a cluster.

    Attributes:
        nodes: by name.
        partitions: their text in slurm.conf, the name first.
        settings: keys of slurm.conf that differ from the development cluster's.
        records: commands of sacctmgr before slurmctld starts, after the usual accounts.
        has_accounting: whether there is a slurmdbd.
    """

    nodes: Mapping[str, Node]
    partitions: Sequence[str]
    settings: Mapping[str, str] = field(default_factory=dict)
    records: Sequence[str] = ()
    has_accounting: bool = True


def development(size: Size) -> Layout:
    """Return the development cluster's layout: equal nodes, each in all partitions."""
    gres = (Gres("gpu", size.gpus, GPU_TYPE),) if size.gpus else ()
    feature = f" Feature={GPU_TYPE}" if size.gpus else ""
    node = Node(f"CPUs={size.cpus} RealMemory={size.memory_mb}{feature}", gres)
    # Without DefMemPerCPU, a job without a memory request gets all of the node's.
    names = f"n[1-{size.nodes}]" if size.nodes > 1 else "n1"
    common = f"Nodes={names} DefMemPerCPU={size.memory_mb // size.cpus}"
    day = "MaxTime=1-00:00:00 DefaultTime=01:00:00"
    minutes = "MaxTime=00:02:00 DefaultTime=00:01:00"
    return Layout(
        nodes={f"n{number}": node for number in range(1, size.nodes + 1)},
        partitions=[
            f"gpu Default=YES PriorityTier=10 PreemptMode=OFF {day} {common}",
            f"spot PriorityTier=1 GraceTime=5 PreemptMode=REQUEUE {day} {common}",
            f"short PriorityTier=10 PreemptMode=OFF {minutes} {common}",
        ],
    )


_SOCKETS = Node(
    "Sockets=2 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=32000 Feature=h100,ib",
    (Gres("gpu", 2, "h100", "0-3"), Gres("gpu", 2, "h100", "4-7")),
)
_AMD = Node(
    "Sockets=1 CoresPerSocket=64 ThreadsPerCore=2 CoreSpecCount=8 MemSpecLimit=4000"
    " RealMemory=64000",
    (Gres("gpu", 8, "mi250x"),),
)
_UNLIKE = Layout(
    nodes={
        "untyped1": Node("CPUs=8 RealMemory=8000", (Gres("gpu", 2),)),
        "shards1": Node(
            "CPUs=8 RealMemory=8000 Feature=a100", (Gres("gpu", 4, "a100"), Gres("shard", 16))
        ),
        "mig1": Node(
            "CPUs=16 RealMemory=16000 Feature=a100,mig",
            (
                Gres("gpu", 1, "a100"),
                Gres("gpu", 7, "a100_1g.5gb"),
                Gres("gpu", 2, "a100_3g.20gb"),
            ),
        ),
        "amd1": _AMD,
        "amd2": _AMD,
        "sockets1": _SOCKETS,
        "sockets2": _SOCKETS,
        "cpu1": Node("CPUs=32 RealMemory=64000"),
        "fat1": Node("CPUs=64 RealMemory=256000 Feature=fat"),
    },
    partitions=[
        "all Default=YES Nodes=ALL MaxTime=2-00:00:00",
        "untyped Nodes=untyped1 MaxTime=1:00:00",
        "shards Nodes=shards1 MaxTime=1:00:00",
        "mig Nodes=mig1 MaxTime=1:00:00 DefaultTime=10",
        "standard-g Nodes=amd[1-2] MaxTime=2-00:00:00 OverSubscribe=EXCLUSIVE",
        "sockets Nodes=sockets[1-2] MaxTime=1-00:00:00",
        "cpu Nodes=cpu1,fat1",
        "whole Nodes=cpu1,fat1,sockets1 OverSubscribe=EXCLUSIVE MaxTime=1:00:00",
        "hidden Nodes=cpu1 Hidden=YES MaxTime=1:00:00",
        "physicists Nodes=sockets1 AllowAccounts=physics MaxTime=1:00:00",
        "biologists Nodes=sockets1 AllowAccounts=biology MaxTime=1:00:00",
        "staff Nodes=sockets1 AllowGroups=root Hidden=YES MaxTime=1:00:00",
        "operators Nodes=sockets1 RootOnly=YES MaxTime=1:00:00",
        "reserved Nodes=sockets1 ReqResv=YES MaxTime=1:00:00",
        "long Nodes=sockets1 AllowQos=long MaxTime=7-00:00:00",
        "narrow Nodes=shards1,sockets[1-2] MaxCPUsPerNode=4 MaxMemPerNode=2000 MaxNodes=1"
        " MaxTime=1:00:00",
        "lean Nodes=cpu1 MaxMemPerCPU=1000 MaxTime=1:00:00",
        "wide Nodes=sockets[1-2],amd[1-2] MinNodes=2 MaxTime=1:00:00",
        "spot Nodes=ALL PriorityTier=0 PreemptMode=CANCEL GraceTime=30 MaxTime=1:00:00",
        "brief Nodes=sockets[1-2] QoS=brief MaxTime=1-00:00:00",
        "drained Nodes=cpu1 State=DRAIN MaxTime=1:00:00",
        "closed Nodes=cpu1 MaxNodes=0 MaxTime=1:00:00",
    ],
    # The commands of a federation show all its clusters.
    settings={"GresTypes": "gpu,shard", "FederationParameters": "fed_display"},
    records=[
        "add qos long",
        "add qos brief MaxWall=30 MaxTRESPerJob=node=1 Flags=DenyOnLimit",
        "modify user hpcf-ada set qos+=long",
        "add federation islands clusters=devcluster",
    ],
)
_ALONE = Layout(
    nodes={
        **{f"whole{number}": Node("CPUs=16 RealMemory=32000") for number in (1, 2, 3)},
        "large1": Node("CPUs=64 RealMemory=128000"),
    },
    partitions=[
        "batch Default=YES Nodes=whole[1-3] MaxTime=1-00:00:00",
        "shared Nodes=large1 OverSubscribe=YES MaxTime=1:00:00",
    ],
    settings={
        "SelectType": "select/linear",
        "SelectTypeParameters": "CR_Memory",
        "PreemptType": "preempt/none",
        "PreemptMode": "OFF",
        "PriorityType": "priority/basic",
        "PrivateData": "nodes",
        "GresTypes": "",
    },
    has_accounting=False,
)
LAYOUTS = {"unlike": _UNLIKE, "alone": _ALONE}
"""unlike: partitions with many kinds of nodes, GPUs and permissions.
alone: whole nodes, no accounting, no GPUs in Slurm, nodes that users cannot see."""
