"""Whether the bills are what accounting says: everything computed anew, every difference listed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal

from hpcflow.errors import HpcflowError, SchedulerUnavailable
from hpcflow.ledger.rows import BilledRow, DueBill
from hpcflow.ledger.store import Ledger
from hpcflow.model.journal import Accounted
from hpcflow.observe.billing import accounted, record_of
from hpcflow.schedulers.base import JobInfo, Scheduler
from hpcflow.sites.schema import Site

#: As for ends: clocks differ.
_MARGIN = timedelta(days=1)
_CENT = Decimal("0.01")


@dataclass(frozen=True)
class Difference:
    """What differs of the bill of one attempt; ``billed`` and ``now`` are None where there is
    nothing."""

    run_id: str
    attempt: int
    job_id: str | None
    what: str
    billed: str | None
    now: str | None


@dataclass
class Audit:
    """What was found.

    Attributes:
        checked: bills that were computed anew.
        problems: what kept some from being so.
    """

    checked: int = 0
    differences: list[Difference] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def audit(
    ledger: Ledger,
    rows: Sequence[BilledRow],
    *,
    connect: Callable[[str], Scheduler],
    find_site: Callable[[str], Site],
    now: datetime,
) -> Audit:
    """Compute the bills of ``rows`` anew, with one question to the accounting of each site.

    Args:
        rows: of this user: accounting is asked for own jobs only.

    Raises:
        LedgerError: the database does not answer.
    """
    found = Audit()
    by_site: dict[str, list[BilledRow]] = defaultdict(list)
    for row in rows:
        by_site[row.site].append(row)
    known = ledger.known(sorted({row.run_id for row in rows}))
    for name, some in by_site.items():
        dues = [
            DueBill(attempt, name, each.run.run_dir, each.run.partition, 0)
            for run_id in dict.fromkeys(row.run_id for row in some)
            if (each := known.get(run_id)) is not None
            for attempt in each.attempts
            if any((row.run_id, row.attempt) == (run_id, attempt.attempt) for row in some)
        ]
        try:
            site = find_site(name)
            if not site.has_accounting:
                continue  # nobody knows better
            _audit_site(found, dues, connect(name), site, now)
        except HpcflowError as error:
            found.problems.append(f"{name}: {error.message}")
    return found


def _audit_site(
    found: Audit, dues: list[DueBill], scheduler: Scheduler, site: Site, now: datetime
) -> None:
    since = min((each.attempt.submitted_at or now for each in dues), default=now) - _MARGIN
    told = scheduler.accounting([each.attempt.job_id or "" for each in dues], since)
    if dues and not told:
        raise SchedulerUnavailable("accounting knows none of these jobs, or there is none")
    by_id: dict[str, list[JobInfo]] = defaultdict(list)
    for job in told:
        by_id[job.job_id].append(job)
    for due in dues:
        found.checked += 1
        record = record_of(due, by_id[due.attempt.job_id or ""])
        bill = None if record is None else accounted(due, record, site, now)
        found.differences += _differences(due, bill)


def _differences(due: DueBill, bill: Accounted | None) -> Iterable[Difference]:
    row = due.attempt

    def difference(what: str, billed: object, anew: object) -> Difference:
        one, other = (None if each is None else str(each) for each in (billed, anew))
        return Difference(row.run_id, row.attempt, row.job_id, what, one, other)

    if bill is None:
        if row.billed_by == "accounting":
            yield difference("accounting has no such record any more", row.cost_usd, None)
        return
    if row.billed_by != "accounting":
        how = "has no bill yet" if row.billed_by is None else "its bill is an estimate"
        yield difference(how, row.cost_usd, bill.cost_usd)
        return
    if row.elapsed_s != float(bill.elapsed_s):
        yield difference("elapsed_s", row.elapsed_s, bill.elapsed_s)
    if row.gpu_hours != float(bill.gpu_hours):
        yield difference("gpu_hours", row.gpu_hours, bill.gpu_hours)
    for name, anew in (("cost_usd", bill.cost_usd), ("cost_su", bill.cost_su)):
        text = getattr(row, name)
        billed = None if text is None else Decimal(text)
        if billed is None or anew is None:
            if billed is not anew:
                yield difference(name, billed, anew)
        elif abs(billed - anew) >= _CENT / 2:
            yield difference(name, billed, anew)
