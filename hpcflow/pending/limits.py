"""List what a user may use of a cluster, as `hpcflow limits` shows it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from hpcflow.model.units import counted
from hpcflow.pending.bounds import qos_limits
from hpcflow.sites.live import ClusterInfo, PartitionInfo
from hpcflow.sites.standing import JOBS, Association, Limit, QosLimits, Standing

#: The resources of running jobs that are shown, in this order; Slurm counts more.
_SHOWN = (JOBS, "node", "cpu", "gres/gpu")


@dataclass(frozen=True)
class AccountLine:
    """One of the user's accounts.

    Attributes:
        factor: the fair-share factor; None if unknown.
        meaning: the fair share in words.
        in_use: what the user's running jobs use there.
    """

    account: str
    partition: str | None
    is_default: bool | None
    qos: tuple[str, ...]
    default_qos: str | None
    factor: float | None
    meaning: str
    in_use: dict[str, int]
    limits: tuple[Limit, ...]


@dataclass(frozen=True)
class QosLine:
    """A QOS that the user may request.

    Attributes:
        limits: those of the user, of the user's accounts, of one job, and of all jobs together.
    """

    name: str
    accounts: tuple[str, ...]
    priority: int
    usage_factor: str | None
    preempts: tuple[str, ...]
    flags: tuple[str, ...]
    in_use: dict[str, int]
    limits: tuple[Limit, ...]


@dataclass(frozen=True)
class PartitionLine:
    """A partition with a QOS, whose limits apply to all its jobs.

    Attributes:
        limits: as for :class:`QosLine`; they override those of the job's own QOS, unless that has
            ``OverPartQOS``. None if unknown.
    """

    name: str
    qos: str
    limits: tuple[Limit, ...] | None


def account_lines(standing: Standing) -> list[AccountLine]:
    """Return the user's accounts, those with the best fair share first."""
    lines = [_account(each, standing) for each in standing.associations]
    return sorted(lines, key=lambda line: (-(line.factor or 0), line.account))


def qos_lines(standing: Standing) -> list[QosLine]:
    """Return the QOSes by their priority, the highest first."""
    lines = [_qos(each, standing) for each in standing.qos]
    return sorted(lines, key=lambda line: (-line.priority, line.name))


def partition_lines(standing: Standing, cluster: ClusterInfo) -> list[PartitionLine]:
    """Return the partitions with a QOS that accept a job of the user's accounts, by name."""
    return sorted(
        (
            PartitionLine(partition.name, partition.qos, _limits(standing.qos_named(partition.qos)))
            for partition in cluster.partitions
            if partition.qos is not None and _takes(partition, standing)
        ),
        key=lambda line: line.name,
    )


def _takes(partition: PartitionInfo, standing: Standing) -> bool:
    if not standing.associations:
        return partition.admits(None, None)
    mine = [each for each in standing.associations if each.partition in (None, partition.name)]
    return any(partition.admits(each.account, qos) for each in mine for qos in each.qos or (None,))


def _limits(qos: QosLimits | None) -> tuple[Limit, ...] | None:
    return None if qos is None else qos_limits(qos, None)


def in_use_words(in_use: dict[str, int]) -> str:
    """Return ``4 jobs, 4 nodes, 32 CPUs, 16 GPUs``; empty for nothing."""
    names = {JOBS: "job", "node": "node", "cpu": "CPU", "gres/gpu": "GPU"}
    counts = [(names[key], in_use[key]) for key in _SHOWN if in_use.get(key)]
    return ", ".join(counted(count, name) for name, count in counts)


def _account(association: Association, standing: Standing) -> AccountLine:
    share = standing.share(association.account, association.partition)
    return AccountLine(
        account=association.account,
        partition=association.partition,
        is_default=association.is_default,
        qos=association.qos,
        default_qos=association.default_qos,
        factor=share.factor if share else None,
        meaning=share_words(standing, association.account),
        in_use=dict(association.in_use),
        limits=association.limits,
    )


def _qos(qos: QosLimits, standing: Standing) -> QosLine:
    mine = standing.associations
    return QosLine(
        name=qos.name,
        accounts=tuple(dict.fromkeys(each.account for each in mine if qos.name in each.qos)),
        priority=qos.priority,
        usage_factor=None if qos.usage_factor is None else f"{qos.usage_factor.normalize():f}",
        preempts=qos.preempts,
        flags=qos.flags,
        in_use=dict(qos.in_use),
        limits=qos_limits(qos, None),
    )


def share_words(standing: Standing, account: str) -> str:
    """Compare an account's share with its usage; empty if unknown."""
    whole, own = standing.account_share(account), standing.share(account)
    if whole is None or whole.norm_shares is None or whole.effective_usage is None:
        return ""
    due, had = whole.norm_shares, whole.effective_usage
    verdict = "more than its share: others come first" if had > due else "less than its share"
    if not standing.is_fair_tree:
        # Usage of its siblings counts in part, so no part of the usage is the user's.
        usage = f"is due {due:.0%} of the cluster, and counts as having used {had:.0%}"
        return f"{account} {usage}: {verdict}"
    words = f"{account} is due {due:.0%} of what it and its siblings use, and has used {had:.0%}"
    if not had:
        return f"{words}: jobs in it come before those of its siblings"
    part = None if own is None else own.effective_usage
    mine = "" if part is None else f"; {part:.0%} of that is yours"
    return f"{words}: {verdict}{mine}"
