"""Jobs that were given other resources while they ran: accounting has a record for each part. Pure.

Slurm closes the record of a job as RESIZING, and begins the next with that moment as the time of
its submission: ``jobacct_storage_p_job_start`` of its accounting_storage plugins.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from hpcflow.model.state import normalize_raw_state
from hpcflow.schedulers.base import JobInfo


def is_resized(job: JobInfo) -> bool:
    """Whether a record ends because the job goes on with other resources."""
    return normalize_raw_state(job.raw_state) == "RESIZING"


def rest_of(job: JobInfo, told: Iterable[JobInfo]) -> list[JobInfo]:
    """The records in which ``job`` goes on, in their order; the last is resized itself where that
    which follows is not told of yet."""
    by_begin = {
        each.submitted_at: each
        for each in told
        if each.source == "accounting" and each.job_id == job.job_id
    }
    found: list[JobInfo] = []
    while is_resized(job) and job.ended_at is not None and len(found) < len(by_begin):
        following = by_begin.get(job.ended_at)
        if following is None:
            break
        found.append(job := following)
    return found


def lives_of(records: Sequence[JobInfo]) -> list[JobInfo]:
    """Of the records of one job id those that are lives of the job, each from its begin on."""
    parts = [part for each in records if is_resized(each) for part in rest_of(each, records)]
    whole = []
    for each in records:
        if any(each is part for part in parts):
            continue
        last = next(reversed(rest_of(each, records)), each)
        if last is each:
            whole += [] if is_resized(each) else [each]
        elif not is_resized(last):
            at, began_at, number = each.submitted_at, each.started_at, each.record_id
            whole.append(replace(last, submitted_at=at, started_at=began_at, record_id=number))
    return whole
