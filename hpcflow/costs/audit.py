"""Recompute all bills from accounting, and report what differs or is missing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from hpcflow.errors import HpcflowError, SchedulerUnavailable
from hpcflow.ledger.derive import bill_parts
from hpcflow.ledger.rows import BilledRow, DueBill, JobRow, PartRow
from hpcflow.ledger.store import Ledger
from hpcflow.model.ids import is_array_name, parse_job_name
from hpcflow.model.journal import Accounted
from hpcflow.model.state import AttemptState
from hpcflow.reconcile.bill_words import bill_of_job
from hpcflow.reconcile.billing import accounted, is_elsewhere, others_of, record_of
from hpcflow.reconcile.resized import lives_of, rest_of
from hpcflow.schedulers.base import JobInfo, Scheduler
from hpcflow.sites.schema import Site

#: As for ends, because clocks differ.
_MARGIN = timedelta(days=1)
#: How far back to search jobs if there is no bill to begin with.
_WITHOUT_ROWS = timedelta(days=30)
#: Prefix of the names of hpcflow's own jobs: daemon, mirror, rounds.
_OWN: Final = "hpcflow-"
#: The jobs of sbatch/train.sbatch.
_BY_HAND: Final = "hpcflow-by-hand"
_Key = tuple[str, str]


@dataclass(frozen=True)
class Difference:
    """A difference in the bill of one attempt; ``billed`` and ``now`` are None for no value."""

    run_id: str
    attempt: int
    job_id: str | None
    what: str
    billed: str | None
    now: str | None


@dataclass(frozen=True)
class Unknown:
    """A job without a bill; see :class:`UnmatchedJob`.

    Attributes:
        cost_usd: by today's prices; None without a price.
    """

    job_id: str
    job_name: str
    run_id: str | None
    raw_state: str
    ended_at: datetime | None
    hours: float
    gpu_hours: float
    cost_usd: str | None
    why: str


@dataclass
class Audit:
    """The result of an audit of the bills.

    Attributes:
        checked: number of recomputed bills.
        uncheckable: number of bills that were not recomputed: their site has no accounting, its
            accounting did not answer (see ``problems``), or their jobs were on another cluster.
        unknown: jobs that are not an attempt of any run.
        helpers: jobs of hpcflow itself, such as the daemon: they cost, but have no run.
        problems: why some bills could not be checked.
    """

    checked: int = 0
    uncheckable: int = 0
    differences: list[Difference] = field(default_factory=list)
    unknown: list[Unknown] = field(default_factory=list)
    helpers: list[Unknown] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def audit(
    ledger: Ledger,
    rows: Sequence[BilledRow],
    *,
    user: str,
    since: datetime | None,
    until: datetime,
    connect: Callable[[str], Scheduler],
    find_site: Callable[[str], Site],
    now: datetime,
) -> Audit:
    """Recompute the bills of ``rows``, and find jobs without one, with one query for each site.

    Args:
        rows: of this user: accounting is queried for own jobs only.
        since: jobs that ended before, or from ``until`` on, are not searched; None for as far back
            as there are rows: older ones may be of a home that no longer exists.
    """
    found = Audit()
    by_site: dict[str, list[BilledRow]] = defaultdict(list)
    for row in rows:
        by_site[row.site].append(row)
    jobs = ledger.jobs(user=user)
    known = ledger.known(sorted({row.run_id for row in rows}))
    of_late = since or now - _WITHOUT_ROWS
    late = (job.site for job in jobs if job.submitted_at and job.submitted_at >= of_late)
    seen: set[tuple[str, str, datetime | None]] = set()
    for name in dict.fromkeys([*by_site, *late]):
        numbers = {(row.run_id, row.attempt) for row in by_site[name]}
        dues = [
            DueBill(attempt, name, each.run.run_dir, each.run.partition, 0)
            for run_id in dict.fromkeys(row.run_id for row in by_site[name])
            if (each := known.get(run_id)) is not None
            for attempt in each.attempts
            if (run_id, attempt.attempt) in numbers
        ]
        try:
            site = find_site(name)
            if not site.has_accounting:
                found.uncheckable += len(dues)
                continue
            begin = since or _begin(dues, now)
            here = [due for due in dues if not is_elsewhere(due, site)]
            found.uncheckable, dues = found.uncheckable + len(dues) - len(here), here
            told = _query(dues, connect(name), min(begin, _begin(dues, now)))
        except HpcflowError as error:
            found.problems.append(f"{name}: {error.message}")
            found.uncheckable += len(dues)
            continue
        _compare(found, dues, told, site, now)
        for stray in unmatched_jobs(told, jobs):
            job = stray.job
            key = (job.job_id, job.job_name, job.submitted_at)
            unknown = _unknown(stray, site, now)
            ended_at = unknown.ended_at or now
            if key not in seen and begin <= ended_at < until:
                seen.add(key)  # another site file may be of the same cluster
                (found.helpers if stray.is_helper else found.unknown).append(unknown)
    return found


def _begin(dues: Sequence[DueBill], now: datetime) -> datetime:
    """Return when the first of these was submitted."""
    times = [each.attempt.submitted_at for each in dues if each.attempt.submitted_at is not None]
    return min(times, default=now if dues else now - _WITHOUT_ROWS)


def _query(dues: Sequence[DueBill], scheduler: Scheduler, since: datetime) -> list[JobInfo]:
    ids = [each.attempt.job_id or "" for each in dues]
    told = scheduler.accounting(ids, since - _MARGIN, is_named=is_of_hpcflow)
    if dues and not told:
        raise SchedulerUnavailable("accounting has no record of these jobs, or is not set up")
    return told


def _compare(
    found: Audit, dues: Sequence[DueBill], told: Sequence[JobInfo], site: Site, now: datetime
) -> None:
    by_id: dict[str, list[JobInfo]] = defaultdict(list)
    for job in told:
        by_id[job.job_id.partition("+")[0]].append(job)
    for due in dues:
        found.checked += 1
        some = by_id[due.attempt.job_id or ""]
        record = record_of(due, some)
        bill = None
        if record is not None:
            bill = accounted(due, record, site, now, others_of(record, some))
        found.differences += _differences(due, bill)


def _unknown(stray: UnmatchedJob, site: Site, now: datetime) -> Unknown:
    job = stray.job
    bill = bill_of_job(job, site, now)
    return Unknown(
        job_id=job.job_id,
        job_name=job.job_name.strip(),
        run_id=stray.run_id,
        raw_state=job.raw_state,
        ended_at=job.ended_at,
        hours=(job.elapsed_s or 0) / 3600,
        gpu_hours=float(bill.gpu_hours),
        cost_usd=None if bill.cost_usd is None else f"{bill.cost_usd:f}",
        why=stray.why,
    )


def _differences(due: DueBill, bill: Accounted | None) -> Iterable[Difference]:
    row = due.attempt

    def difference(what: str, billed: object, computed: object) -> Difference:
        one, other = (None if each is None else str(each) for each in (billed, computed))
        return Difference(row.run_id, row.attempt, row.job_id, what, one, other)

    if bill is None:
        if row.billed_by == "accounting":
            yield difference("accounting no longer has this record", row.cost_usd, None)
        return
    if row.billed_by != "accounting":
        how = "has no bill yet" if row.billed_by is None else "its bill is an estimate"
        yield difference(how, row.cost_usd, bill.cost_usd)
        return
    if row.elapsed_s != float(bill.elapsed_s):
        yield difference("elapsed_s", row.elapsed_s, bill.elapsed_s)
    if row.gpu_hours != float(bill.gpu_hours):
        yield difference("gpu_hours", row.gpu_hours, bill.gpu_hours)
    for name in ("cost_usd", "cost_su", "on_demand_usd"):
        text, computed = getattr(row, name), getattr(bill, name)
        billed = None if text is None else Decimal(text)
        if billed != computed:
            yield difference(name, billed, computed)
    parts = bill_parts(bill.model_dump(mode="json", exclude_none=True))
    if row.parts and row.parts != parts:  # an older hpcflow recorded no parts
        yield difference("parts", _parts_text(row.parts), _parts_text(parts))


def _parts_text(parts: Iterable[PartRow]) -> str:
    return ", ".join(
        f"{part.gpu_hours} GPU hours for {part.cost_usd} USD, {part.cost_su} SU in partition "
        f"{part.partition}, account {part.account}"
        for part in parts
    )


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
