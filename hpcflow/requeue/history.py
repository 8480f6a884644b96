"""The history of a run, for people: times, progress and lost work of each attempt. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from hpcflow.clock import from_text
from hpcflow.history.entries import Entry, entries
from hpcflow.ledger.rows import AttemptRow
from hpcflow.model.journal import JournalRecord
from hpcflow.model.state import Cause
from hpcflow.retention.checkpoints import steps_of

#: No end yet, or an end after which no train step is repeated.
_NOTHING_LOST: Final = (None, Cause.COMPLETED.value, Cause.PRUNED.value)


@dataclass(frozen=True)
class Chapter:
    """One attempt in the history.

    Attributes:
        how: how its job was submitted, as in the journal's `submitted`.
        resumed_from_train_step: train step of the checkpoint that it loaded.
        waited_s: from its submission to its start; for a standby, from the end before it.
        trained_at: when training began.
        ran_s: from its start to its end.
        began_at_train_step: where training began.
        reached_train_step: the last train step that is known.
        checkpoint_train_step: its last complete checkpoint.
        lost_train_steps: train steps after its last checkpoint, which have to be repeated.
        recovery_s: from the end of the attempt before to the start of training in this one.
    """

    attempt: int
    job_id: str | None
    how: str | None
    nodes: list[str]
    cause: Cause | None
    raw_state: str | None
    exit_code: int | None
    submitted_at: datetime | None
    started_at: datetime | None
    trained_at: datetime | None
    ended_at: datetime | None
    waited_s: float | None
    ran_s: float | None
    resumed_from_train_step: int | None
    began_at_train_step: int | None
    reached_train_step: int | None
    checkpoint_train_step: int | None
    lost_train_steps: int | None
    recovery_s: float | None


@dataclass(frozen=True)
class Story:
    """The history of a run.

    Attributes:
        chapters: its attempts, oldest first.
        entries: its journal's entries, in order.
    """

    chapters: list[Chapter]
    entries: list[Entry]


def history(attempts: Iterable[AttemptRow], records: Iterable[JournalRecord]) -> Story:
    """Return the history of one run; ``records`` is its journal, empty if that is gone."""
    chapters: list[Chapter] = []
    for row in sorted(attempts, key=lambda row: row.attempt):
        before = next((each for each in reversed(chapters) if each.ended_at), None)
        chapters.append(_chapter(row, before))
    return Story(chapters, list(entries(records)))


def _how(row: AttemptRow) -> str | None:
    how: str | None = row.journal.get("submitted", {}).get("how")
    return how


def _chapter(row: AttemptRow, before: Chapter | None) -> Chapter:
    report: dict[str, Any] = row.report
    resumed_from = next(steps_of(row.resume_from), None)
    began, reached = report.get("began_at"), report.get("train_step")
    saved: int | None = report.get("saved")
    lost = None
    if reached is None and saved is not None:  # adopted checkpoints: it may have gone further
        began, reached = resumed_from, saved
    elif reached is not None and row.cause not in _NOTHING_LOST:
        lost = max(0, reached - max(began or 0, saved or 0))
    trained_at = from_text(report["trained_at"]) if "trained_at" in report else None
    return Chapter(
        attempt=row.attempt,
        job_id=row.job_id,
        how=_how(row),
        nodes=row.nodes,
        cause=Cause(row.cause) if row.cause else None,
        raw_state=row.raw_state,
        exit_code=row.exit_code,
        submitted_at=row.submitted_at,
        started_at=row.started_at,
        trained_at=trained_at,
        ended_at=row.ended_at,
        waited_s=_between(_waits_since(row, before), row.started_at),
        ran_s=_between(row.started_at, row.ended_at),
        resumed_from_train_step=resumed_from,
        began_at_train_step=began,
        reached_train_step=reached,
        checkpoint_train_step=saved,
        lost_train_steps=lost,
        recovery_s=_between(before.ended_at, trained_at) if before else None,
    )


def _waits_since(row: AttemptRow, before: Chapter | None) -> datetime | None:
    """Return since when the job could start; a standby waits for the end of another attempt."""
    ended_at = before.ended_at if before is not None and _how(row) == "standby" else None
    if ended_at is None or row.submitted_at is None:
        return row.submitted_at
    return max(row.submitted_at, ended_at)


def _between(first: datetime | None, second: datetime | None) -> float | None:
    if first is None or second is None:
        return None
    return max(0.0, (second - first).total_seconds())
