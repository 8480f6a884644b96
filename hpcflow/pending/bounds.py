"""Find the limits that bind a job: of its association, its QOS and its partition. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from hpcflow.model.units import counted
from hpcflow.schedulers.slurm.reason_limits import NamedLimit
from hpcflow.schedulers.waiting import WaitingJob
from hpcflow.sites.live import PartitionInfo
from hpcflow.sites.standing import (
    JOBS,
    MINUTES,
    Association,
    Limit,
    QosLimits,
    Standing,
    in_force,
    qos_in_order,
)


@dataclass(frozen=True)
class Bounds:
    """The limits in force for a job.

    Attributes:
        association: those of the user in the account, of the account, and of its parents.
        qos: those of the QOS of the job and of the partition.
    """

    association: tuple[Limit, ...] = ()
    qos: tuple[Limit, ...] = ()

    @property
    def every(self) -> tuple[Limit, ...]:
        """Return all limits, those of the association first."""
        return (*self.association, *self.qos)


def limits_on(
    job: WaitingJob, standing: Standing | None, partition: PartitionInfo | None
) -> Bounds:
    if standing is None or not standing.are_limits_enforced:
        return Bounds()
    association = association_of(job, standing)
    both = qos_in_order(standing, partition.qos if partition else None, job.qos)
    own = standing.qos_named(job.qos)
    is_free = own is not None and own.usage_factor == 0  # its usage counts for no budget
    of_qos, of_association = in_force(
        [qos_limits(each, job.account) for each in both], association.limits if association else ()
    )
    return Bounds(
        *(
            tuple(each for each in limits if not (is_free and _is_budget(each)))
            for limits in (of_association, of_qos)
        )
    )


def association_of(job: WaitingJob, standing: Standing) -> Association | None:
    """Return the association of a job's owner, account and partition."""
    return standing.association(job.account, job.partitions[0] if job.partitions else None)


def _is_budget(limit: Limit) -> bool:
    return limit.name.startswith("GrpTRES") and limit.name.endswith("Mins")


def qos_limits(qos: QosLimits, account: str | None) -> tuple[Limit, ...]:
    """Return the limits of a QOS, without those of the user's other accounts."""
    mine = f"account {account} in QOS {qos.name}"
    return tuple(
        limit
        for limit in qos.limits
        if not limit.name.endswith("PerAccount") or account is None or limit.holder == mine
    )


def binding(named: NamedLimit | None, limits: Bounds, job: WaitingJob) -> tuple[Limit, ...]:
    """Return the limits that the job's reason names, or else those without room for it.

    Slurm names a limit only after it has considered the job; until then the reason is priority.
    """
    if named is None:
        return tuple(limit for limit in limits.every if not has_room(limit, job))
    return tuple(named.among(limits.qos if named.level == "QOS" else limits.association))


def has_room(limit: Limit, job: WaitingJob) -> bool:
    """Return whether the pending job could start under this limit now.

    A budget of minutes has room until it is used up.
    """
    if limit.resource == MINUTES and limit.name == "MaxWall":
        return job.time_limit_min is None or job.time_limit_min <= limit.allowed
    if "Submit" in limit.name or limit.name.startswith("Min"):
        return True
    wants = 1 if limit.resource in (JOBS, MINUTES) else job.wants.get(limit.resource, 0)
    if "RunMins" in limit.name and job.time_limit_min is not None:
        return not wants or (limit.used or 0) + wants * job.time_limit_min <= limit.allowed
    if limit.resource == MINUTES or "Mins" in limit.name:
        return not wants or not limit.is_full
    if limit.name.endswith("PerNode"):
        wants = -(-wants // (job.nodes or 1))
    return not wants or (limit.used or 0) + wants <= limit.allowed


def amount_words(limit: Limit) -> str:
    """Return how much a limit allows: ``16 of 16 gres/gpu used``, ``at most 1d``."""
    unit = _unit(limit)
    if limit.used is None:
        edge = "at least" if limit.name.startswith("Min") else "at most"
        return f"{edge} {_number(limit, limit.allowed)}{unit}"
    return f"{_number(limit, limit.used)} of {_number(limit, limit.allowed)}{unit} used"


def shortage_words(limit: Limit, job: WaitingJob) -> str:
    """Return ``; it wants 2, and 1 is left`` for a limit that is not full but has no room."""
    wants = job.wants.get(limit.resource, 0)
    left = limit.allowed - (limit.used or 0)
    if limit.used is None or "Mins" in limit.name or not 0 < left < wants:
        return ""
    are = "is" if left == 1 or limit.resource == "mem" else "are"
    return f"; it wants {_number(limit, wants)}, and {_number(limit, left)} {are} left"


def nodes_misfit(partition: PartitionInfo, job: WaitingJob) -> str | None:
    """Return why a partition never accepts the job's number of nodes; None if it does."""
    if job.nodes is None:
        return None
    most = partition.nodes_per_job
    if job.nodes > most:
        verb = "allows" if partition.job_nodes_max == most else "has"
        return f"partition {partition.name} {verb} at most {counted(most, 'node')}"
    fewest = partition.job_nodes_min or 1
    if job.nodes < fewest:
        return f"partition {partition.name} allows no less than {counted(fewest, 'node')}"
    return None


def nodes_that_fit(partition: PartitionInfo, job: WaitingJob) -> int | None:
    """Return the number of nodes nearest to the job's that a partition accepts; None if it accepts
    the job's."""
    if job.nodes is None or nodes_misfit(partition, job) is None:
        return None
    return min(partition.nodes_per_job, max(job.nodes, partition.job_nodes_min or 1))


def excess_words(limit: Limit, wants: int) -> str:
    """Return ``it asks for 20 gres/gpu, and GrpTRES of account physics allows 16``."""
    allows = f"{limit_words(limit)} allows {_number(limit, limit.allowed)}"
    return f"it asks for {_number(limit, wants)}{_unit(limit)}, and {allows}"


def limit_words(limit: Limit) -> str:
    """Return the name of a limit: ``GrpTRES of account physics``."""
    return f"{limit.name} of {limit.holder}" if limit.holder else limit.name


def _unit(limit: Limit) -> str:
    if limit.resource == MINUTES:
        return ""
    if limit.resource == JOBS:
        return " jobs"
    minutes = " minutes" if "Mins" in limit.name else ""
    return f" {limit.resource}{minutes}"


def _number(limit: Limit, number: int) -> str:
    if limit.resource == MINUTES:
        return minutes_words(number)
    if limit.resource == "mem" and "Mins" not in limit.name:
        return f"{number / 1024:g} GiB" if number >= 1024 else f"{number} MiB"
    return str(number)


def minutes_words(minutes: int) -> str:
    """Return minutes as ``45m``, ``3h``, ``2d 4h 30m``."""
    days, rest = divmod(minutes, 24 * 60)
    hours, left = divmod(rest, 60)
    parts = [f"{days}d" if days else "", f"{hours}h" if hours else "", f"{left}m" if left else ""]
    return " ".join(part for part in parts if part) or "0m"
