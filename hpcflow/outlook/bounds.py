"""Which limits bind a job: of its association, of its QOS, and of its partition. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from hpcflow.schedulers.slurm.reason_limits import NamedLimit
from hpcflow.schedulers.waiting import WaitingJob
from hpcflow.sites.live import PartitionInfo
from hpcflow.sites.standing import JOBS, MINUTES, Association, Limit, QosLimits, Standing


def limits_on(
    job: WaitingJob, standing: Standing | None, partition: PartitionInfo | None
) -> tuple[Limit, ...]:
    """Every limit that this job is under, those of its association first."""
    if standing is None:
        return ()
    association = association_of(job, standing)
    own = association.limits if association else ()
    names = (partition.qos if partition else None, job.qos)
    every = [qos for name in names if name and (qos := standing.qos_named(name))]
    return (*own, *(limit for qos in every for limit in qos_limits(qos, job.account)))


def association_of(job: WaitingJob, standing: Standing) -> Association | None:
    """What Slurm knows the owner of a job by."""
    return standing.association(job.account, job.partitions[0] if job.partitions else None)


def qos_limits(qos: QosLimits, account: str | None) -> tuple[Limit, ...]:
    """Those of a QOS, without those of the user's other accounts."""
    mine = f"account {account} in QOS {qos.name}"
    return tuple(
        limit
        for limit in qos.limits
        if not limit.name.endswith("PerAccount") or account is None or limit.holder == mine
    )


def binding(
    named: NamedLimit | None, limits: Sequence[Limit], job: WaitingJob
) -> tuple[Limit, ...]:
    """Those that the job's reason names; where it names none, those under which it has no room.

    Slurm names a limit only once it has come to the job; until then it says that others are first.
    """
    if named is None:
        return tuple(limit for limit in limits if not has_room(limit, job))
    is_qos = named.level == "QOS"
    return tuple(named.among([each for each in limits if ("QOS" in each.holder) is is_qos]))


def has_room(limit: Limit, job: WaitingJob) -> bool:
    """Whether the job, which waits already, could start under this limit now.

    Budgets of minutes are not looked at: what the job would take of them is Slurm's arithmetic.
    """
    if limit.resource == MINUTES:
        wants = job.time_limit_min if limit.name == "MaxWall" else None
        return wants is None or wants <= limit.allowed
    if "Mins" in limit.name or "Submit" in limit.name or limit.name.startswith("Min"):
        return True
    wants = 1 if limit.resource == JOBS else job.wants.get(limit.resource, 0)
    if limit.name.endswith("PerNode"):
        wants = -(-wants // (job.nodes or 1))
    return not wants or (limit.used or 0) + wants <= limit.allowed


def amount_words(limit: Limit) -> str:
    """``16 of 16 gres/gpu used``, ``at most 1-00:00 of wall time``: how much it allows."""
    unit = _unit(limit)
    if limit.used is None:
        edge = "at least" if limit.name.startswith("Min") else "at most"
        return f"{edge} {_number(limit, limit.allowed)}{unit}"
    return f"{_number(limit, limit.used)} of {_number(limit, limit.allowed)}{unit} used"


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
    """``45m``, ``3h``, ``2d 4h 30m``."""
    days, rest = divmod(minutes, 24 * 60)
    hours, left = divmod(rest, 60)
    parts = [f"{days}d" if days else "", f"{hours}h" if hours else "", f"{left}m" if left else ""]
    return " ".join(part for part in parts if part) or "0m"
