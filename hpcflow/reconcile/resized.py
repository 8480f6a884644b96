"""Join the accounting records of jobs that were resized while they ran: one for each part. Pure.

Slurm closes a job's record as RESIZING, and begins the next with that moment as its submission
time: ``jobacct_storage_p_job_start`` of its accounting_storage plugins.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from hpcflow.model.state import normalize_raw_state
from hpcflow.schedulers.base import JobInfo


def is_resized(job: JobInfo) -> bool:
    """Return whether a record ends because the job continues with other resources."""
    return normalize_raw_state(job.raw_state) == "RESIZING"


def rest_of(job: JobInfo, records: Iterable[JobInfo]) -> list[JobInfo]:
    """Return the later records of a resized ``job``, in order. The last is resized itself if its
    successor is not in ``records``."""
    by_begin = {
        each.submitted_at: each
        for each in records
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
    """Join the parts of resized jobs among the records of one job id: one record for each start."""
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
