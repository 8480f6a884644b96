"""The decisions and requests in the course of a run. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from hpcflow.model.journal import (
    BeginLifted,
    CancelRequested,
    Changed,
    Decided,
    Held,
    JournalRecord,
    Overspent,
    Refused,
    Released,
    Restored,
    Resumed,
    Stall,
    Submitted,
    Withdrawn,
)

_REQUESTS: Final = (Held, Released, Resumed, CancelRequested)
_NEVER_A_JOB: Final = (Refused, Withdrawn)


@dataclass(frozen=True)
class Entry:
    """A decision, a request or an answer in the journal.

    Attributes:
        attempt: the current or last attempt at that time; 0 before the first job.
        kind: of the journal's record: decided, stall, overspent, held, released, resumed, changed,
            cancel_requested, begin_lifted, restored; extended, if the change continues a completed
            run; refused or withdrawn, for an attempt that never became a job.
        action, rule: of a decision, or of the response to a stall or a budget.
        why: the facts behind it; for a refusal, the scheduler's reason.
        not_before: when the decision is due.
        by: the user who made the request.
    """

    at: datetime
    attempt: int
    kind: str
    action: str | None = None
    rule: str | None = None
    why: str | None = None
    not_before: datetime | None = None
    by: str | None = None


def entries(records: Iterable[JournalRecord]) -> Iterator[Entry]:
    """Yield the decisions and requests in the order of the journal."""
    last = 0
    for record in records:
        at, kind = record.at, record.record
        if isinstance(record, Submitted):
            last = max(last, record.attempt)
        elif isinstance(record, Decided):
            due = record.not_before if record.action == "wait" else None
            yield Entry(at, record.after, kind, record.action, record.rule, record.why, due)
        elif isinstance(record, Stall):
            yield Entry(at, record.attempt, kind, record.action, record.rule, record.why)
        elif isinstance(record, Overspent):
            yield Entry(at, record.attempt, kind, "notice", "over_budget", record.why)
        elif isinstance(record, _REQUESTS):
            yield Entry(at, last, kind, by=record.by)
        elif isinstance(record, Changed):
            yield Entry(at, last, _kind(record), why=", ".join(record.overrides), by=record.by)
        elif isinstance(record, Restored):
            yield Entry(at, record.after, kind, why=_restored(record), by=record.by)
        elif isinstance(record, _NEVER_A_JOB):
            yield Entry(at, last, kind, why=record.reason)
        elif isinstance(record, BeginLifted):
            yield Entry(at, record.attempt, kind, why=record.refused)


def _kind(record: Changed) -> str:
    return record.record if record.extends is None else "extended"


def _restored(record: Restored) -> str:
    """Return what was fetched, and from where."""
    steps = ", ".join(str(step) for step in record.checkpoints)
    what = f"train step {steps}" if len(record.checkpoints) == 1 else f"train steps {steps}"
    where = f"from {record.url}"
    if record.site_before is not None and record.site_before != record.site:
        where += f", moved from {record.site_before}"
    return f"{what if steps else 'no checkpoint'} {where}"
