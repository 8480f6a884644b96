"""Compute the bill of a job from its allocation and time, as fields of an attempt's record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from hpcflow.ledger.derive import gpu_type_of
from hpcflow.model.journal import BillPart, ChargeLine
from hpcflow.model.usage import Usage
from hpcflow.schedulers.base import JobInfo
from hpcflow.sites.bill import Bill, bill_of
from hpcflow.sites.placement import partition_of_job
from hpcflow.sites.schema import Partition, Site


def bill_of_job(job: JobInfo, site: Site, now: datetime) -> Bill:
    """Return the cost of a job that is no attempt of a run."""
    begin, end, elapsed_s = _times(job, now)
    partition = site.partitions.get(key_of(site, job) or "")
    return _bill(job.usage or Usage(), partition, site, begin, end, elapsed_s)


def bill_of_record(job: JobInfo, key: str | None, site: Site, until: datetime) -> dict[str, Any]:
    """Return the bill of a record of accounting, as fields of an attempt's record.

    Args:
        key: of the partition in the site file.
        until: its end, if accounting has none.
    """
    begin, end, elapsed_s = _times(job, until)
    return bill_words(key, site, job.usage or Usage(), begin, end, elapsed_s)


def _times(job: JobInfo, until: datetime) -> tuple[datetime, datetime, Decimal]:
    """Return start, end and charged seconds; ``until`` is the end if accounting has none."""
    end = job.ended_at or until
    begin = job.started_at or end  # a job that never ran has no start
    return begin, max(begin, end), Decimal(job.elapsed_s or 0)


def key_of(site: Site, job: JobInfo, sent_to: str | None = None) -> str | None:
    """Return the site file's key of a job's partition.

    Args:
        sent_to: key of the partition that the job was submitted to, which may differ from where it
            ran. It decides if several keys are one Slurm partition, or if the site file does not
            have the partition where the site moved the job.
    """

    def is_there(key: str | None) -> bool:
        names = (None, *(job.partition or "").split(","))  # several if it never started
        return key in site.partitions and site.slurm_partition(key) in names

    if is_there(sent_to):
        return sent_to
    found = partition_of_job(site, job.partition, job.qos)
    return found if is_there(found) else sent_to or job.partition


def together(bills: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the sum of several bills; an amount that one of them lacks is None."""
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


def parts_of(
    booked: Mapping[tuple[str | None, str | None], Sequence[dict[str, Any]]],
) -> list[BillPart] | None:
    """Return the bills of each partition and account; None if all have the same."""
    if len(booked) == 1:
        return None
    sums = {place: together(bills) for place, bills in booked.items()}
    return [
        BillPart(
            partition=partition,
            account=account,
            gpu_type=gpu_type_of(line.kind for line in words["charges"]),
            **words,
        )
        for (partition, account), words in sums.items()
    ]


def bill_words(
    key: str | None,
    site: Site,
    usage: Usage,
    begin: datetime,
    end: datetime,
    elapsed_s: Decimal,
) -> dict[str, Any]:
    """Return the bill as fields of a record.

    Args:
        key: of the partition in the site file.
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
    """Return the non-preemptible partition to compare with: the site's first one with the same GPUs
    and a price in money."""
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
        names[""] = partition.gpu_type  # Slurm does not track types, and there is only one
    return bill_of(
        usage,
        partition.price if partition is not None else None,
        begin=begin,
        end=end,
        elapsed_s=elapsed_s,
        gpu_types=names,
    )
