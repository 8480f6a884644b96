"""The story of a run: what each attempt waited for, did and lost, and what followed. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hpcflow.clock import from_text
from hpcflow.ledger.rows import AttemptRow
from hpcflow.model.journal import Decided, JournalRecord
from hpcflow.model.state import Cause


@dataclass(frozen=True)
class Chapter:
    """One attempt, as a person asks for it afterwards.

    Attributes:
        waited_s: from its submission to its start, or from the end before it, if it was a standby.
        ran_s: from its start to its end.
        began_at_train_step, reached_train_step: where training began, and how far it is known to
            have come.
        checkpoint_train_step: the last complete checkpoint that it made.
        lost_train_steps: done and to be done again, because no checkpoint held them.
        recovery_s: from the end of the attempt before to the first train step of this one.
        stall: what the daemon last said about its lack of progress.
        decided: what the daemon decided after it, by which rules and why, oldest first; or that
            Slurm did.
    """

    attempt: int
    job_id: str | None
    nodes: list[str]
    cause: Cause | None
    raw_state: str | None
    exit_code: int | None
    submitted_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    waited_s: float | None
    ran_s: float | None
    began_at_train_step: int | None
    reached_train_step: int | None
    checkpoint_train_step: int | None
    lost_train_steps: int | None
    recovery_s: float | None
    stall: str | None
    decided: list[str]


@dataclass(frozen=True)
class Story:
    """A whole run.

    Attributes:
        decided_first: what the daemon decided before there was any job.
        chapters: its attempts, oldest first.
    """

    decided_first: list[str]
    chapters: list[Chapter]


def history(attempts: Iterable[AttemptRow], records: Iterable[JournalRecord]) -> Story:
    """The story of one run.

    Args:
        attempts: its rows.
        records: its journal; none where that is gone.
    """
    decided: dict[int, list[Decided]] = defaultdict(list)
    for record in records:
        if isinstance(record, Decided):
            decided[record.after].append(record)
    chapters: list[Chapter] = []
    for row in sorted(attempts, key=lambda row: row.attempt):
        before = next((each for each in reversed(chapters) if each.ended_at), None)
        if chapters and (told := _went_on_by_itself(row, decided[chapters[-1].attempt])):
            chapters[-1].decided.append(told)
        chapters.append(_chapter(row, before, [_said(each) for each in decided[row.attempt]]))
    return Story([_said(each) for each in decided[0]], chapters)


def _said(decided: Decided) -> str:
    return f"{decided.action} ({decided.rule}): {decided.why}"


def _went_on_by_itself(row: AttemptRow, decided: list[Decided]) -> str | None:
    """How a run came to an attempt that no daemon had sent."""
    if _restarts(row):
        return f"Slurm restarted job {row.job_id} as attempt {row.attempt}"
    if _was_standby(row) and not (decided and decided[-1].action == "resubmit"):
        return f"standby job {row.job_id} went on as attempt {row.attempt}"
    return None


def _restarts(row: AttemptRow) -> int:
    """How often the job of an attempt had been restarted when it became that attempt."""
    restarts: int = row.journal.get("intended", {}).get("restarts") or 0
    return restarts


def _was_standby(row: AttemptRow) -> bool:
    return bool(row.journal.get("submitted", {}).get("how") == "standby")


def _chapter(row: AttemptRow, before: Chapter | None, decided: list[str]) -> Chapter:
    report: dict[str, Any] = row.report
    began, reached = report.get("began_at"), report.get("train_step")
    saved: int | None = report.get("saved")
    lost = None
    if reached is not None and row.cause not in (None, Cause.COMPLETED.value):
        lost = max(0, reached - max(began or 0, saved or 0))
    trained_at = from_text(report["trained_at"]) if "trained_at" in report else None
    return Chapter(
        attempt=row.attempt,
        job_id=row.job_id,
        nodes=row.nodes,
        cause=Cause(row.cause) if row.cause else None,
        raw_state=row.raw_state,
        exit_code=row.exit_code,
        submitted_at=row.submitted_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        waited_s=_between(_waits_since(row, before), row.started_at),
        ran_s=_between(row.started_at, row.ended_at),
        began_at_train_step=began,
        reached_train_step=reached,
        checkpoint_train_step=saved,
        lost_train_steps=lost,
        recovery_s=_between(before.ended_at, trained_at) if before else None,
        stall=row.journal["stall"]["why"] if "stall" in row.journal else None,
        decided=decided,
    )


def _waits_since(row: AttemptRow, before: Chapter | None) -> datetime | None:
    """Since when it could have started; what a standby waits for is the end of another attempt."""
    ended_at = before.ended_at if before is not None and _was_standby(row) else None
    if ended_at is None or row.submitted_at is None:
        return row.submitted_at
    return max(row.submitted_at, ended_at)


def _between(first: datetime | None, second: datetime | None) -> float | None:
    if first is None or second is None:
        return None
    return max(0.0, (second - first).total_seconds())
