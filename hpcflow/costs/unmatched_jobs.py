"""Find jobs of hpcflow in accounting that are not an attempt of any run, so have no bill. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from hpcflow.ledger.rows import JobRow
from hpcflow.model.ids import is_array_name, parse_job_name
from hpcflow.model.state import AttemptState
from hpcflow.reconcile.resized import lives_of, rest_of
from hpcflow.schedulers.base import JobInfo

#: Prefix of the names of hpcflow's own jobs: daemon, mirror, rounds.
_OWN: Final = "hpcflow-"
#: The jobs of sbatch/train.sbatch.
_BY_HAND: Final = "hpcflow-by-hand"
_Key = tuple[str, str]


@dataclass(frozen=True)
class UnmatchedJob:
    """A record of accounting that belongs to no attempt.

    Attributes:
        job: as in accounting; each component of a heterogeneous job is one.
        run_id: the run in its name; None without one.
        why: what is wrong with it.
        is_helper: whether it is hpcflow's own job, such as the daemon: nothing is wrong.
    """

    job: JobInfo
    run_id: str | None
    why: str
    is_helper: bool = False


def is_of_hpcflow(job_name: str) -> bool:
    """Return whether hpcflow or one of its scripts submitted a job of this name."""
    return job_name.startswith(_OWN) or _is_of_run(job_name)


def _is_of_run(job_name: str) -> bool:
    return (
        parse_job_name(job_name) is not None
        or is_array_name(job_name)
        or job_name.startswith(_BY_HAND)
    )


def unmatched_jobs(told: Iterable[JobInfo], jobs: Iterable[JobRow]) -> list[UnmatchedJob]:
    """Return the jobs in ``told`` that ran, ended, and are not an attempt, oldest first.

    Slurm reuses ids, and owners rename jobs, so a job is identified by its id and either its
    submission time or its name. Each restart by Slurm has a record and is an attempt; records
    beyond the number of attempts are unmatched.
    """
    attempts: dict[_Key, list[datetime | None]] = defaultdict(list)
    submitted: set[tuple[str, datetime]] = set()
    runs = set()
    for row in jobs:
        attempts[row.job_id, row.job_name.strip()].append(row.submitted_at)
        if row.submitted_at is not None:
            submitted.add((row.job_id, row.submitted_at.replace(microsecond=0)))
        runs.add(row.run_id)
    records: dict[_Key, list[JobInfo]] = defaultdict(list)
    parts: dict[_Key, list[JobInfo]] = defaultdict(list)
    for job in told:
        name, (number, _, component) = job.job_name.strip(), job.job_id.partition("+")
        if (number, name) not in attempts:
            is_renamed = (number, job.submitted_at) in submitted
            if is_renamed or not is_of_hpcflow(name):
                continue
        if job.elapsed_s and (job.state is AttemptState.ENDED or job.ended_at is not None):
            (parts if component else records)[number, name].append(job)
    found = []
    for key, some in records.items():
        lives = lives_of(some) if key in attempts else some
        for job in _surplus(lives, attempts.get(key, [])):
            own = [each for each in parts[key] if each.submitted_at == job.submitted_at]
            resized = _parts(job, some) if key in attempts else [job]
            found += [_unmatched_job(each, key in attempts, runs) for each in (*resized, *own)]
    return sorted(found, key=lambda each: (str(each.job.submitted_at or ""), each.job.job_id))


def _surplus(records: Sequence[JobInfo], attempts: Sequence[datetime | None]) -> list[JobInfo]:
    """Return the records beyond the attempts: those whose submission time no attempt has."""
    known = {at.replace(microsecond=0) for at in attempts if at is not None}
    strange = [job for job in records if job.submitted_at not in known]
    count = max(0, len(records) - len(attempts))
    return strange[max(0, len(strange) - count) :] if count else []


def _parts(life: JobInfo, records: Sequence[JobInfo]) -> list[JobInfo]:
    """Return the records of a job between two restarts: several if it was resized."""
    first = next(each for each in records if each.submitted_at == life.submitted_at)
    return [first, *rest_of(first, records)]


def _unmatched_job(job: JobInfo, is_known: bool, runs: set[str]) -> UnmatchedJob:
    name = job.job_name.strip()
    named = parse_job_name(name)
    run_id = named[0] if named is not None else None
    if not is_known and not _is_of_run(name):
        return UnmatchedJob(job, None, "a job of hpcflow itself", is_helper=True)
    if is_known:
        return UnmatchedJob(job, run_id, "a restart of its job that is not an attempt")
    if run_id in runs:
        return UnmatchedJob(job, run_id, "its run has no such attempt")
    return UnmatchedJob(job, run_id, "no run in this ledger has this job")
