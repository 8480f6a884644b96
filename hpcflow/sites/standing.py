"""What a user may use of a cluster, what is in use, and what is reserved; as plain values.

Schedulers fill these in. Names of limits are Slurm's own, as ``sacctmgr`` shows them, with the long
ending: ``MaxJobs``, ``MaxWall``, ``GrpTRES``, ``MaxTRESPerUser``, ``MaxSubmitJobsPerAccount`` ….
Names of resources are Slurm's as well: ``cpu``, ``node``, ``gres/gpu``, ``gres/gpu:a100``,
``billing``, and ``mem``, which is always in MiB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Final

#: ``Limit.resource`` of a number of jobs, and of a number of minutes.
JOBS: Final = "jobs"
MINUTES: Final = "minutes"


@dataclass(frozen=True)
class Limit:
    """One limit.

    Attributes:
        name: ``GrpTRES``, ``MaxJobs``, ``MaxWall`` …
        resource: what is counted: ``gres/gpu``, ``cpu`` …, JOBS or MINUTES. Of a name that holds
            ``Mins`` it is minutes of that resource.
        allowed: how much.
        used: how much of it is in use now; None for what one job alone may ask, and where nobody
            says.
        holder: whom it binds, in words: ``account physics``, ``user ada in QOS tight``.
    """

    name: str
    resource: str
    allowed: int
    used: int | None = None
    holder: str = ""

    @property
    def is_full(self) -> bool:
        """Whether nothing more fits under it now."""
        return self.used is not None and self.used >= self.allowed

    @property
    def left(self) -> int | None:
        """How much more fits under it now; None where that is not counted."""
        return None if self.used is None else max(0, self.allowed - self.used)


@dataclass(frozen=True)
class Association:
    """A user's membership in an account: what Slurm knows the user by.

    Attributes:
        partition: the only one that it is for; None for all.
        default_qos: of a job that names none; None where nobody says.
        qos: names of those that its jobs may have.
        limits: those of the user in this account, what is inherited from the account included; then
            those of the account and of the accounts above it, which bind all of their users
            together.
        in_use: what its running jobs have: ``cpu``, ``gres/gpu`` …; under JOBS their number.
        is_default: whether a job that names no account gets this one; None where nobody says.
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
        """The longest that a job may run; None without a limit."""
        return _least(self.limits, "MaxWall")


@dataclass(frozen=True)
class QosLimits:
    """A QOS.

    Attributes:
        limits: those that bind one job, the user, one of the user's accounts, or all of the QOS.
        in_use: what the user's running jobs have of it; as in :class:`Association`.
        preempts: QOSes whose jobs must give way to it.
        usage_factor: what its use counts for in fair share; 1 is usual.
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
        """The longest that a job may run; None without a limit."""
        return _least(self.limits, "MaxWall")


@dataclass(frozen=True)
class FairShare:
    """What an account, or a user in it, should have had of the cluster, and has had.

    Attributes:
        user: None for the account as a whole.
        raw_shares: what its staff gave it; None where it shares with its parent.
        norm_shares: its part among those beside it, 0 to 1.
        raw_usage: seconds of what is billed (as a rule of a CPU), decaying with time.
        norm_usage: its part of all use of the cluster, 0 to 1.
        effective_usage: its part of the use of those beside it, 0 to 1.
        factor: from 0, it has used far more than its share, to 1; what the priority of a job is
            made of. Only users have one.
        level_fs: norm_shares / effective_usage: above 1 it has used less than its share.
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
    """All of it for one user.

    Attributes:
        associations: in the order of their accounts; empty where accounts are not enforced.
        qos: those that any of the associations allows, or all where nobody says which.
        other_qos: the rest; a partition may have one of them, whose limits bind its jobs.
        is_use_known: whether anybody said how far limits are used, and what accounts above those of
            the user may have.
        are_limits_enforced: whether limits keep any job from starting, or are only notes.
        is_fair_tree: whether shares and use are told within their level of the tree of accounts;
            else of the whole cluster.
        shares: of the user, and of the accounts, in the order in which Slurm tells them.
        missing: what could not be asked, in words, with the reason.
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
        """The one that a job gets in this account, or in the default one, and this partition."""
        chosen = [
            each
            for each in self.associations
            if (each.is_default if account is None else each.account == account)
            and each.partition in (None, partition)
        ]
        # That of the partition alone comes before that for all.
        return max(chosen, key=lambda each: each.partition is not None, default=None)

    def qos_named(self, name: str | None) -> QosLimits | None:
        """The QOS of that name, be it one that the user may ask for or not."""
        every = (*self.qos, *self.other_qos)
        return next((each for each in every if each.name == name), None)

    def share(self, account: str, partition: str | None = None) -> FairShare | None:
        """The user's own in this account, as far as it holds in this partition, or in any."""
        own = [
            each
            for each in self.shares
            if each.account == account
            and each.user
            and (partition is None or each.partition in (None, partition))
        ]
        return max(own, key=lambda each: each.partition == partition, default=None)

    def account_share(self, account: str) -> FairShare | None:
        """That of the account as a whole."""
        whole = (each for each in self.shares if each.account == account and not each.user)
        return next(whole, None)


@dataclass(frozen=True)
class Reservation:
    """Nodes that are set aside.

    Attributes:
        flags: Slurm's, such as ``MAINT``: maintenance.
        users, accounts: who may use it; a leading ``-`` says who may not.
        partition: the only one whose nodes it takes; None where it does not say.
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
        """Whether the cluster's staff has it, to work on the nodes."""
        return "MAINT" in self.flags

    def admits(self, user: str, account: str | None) -> bool:
        """Whether a job of this user and account may ask for it."""
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
