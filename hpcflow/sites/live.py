"""Data classes for a live cluster's partitions, nodes and settings. Pure.

Schedulers fill these in; :mod:`hpcflow.sites.detect` and :mod:`hpcflow.sites.check` read them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class NodeKind:
    """Equal nodes of a partition.

    Attributes:
        cpus, mem_mb: the part of one node that a job may use.
        gpus: Slurm's name of a GPU type -> number per node; "" if Slurm has no type.
        features: for constraints.
    """

    count: int
    cpus: int
    mem_mb: int = 0
    gpus: Mapping[str, int] = field(default_factory=dict)
    features: tuple[str, ...] = ()


@dataclass(frozen=True)
class PartitionInfo:
    """A partition of the live cluster.

    Attributes:
        preempt_mode: as in ``scontrol show partition``; ``OFF`` if its jobs cannot be preempted.
        priority_tier: with preempt/partition_prio, only a higher tier preempts.
        time_limit_max_min, job_nodes_min, job_nodes_max: limits of one job; None for none.
        node_names: empty if unknown.
        qos: its limits bind all jobs in the partition, besides those of their own QOS.
        is_exclusive: whether a job always gets whole nodes.
        caps_cpus: whether ``MaxCPUsPerNode`` or ``MaxCPUsPerSocket`` is set.
        is_root_only, needs_reservation: whether Slurm refuses jobs of other users, or without a
            reservation.
        allowed_groups: Unix groups whose members may submit to it; None for all.
        allowed_accounts, allowed_qos: None for all.
    """

    name: str
    is_default: bool
    is_up: bool
    time_limit_max_min: int | None
    kinds: tuple[NodeKind, ...]
    preempt_mode: str | None = None
    grace_s: int | None = None
    time_limit_default_min: int | None = None
    job_nodes_min: int | None = None
    job_nodes_max: int | None = None
    is_exclusive: bool = False
    caps_cpus: bool = False
    is_root_only: bool = False
    needs_reservation: bool = False
    priority_tier: int | None = None
    qos: str | None = None
    node_names: tuple[str, ...] = ()
    allowed_groups: frozenset[str] | None = None
    allowed_accounts: frozenset[str] | None = None
    denied_accounts: frozenset[str] = frozenset()
    allowed_qos: frozenset[str] | None = None
    denied_qos: frozenset[str] = frozenset()

    @property
    def nodes(self) -> int:
        return sum(kind.count for kind in self.kinds)

    @property
    def nodes_per_job(self) -> int:
        """Return the maximum number of nodes of one job."""
        return self.nodes if self.job_nodes_max is None else min(self.nodes, self.job_nodes_max)

    @property
    def cpus_per_node(self) -> int:
        """Return the CPUs of the node with the most."""
        return max((kind.cpus for kind in self.kinds), default=0)

    @property
    def mem_mb_per_node(self) -> int:
        """Return the memory of the node with the most."""
        return max((kind.mem_mb for kind in self.kinds), default=0)

    @property
    def gpus_per_node(self) -> int:
        """Return the GPUs of the node with the most; 0 if no node has any."""
        return max((sum(kind.gpus.values()) for kind in self.kinds), default=0)

    @property
    def gpu_types(self) -> tuple[str, ...]:
        """Return Slurm's names of its GPU types, as far as Slurm has them."""
        return tuple(name for name in _union(kind.gpus for kind in self.kinds) if name)

    @property
    def features(self) -> tuple[str, ...]:
        return _union(kind.features for kind in self.kinds)

    def with_gpus(self, *names: str) -> PartitionInfo:
        """Return it with only nodes and GPUs of these types; without names, nodes without GPUs."""
        kept = (
            replace(kind, gpus={name: kind.gpus[name] for name in names if name in kind.gpus})
            for kind in self.kinds
            if (not kind.gpus.keys().isdisjoint(names) if names else not kind.gpus)
        )
        return replace(self, kinds=tuple(kept))

    def admits(self, account: str | None, qos: str | None) -> bool:
        """Return whether it accepts jobs of this account and QOS; None skips a check."""
        return _may(account, self.allowed_accounts, self.denied_accounts) and _may(
            qos, self.allowed_qos, self.denied_qos
        )


def _union(lists: Iterable[Iterable[_Item]]) -> tuple[_Item, ...]:
    return tuple(dict.fromkeys(item for items in lists for item in items))


def _may(name: str | None, allowed: frozenset[str] | None, denied: frozenset[str]) -> bool:
    return name is None or (name not in denied and (allowed is None or name in allowed))


@dataclass(frozen=True)
class ClusterInfo:
    """The configuration of a live cluster.

    Attributes:
        settings: name -> value of ``scontrol show config``.
        hides_nodes: whether Slurm shows this user no nodes, so node sizes are averages.
        qos: the names of all QOSes; None if unknown.
    """

    name: str
    version: str
    partitions: tuple[PartitionInfo, ...]
    settings: dict[str, str] = field(default_factory=dict)
    has_accounting: bool = True
    hides_nodes: bool = False
    qos: frozenset[str] | None = None

    def partition(self, name: str) -> PartitionInfo | None:
        return next((each for each in self.partitions if each.name == name), None)

    @property
    def hides_jobs(self) -> bool:
        """Return whether the site hides the jobs of other users."""
        return "jobs" in self.settings.get("PrivateData", "").split(",")

    def features(self) -> frozenset[str]:
        return frozenset(feature for each in self.partitions for feature in each.features)

    def is_preemptible(self, partition: PartitionInfo) -> bool:
        """Return whether Slurm may preempt jobs of ``partition``.

        A partition inherits the cluster's mode, so the mode alone is no proof: with
        preempt/partition_prio, a partition of the highest tier is never preempted.
        """
        mode = (partition.preempt_mode or "OFF").upper()
        if mode in ("OFF", "GANG"):
            return False
        kind = self.settings.get("PreemptType", "preempt/partition_prio")
        if kind.endswith("none"):
            return False
        if not kind.endswith("partition_prio") or partition.priority_tier is None:
            return True
        tiers = (each.priority_tier for each in self.partitions)
        return any(tier is not None and tier > partition.priority_tier for tier in tiers)


#: Interval of slurmctld's checks of time limits (PERIODIC_TIMEOUT in controller.h, Slurm 22.05).
_BETWEEN_CHECKS_S = 30


def overrun_s(info: ClusterInfo) -> int | None:
    """Return how long a job may run past its time limit; None if unknown."""
    wait = re.match(r"(\d+) sec", info.settings.get("KillWait", ""))
    more = re.match(r"(\d+) min", info.settings.get("OverTimeLimit", "0 min"))
    if wait is None or more is None:
        return None
    return int(wait[1]) + 60 * int(more[1]) + _BETWEEN_CHECKS_S
