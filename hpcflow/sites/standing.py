"""Data classes for a user's limits, their use, fair shares and reservations.

Schedulers fill these in. Limits have Slurm's names, as ``sacctmgr`` shows them, with the long
ending: ``MaxJobs``, ``MaxWall``, ``GrpTRES``, ``MaxTRESPerUser``, ``MaxSubmitJobsPerAccount`` ….
Resources have Slurm's names, too: ``cpu``, ``node``, ``gres/gpu``, ``gres/gpu:a100``, ``billing``,
and ``mem``, which is always in MiB.

If several limits are set, the order is Slurm's: see "Hierarchy" in
https://slurm.schedmd.com/resource_limits.html. A limit of the partition's QOS overrides the same
one of the job's QOS (the reverse with the flag ``OverPartQOS``). Both override that of the
association and its parent accounts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Final

#: ``Limit.resource`` of a number of jobs, and of a number of minutes.
JOBS: Final = "jobs"
MINUTES: Final = "minutes"
#: The values of AccountingStorageEnforce that enforce limits.
_ENFORCED: Final = frozenset({"limits", "safe", "all"})
#: These override ``MaxJobs`` of an association (acct_policy_job_runnable_pre_select).
_OF_JOBS: Final = frozenset({("MaxJobsPerUser", JOBS), ("MaxJobsPerAccount", JOBS)})


@dataclass(frozen=True)
class Limit:
    """One limit.

    Attributes:
        name: ``GrpTRES``, ``MaxJobs``, ``MaxWall`` …
        resource: ``gres/gpu``, ``cpu`` …, JOBS or MINUTES. If the name contains ``Mins``, the limit
            is on minutes of that resource.
        used: the present use; None if unknown, and for a limit of one job.
        holder: whom it binds, as text: ``account physics``, ``user ada in QOS tight``.
    """

    name: str
    resource: str
    allowed: int
    used: int | None = None
    holder: str = ""

    @property
    def is_full(self) -> bool:
        return self.used is not None and self.used >= self.allowed

    @property
    def left(self) -> int | None:
        """Return the unused part; None if the use is unknown."""
        return None if self.used is None else max(0, self.allowed - self.used)


@dataclass(frozen=True)
class Association:
    """A Slurm association: a user in an account.

    Attributes:
        partition: the only partition that it is for; None for all.
        default_qos: the QOS of a job that names none; None if unknown.
        qos: names of the QOSes that its jobs may use.
        limits: first those of the user in this account, including inherited ones; then those of the
            account and its parents, which bind all their users together.
        in_use: the use of its running jobs: ``cpu``, ``gres/gpu`` …; JOBS has their number.
        is_default: whether a job that names no account gets this one; None if unknown.
    """

    account: str
    partition: str | None = None
    default_qos: str | None = None
    qos: tuple[str, ...] = ()
    limits: tuple[Limit, ...] = ()
    in_use: Mapping[str, int] = field(default_factory=dict)
    is_default: bool | None = None

    @property
    def max_wall_min(self) -> int | None:
        """Return the maximum time limit of a job; None without one."""
        return _least(self.limits, "MaxWall")


@dataclass(frozen=True)
class QosLimits:
    """A QOS.

    Attributes:
        limits: of one job, the user, one of the user's accounts, or the whole QOS.
        in_use: the use of the user's running jobs; as in :class:`Association`.
        preempts: QOSes whose jobs it may preempt.
        usage_factor: the weight of its use in fair share; 1 is usual.
    """

    name: str
    priority: int = 0
    flags: tuple[str, ...] = ()
    limits: tuple[Limit, ...] = ()
    in_use: Mapping[str, int] = field(default_factory=dict)
    preempts: tuple[str, ...] = ()
    usage_factor: Decimal | None = None

    @property
    def max_wall_min(self) -> int | None:
        """Return the maximum time limit of a job; None without one."""
        return _least(self.limits, "MaxWall")


@dataclass(frozen=True)
class FairShare:
    """The fair share of an account, or of a user in it, and its use.

    Attributes:
        user: None for the account as a whole.
        raw_shares: assigned by the staff; None if it uses its parent's.
        norm_shares: its part of the shares of its siblings and itself, 0 to 1.
        raw_usage: seconds of the billed unit (usually a CPU), decaying with time.
        norm_usage: its part of the whole cluster's use, 0 to 1.
        effective_usage: its part of the use of its siblings and itself, 0 to 1.
        factor: the fair-share factor of a job's priority, from 0 (used far more than its share) to
            1. Only users have one.
        level_fs: norm_shares / effective_usage: above 1, it has used less than its share.
    """

    account: str
    user: str | None = None
    partition: str | None = None
    raw_shares: int | None = None
    norm_shares: float | None = None
    raw_usage: int | None = None
    norm_usage: float | None = None
    effective_usage: float | None = None
    factor: float | None = None
    level_fs: float | None = None


@dataclass(frozen=True)
class Standing:
    """The associations, QOSes and fair shares of one user.

    Attributes:
        associations: sorted by account; empty if accounts are not enforced.
        qos: those that any association allows, or all if unknown.
        other_qos: all others. The limits of one bind the jobs of a partition that has it.
        is_use_known: whether the use of limits, and the limits of parent accounts, are known.
        are_limits_enforced: whether Slurm enforces limits.
        is_fair_tree: whether shares and use refer to a level of the account tree, not to the whole
            cluster.
        shares: of the user, and of the accounts, in Slurm's order.
        missing: each failed query with its reason, as text.
    """

    user: str
    associations: tuple[Association, ...] = ()
    qos: tuple[QosLimits, ...] = ()
    shares: tuple[FairShare, ...] = ()
    missing: tuple[str, ...] = ()
    other_qos: tuple[QosLimits, ...] = ()
    is_use_known: bool = True
    are_limits_enforced: bool = True
    is_fair_tree: bool = True

    def association(
        self, account: str | None = None, partition: str | None = None
    ) -> Association | None:
        """Return the association of a job in this account (or the default one) and partition."""
        chosen = [
            each
            for each in self.associations
            if (each.is_default if account is None else each.account == account)
            and each.partition in (None, partition)
        ]
        # An association of this partition overrides one for all partitions.
        return max(chosen, key=lambda each: each.partition is not None, default=None)

    def qos_named(self, name: str | None) -> QosLimits | None:
        """Return the QOS of this name, whether the user may use it or not."""
        every = (*self.qos, *self.other_qos)
        return next((each for each in every if each.name == name), None)

    def share(self, account: str, partition: str | None = None) -> FairShare | None:
        """Return the user's share in this account, for this partition or for all."""
        own = [
            each
            for each in self.shares
            if each.account == account
            and each.user
            and (partition is None or each.partition in (None, partition))
        ]
        return max(own, key=lambda each: each.partition == partition, default=None)

    def account_share(self, account: str) -> FairShare | None:
        whole = (each for each in self.shares if each.account == account and not each.user)
        return next(whole, None)


