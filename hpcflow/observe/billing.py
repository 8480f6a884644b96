"""What an attempt took and cost: from accounting, or, until that speaks, from what the job said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from hpcflow.errors import HpcflowError
from hpcflow.launch.price import usage_of
from hpcflow.ledger.derive import BILL_TRIES
from hpcflow.ledger.rows import DueBill
from hpcflow.model.journal import Accounted, ChargeLine, Ended
from hpcflow.model.run import Run
from hpcflow.model.state import AttemptState
from hpcflow.model.usage import Usage
from hpcflow.schedulers.base import JobInfo
from hpcflow.sites.bill import Bill, bill_of
from hpcflow.sites.placement import place
from hpcflow.sites.schema import Partition, Site
from hpcflow.storage import journal
from hpcflow.storage.layout import RunDir
from hpcflow.storage.rundir import read_run


def bill_of_attempt(
    due: DueBill, run_dir: RunDir, told: Sequence[JobInfo], site: Site, now: datetime
) -> Accounted | None:
    """What is to be journaled about an attempt; None where its journal has it, is gone, or says
    something else than the ledger: nothing is put beside that.

    Args:
        told: what accounting has answered about its job's id.

    Raises:
        StorageError: the run's files cannot be read.
    """
    own = [
        each
        for each in journal.read(run_dir)
        if getattr(each, "attempt", None) == due.attempt.attempt
    ]
    if any(isinstance(each, Accounted) and each.source == "accounting" for each in own):
        return None
    if not any(isinstance(each, Ended) for each in own):
        return None
    job = record_of(due, told)
    if job is not None:
        return accounted(due, job, site, now, components_of(job, told))
    return estimated(due, read_run(run_dir), site, now, is_final=not site.has_accounting)


def record_of(due: DueBill, told: Iterable[JobInfo]) -> JobInfo | None:
    """The record in accounting of the life of a job that an attempt was; None where there is none,
    it is not closed yet, or nobody can tell which of several it is.

    Ids wrap, and one id may be restarted many times: the name must agree, and the time of
    submission wherever the attempt's is known.
    """
    same = [
        job
        for job in told
        if job.source == "accounting"
        and job.job_id == due.attempt.job_id
        and job.job_name.strip() == due.attempt.job_name.strip()
        and job.elapsed_s is not None
        and (job.state is AttemptState.ENDED or job.ended_at is not None)
    ]
    exact = [job for job in same if _agree(job.submitted_at, due.attempt.submitted_at)]
    if exact:
        return exact[-1]
    return same[0] if len(same) == 1 else None


def _agree(one: datetime | None, other: datetime | None) -> bool:
    """Slurm tells whole seconds."""
    return one is not None and other is not None and one == other.replace(microsecond=0)


def components_of(job: JobInfo, told: Iterable[JobInfo]) -> list[JobInfo]:
    """The other components of a heterogeneous job, in this life of it; none of any other job."""
    return [
        each
        for each in told
        if each.source == "accounting"
        and each.job_id.partition("+")[0] == job.job_id
        and each.job_id != job.job_id
        and each.submitted_at == job.submitted_at
    ]


def accounted(
    due: DueBill, job: JobInfo, site: Site, now: datetime, components: Sequence[JobInfo] = ()
) -> Accounted:
    """The bill by accounting.

    Args:
        components: of a heterogeneous job: each has its own lines, and all are one sum.
    """
    key = due.attempt.partition or due.partition
    until = due.attempt.ended_at or now
    bills = [_of_record(job, key, site, until)]
    bills += [_of_record(each, _key_of(site, each.partition), site, until) for each in components]
    return Accounted(
        at=now,
        attempt=due.attempt.attempt,
        job_id=job.job_id,
        source="accounting",
        started_at=job.started_at,
        ended_at=job.ended_at,
        account=job.account,
        qos=job.qos,
        tries=due.tries + 1,
        **_together(bills),
    )


def bill_of_job(job: JobInfo, site: Site, now: datetime) -> Bill:
    """What a job costs that is no attempt of any run."""
    begin, end, elapsed_s = _times(job, now)
    partition = site.partitions.get(_key_of(site, job.partition) or "")
    return _bill(job.usage or Usage(), partition, site, begin, end, elapsed_s)


def _of_record(job: JobInfo, key: str | None, site: Site, until: datetime) -> dict[str, Any]:
    begin, end, elapsed_s = _times(job, until)
    return _words(key, site, job.usage or Usage(), begin, end, elapsed_s)


def _times(job: JobInfo, until: datetime) -> tuple[datetime, datetime, Decimal]:
    """When it ran, and for how long it is charged; ``until`` where accounting has no end."""
    end = job.ended_at or until
    begin = job.started_at or end  # what never ran has no start
    return begin, max(begin, end), Decimal(job.elapsed_s or 0)


def _key_of(site: Site, slurm_partition: str | None) -> str | None:
    """What the site file calls a partition of Slurm's."""
    keys = (key for key in site.partitions if site.slurm_partition(key) == slurm_partition)
    return next(keys, slurm_partition)


