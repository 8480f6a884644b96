"""Bill an attempt: from accounting, or until that answers, estimated from the job's own events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from hpcflow.errors import HpcflowError
from hpcflow.history import AttemptHistory
from hpcflow.ledger.rows import DueBill
from hpcflow.model.ids import parse_job_name, sluid_number
from hpcflow.model.journal import Accounted
from hpcflow.model.run import Run
from hpcflow.model.state import BILL_TRIES, AttemptState
from hpcflow.model.usage import Usage
from hpcflow.placement.price import usage_of
from hpcflow.reconcile.bill_words import bill_of_record, bill_words, key_of, parts_of, together
from hpcflow.reconcile.resized import is_resized, rest_of
from hpcflow.schedulers.base import JobInfo
from hpcflow.sites.placement import place
from hpcflow.sites.schema import Site
from hpcflow.storage.layout import RunDir
from hpcflow.storage.rundir import read_run


def bill_of_attempt(
    due: DueBill,
    run_dir: RunDir,
    history: AttemptHistory,
    records: Sequence[JobInfo],
    site: Site,
    now: datetime,
) -> Accounted | None:
    """Return the bill to journal; None if the journal has a final one, or no end of the attempt.

    Args:
        records: accounting's records with its job's id.
    """
    number = due.attempt.attempt
    if history.is_billed_for_good or not history.is_ended:
        return None
    if is_elsewhere(due, site):
        return estimated(due, read_run(run_dir), site, now, is_final=True, is_here=False)
    # Job id and times may be from a store: they must not select another job or set a price.
    is_own, job = history.is_own, record_of(due, records)
    name = (run_dir.path.name, number)
    if job is not None and (is_own or parse_job_name(job.job_name.strip()) == name):
        return accounted(due, job, site, now, others_of(job, records))
    is_final = not site.has_accounting
    return estimated(due, read_run(run_dir), site, now, is_final=is_final, is_here=is_own)


def is_elsewhere(due: DueBill, site: Site) -> bool:
    """Return whether its job was on another cluster than the run's site now: the run was restored
    from there. Then its usage cannot be queried, and this site's prices do not apply.

    The cluster of this host does not matter, because several clusters may share a home.
    """
    sent_to, cluster = due.attempt.journal.get("intended", {}).get("cluster"), site.cluster_name
    return bool(sent_to and cluster and sent_to.lower() != cluster.lower())


def record_of(due: DueBill, records: Iterable[JobInfo]) -> JobInfo | None:
    """Return the accounting record of an attempt, or the first of a resized job.

    None if there is none, if it or another part of the job is not closed yet, or if several match.

    Ids wrap, and a job may be restarted many times. If the job reported its SLUID, that selects the
    record. Else the submission time must agree, because a user may rename a job; or the name, if
    the attempt's submission time is not known.
    """
    everything, attempt = list(records), due.attempt
    sluid = sluid_number(attempt.report.get("sluid"))
    same = [
        job
        for job in everything
        if job.source == "accounting"
        and job.job_id == attempt.job_id
        and (sluid is None or job.record_id in (None, sluid))
        and _is_whole(job)
    ]
    exact = [
        job
        for job in same
        if (sluid is not None and job.record_id == sluid)
        or _agree(job.submitted_at, attempt.submitted_at)
    ]
    found = exact or [
        job
        for job in same
        if job.job_name.strip() == attempt.job_name.strip()
        and not _was_over_before(job, attempt.started_at)
        and not _was_sent_after(job, attempt.ended_at)
    ]
    if not exact and len(found) != 1:
        return None
    record = found[-1]
    parts = [record, *others_of(record, everything)]
    is_resized_now = is_resized(next(reversed(rest_of(record, everything)), record))
    return record if all(map(_is_whole, parts)) and not is_resized_now else None


def _is_whole(job: JobInfo) -> bool:
    """Return whether a record is closed and has all that is charged. One that ran needs a usage."""
    is_over = job.state is AttemptState.ENDED or job.ended_at is not None
    return is_over and job.elapsed_s is not None and (job.usage is not None or not job.elapsed_s)


def _was_over_before(job: JobInfo, started_at: datetime | None) -> bool:
    if started_at is None or job.ended_at is None:
        return False
    return job.ended_at < started_at.replace(microsecond=0)  # Slurm has whole seconds


def _was_sent_after(job: JobInfo, ended_at: datetime | None) -> bool:
    """Return whether the job was submitted after the attempt: a later one is charged for it."""
    return ended_at is not None and job.submitted_at is not None and job.submitted_at >= ended_at


def _agree(one: datetime | None, other: datetime | None) -> bool:
    """Return whether two times agree; Slurm has whole seconds."""
    return one is not None and other is not None and one == other.replace(microsecond=0)


def others_of(job: JobInfo, records: Iterable[JobInfo]) -> list[JobInfo]:
    """Return a job's other records: components of a heterogeneous job, and parts of a resized
    one."""
    everything = list(records)
    return rest_of(job, everything) + [
        each
        for each in everything
        if each.source == "accounting"
        and each.job_id.partition("+")[0] == job.job_id
        and each.job_id != job.job_id
        and each.submitted_at == job.submitted_at
    ]


def accounted(
    due: DueBill, job: JobInfo, site: Site, now: datetime, others: Sequence[JobInfo] = ()
) -> Accounted:
    """Return the bill from accounting.

    Args:
        others: from :func:`others_of`; they are added to the sum.
    """
    until = due.attempt.ended_at or now
    bills: list[dict[str, Any]] = []
    booked: dict[tuple[str | None, str | None], list[dict[str, Any]]] = {}
    for each in (job, *others):
        # Only for other components the partition of the submission is unknown.
        key = key_of(site, each, _sent_to(due) if each.job_id == job.job_id else None)
        bills.append(bill_of_record(each, key, site, until))
        booked.setdefault((key, each.account), []).append(bills[-1])
    in_turn = [job, *(each for each in others if each.job_id == job.job_id)]
    words = together(bills)
    if len(in_turn) > 1:  # it was resized: these are one after the other
        first = {name: bills[0][name] for name in ("nodes", "cpus", "mem_mb", "gpus")}
        elapsed_s = sum((Decimal(each.elapsed_s or 0) for each in in_turn), Decimal(0))
        words = {**words, **first, "elapsed_s": elapsed_s}
    return Accounted(
        at=now,
        attempt=due.attempt.attempt,
        job_id=job.job_id,
        source="accounting",
        partition=next(iter(booked))[0],
        started_at=job.started_at,
        ended_at=in_turn[-1].ended_at,
        account=job.account,
        qos=job.qos,
        tries=due.tries + 1,
        parts=parts_of(booked),
        **words,
    )


def estimated(
    due: DueBill,
    run: Run,
    site: Site,
    now: datetime,
    *,
    is_final: bool = False,
    is_here: bool = True,
) -> Accounted:
    """Return the bill estimated from the reported times and the request.

    Args:
        is_final: whether accounting cannot be queried later.
        is_here: whether the job certainly was on this site; else only its hours are known.
    """
    begin, end = due.attempt.started_at, due.attempt.ended_at
    usage, elapsed_s = Usage(), Decimal(0)
    if begin is not None and end is not None and end > begin:
        usage = _placed(run, site) if is_here else _requested(run)
        elapsed_s = Decimal(str((end - begin).total_seconds()))
    at = end or now
    key = _sent_to(due) if is_here else None
    return Accounted(
        at=now,
        attempt=due.attempt.attempt,
        job_id=due.attempt.job_id or "",
        source="events",
        started_at=begin,
        ended_at=end,
        tries=BILL_TRIES if is_final else due.tries + 1,
        **bill_words(key, site, usage, begin or at, max(begin or at, at), elapsed_s),
    )


def _sent_to(due: DueBill) -> str:
    """Return the site file's key of the partition that the job was submitted to."""
    return due.attempt.partition or due.partition


def _placed(run: Run, site: Site) -> Usage:
    try:
        return usage_of(place(run.spec, site, prefer=run.partition, is_granted=True))
    except HpcflowError:  # the site file has changed since
        return _requested(run)


def _requested(run: Run) -> Usage:
    resources = run.spec.resources
    gpus = resources.nodes * resources.gpus_per_node
    return Usage(nodes=resources.nodes, gpus={run.gpu_type or "": gpus} if gpus else {})