@dataclass(frozen=True)
class Reservation:
    """A reservation of nodes.

    Attributes:
        flags: Slurm's, such as ``MAINT``: maintenance.
        users, accounts: those that may use it; with a leading ``-``, those that may not.
        partition: the only partition whose nodes it reserves; None if not given.
    """

    name: str
    start: datetime
    end: datetime
    nodes: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    partition: str | None = None

    @property
    def is_maintenance(self) -> bool:
        return "MAINT" in self.flags

    def admits(self, user: str, account: str | None) -> bool:
        """Return whether a job of this user and account may use it."""
        return (
            _admits(self.users, user)
            and _admits(self.accounts, account)
            and bool(self.users or self.accounts)
        )


def _admits(names: tuple[str, ...], name: str | None) -> bool:
    if not names:
        return True
    if names[0].startswith("-"):
        return f"-{name}" not in names
    return name in names


def _least(limits: tuple[Limit, ...], name: str) -> int | None:
    return min((each.allowed for each in limits if each.name == name), default=None)


def are_enforced(settings: Mapping[str, str]) -> bool:
    """Return whether the settings of ``scontrol show config`` enforce limits."""
    enforced = settings.get("AccountingStorageEnforce", "").lower().split(",")
    return not _ENFORCED.isdisjoint(enforced)


def qos_in_order(
    standing: Standing, of_partition: str | None, of_job: str | None
) -> list[QosLimits]:
    """Return the QOS of the partition and that of the job, the overriding one first."""
    found = [each for each in map(standing.qos_named, (of_partition, of_job)) if each is not None]
    if found and found[-1].name == of_job and "OverPartQOS" in found[-1].flags:
        found.reverse()
    return found


def default_qos(association: Association | None) -> str | None:
    """Return the QOS that Slurm gives to a job that names none."""
    if association is None:
        return None
    if association.default_qos:
        return association.default_qos
    return association.qos[0] if len(association.qos) == 1 else "normal"


def in_force(
    of_qos: Sequence[Sequence[Limit]], of_association: Sequence[Limit]
) -> tuple[tuple[Limit, ...], tuple[Limit, ...]]:
    """Return the limits that apply: those of the QOS, and those of the association.

    Args:
        of_qos: of each QOS, in the order of :func:`qos_in_order`.
    """
    overridden: set[tuple[str, str]] = set()
    found: list[Limit] = []
    for limits in of_qos:
        found += [limit for limit in limits if _kind(limit) not in overridden]
        overridden |= {_kind(limit) for limit in limits}
    if overridden & _OF_JOBS:
        overridden.add(("MaxJobs", JOBS))
    return tuple(found), tuple(limit for limit in of_association if _kind(limit) not in overridden)


def _kind(limit: Limit) -> tuple[str, str]:
    return limit.name.removesuffix("PerJob"), limit.resource