def _together(bills: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Several bills as one; what one of them does not know, nobody does."""
    if len(bills) == 1:
        return bills[0]
    gpus: Counter[str] = Counter()
    for bill in bills:
        gpus.update(bill["gpus"])
    found = {
        name: sum(bill[name] for bill in bills) for name in ("nodes", "cpus", "mem_mb", "gpu_hours")
    }
    for name in ("cost_usd", "cost_su"):
        amounts = [bill[name] for bill in bills]
        found[name] = None if None in amounts else sum(amounts, Decimal(0))
    others = [bill["on_demand_usd"] for bill in bills]
    if any(each is not None for each in others):
        paid = [bill["cost_usd"] for bill in bills]
        instead = [one if one is not None else two for one, two in zip(others, paid, strict=True)]
        others = [None if None in instead else sum(instead, Decimal(0))]
    return {
        **found,
        "elapsed_s": bills[0]["elapsed_s"],
        "gpus": dict(gpus),
        "on_demand_usd": others[0],
        "charges": [line for bill in bills for line in bill["charges"]],
    }


def estimated(
    due: DueBill, run: Run, site: Site, now: datetime, *, is_final: bool = False
) -> Accounted:
    """The bill by the times that the job and the queue told, and by what was asked for.

    Args:
        is_final: there is nobody who could be asked later.
    """
    begin, end = due.attempt.started_at, due.attempt.ended_at
    usage, elapsed_s = Usage(), Decimal(0)
    if begin is not None and end is not None and end > begin:
        usage = _asked_for(run, site)
        elapsed_s = Decimal(str((end - begin).total_seconds()))
    at = end or now
    key = due.attempt.partition or due.partition
    return Accounted(
        at=now,
        attempt=due.attempt.attempt,
        job_id=due.attempt.job_id or "",
        source="events",
        started_at=begin,
        ended_at=end,
        tries=BILL_TRIES if is_final else due.tries + 1,
        **_words(key, site, usage, begin or at, max(begin or at, at), elapsed_s),
    )


def _asked_for(run: Run, site: Site) -> Usage:
    try:
        return usage_of(place(run.spec, site, prefer=run.partition, is_granted=True))
    except HpcflowError:  # the site file has changed since: what the run says by itself is left
        resources = run.spec.resources
        gpus = resources.nodes * resources.gpus_per_node
        return Usage(nodes=resources.nodes, gpus={run.gpu_type or "": gpus} if gpus else {})


def _words(
    key: str | None,
    site: Site,
    usage: Usage,
    begin: datetime,
    end: datetime,
    elapsed_s: Decimal,
) -> dict[str, Any]:
    """The part of a record that is the bill.

    Args:
        key: what the site file calls the partition.
    """
    partition = site.partitions.get(key or "")
    bill = _bill(usage, partition, site, begin, end, elapsed_s)
    on_demand = None
    if partition is not None and partition.preemptible:
        other = on_demand_of(site, partition)
        if other is not None:
            on_demand = _bill(usage, other, site, begin, end, elapsed_s).cost_usd
    return {
        "elapsed_s": elapsed_s,
        "nodes": usage.nodes,
        "cpus": usage.cpus,
        "mem_mb": usage.mem_mb,
        "gpus": dict(usage.gpus),
        "gpu_hours": bill.gpu_hours,
        "cost_usd": bill.cost_usd,
        "cost_su": bill.cost_su,
        "on_demand_usd": on_demand,
        "charges": [
            ChargeLine(
                kind=line.kind,
                begin=line.begin,
                end=line.end,
                hours=line.hours,
                cost_usd=line.cost_usd,
                cost_su=line.cost_su,
            )
            for line in bill.charges
        ],
    }


def on_demand_of(site: Site, partition: Partition) -> Partition | None:
    """The partition that a job would be in if it could not be preempted: the first of the site with
    the same GPUs and a price in money."""
    return next(
        (
            other
            for other in site.partitions.values()
            if not other.preemptible
            and other.gpu_type == partition.gpu_type
            and bool(other.gpus_per_node) == bool(partition.gpus_per_node)
            and other.price is not None
            and other.price.is_said(in_money=True)
        ),
        None,
    )


def _bill(
    usage: Usage,
    partition: Partition | None,
    site: Site,
    begin: datetime,
    end: datetime,
    elapsed_s: Decimal,
) -> Bill:
    names = {each.gres_name or key: key for key, each in site.gpu_types.items()}
    if partition is not None and partition.gpu_type is not None:
        names[""] = partition.gpu_type  # Slurm was not told to track types, and there is only one
    return bill_of(
        usage,
        partition.price if partition is not None else None,
        begin=begin,
        end=end,
        elapsed_s=elapsed_s,
        gpu_types=names,
    )
