"""Find jobs of hpcflow in accounting that are no attempt of any run, and so have no bill. Pure."""

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

#: How the names of all jobs begin that are hpcflow's own: daemon, mirror, rounds.
_OWN: Final = "hpcflow-"
#: The jobs that sbatch/train.sbatch is.
_BY_HAND: Final = "hpcflow-by-hand"
_Key = tuple[str, str]


@dataclass(frozen=True)
class UnmatchedJob:
    """A record of accounting that is no attempt's.

    Attributes:
        job: as accounting has it; each component of a heterogeneous job is one.
        run_id: of whose attempts it bears the name; None where its name says none.
        why: what is wrong with it.
        is_helper: whether it is a job of hpcflow's own, such as the daemon: nothing is wrong.
    """

    job: JobInfo
    run_id: str | None
    why: str
    is_helper: bool = False


def is_of_hpcflow(job_name: str) -> bool:
    """Whether a job of this name was submitted by hpcflow, or by a script of its."""
    return job_name.startswith(_OWN) or _is_of_run(job_name)


def _is_of_run(job_name: str) -> bool:
    return (
        parse_job_name(job_name) is not None
        or is_array_name(job_name)
        or job_name.startswith(_BY_HAND)
    )


def unmatched_jobs(told: Iterable[JobInfo], jobs: Iterable[JobRow]) -> list[UnmatchedJob]:
    """What of ``told`` has ended, did run, and is no attempt's, oldest first.

    Ids are given again one day, and owners rename their jobs, so a job is known by its id and
    either the time of its submission or its name. Of a job that Slurm has restarted each life has
    a record, and is an attempt: what there are more records of than attempts, nobody has counted.
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
            found += [_stray(each, key in attempts, runs) for each in (*resized, *own)]
    return sorted(found, key=lambda each: (str(each.job.submitted_at or ""), each.job.job_id))


def _surplus(records: Sequence[JobInfo], attempts: Sequence[datetime | None]) -> list[JobInfo]:
    """The records that no attempt is left for; those are nobody's that none was submitted with."""
    known = {at.replace(microsecond=0) for at in attempts if at is not None}
    strange = [job for job in records if job.submitted_at not in known]
    count = max(0, len(records) - len(attempts))
    return strange[max(0, len(strange) - count) :] if count else []


def _parts(life: JobInfo, records: Sequence[JobInfo]) -> list[JobInfo]:
    """The records of one life of a job: several if it was resized."""
    first = next(each for each in records if each.submitted_at == life.submitted_at)
    return [first, *rest_of(first, records)]


def _stray(job: JobInfo, is_known: bool, runs: set[str]) -> UnmatchedJob:
    name = job.job_name.strip()
    named = parse_job_name(name)
    run_id = named[0] if named is not None else None
    if not is_known and not _is_of_run(name):
        return UnmatchedJob(job, None, "a job of hpcflow itself", is_helper=True)
    if is_known:
        return UnmatchedJob(job, run_id, "a life of its job that is no attempt")
    if run_id in runs:
        return UnmatchedJob(job, run_id, "its run has no such attempt")
    return UnmatchedJob(job, run_id, "no run of this ledger knows it")
