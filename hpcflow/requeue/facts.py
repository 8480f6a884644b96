"""What the ledger knows of a run, as facts for the policy. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

from hpcflow.clock import from_text
from hpcflow.ledger.rows import AttemptRow, CheckpointRow, Known
from hpcflow.model.state import AttemptState, Cause
from hpcflow.requeue.policy import AttemptFacts, Facts, Stage

#: How long to wait after Slurm did not take a job: doubled each time in a row, up to the longest.
_DELAY_S: Final = 30.0
_DELAY_MAX_S: Final = 600.0


def facts_of(
    known: Known, checkpoints: Iterable[CheckpointRow], *, mem_max_mb: int | None = None
) -> Facts:
    """The facts of one run.

    Args:
        known: its rows.
        checkpoints: all complete checkpoints of it.
        mem_max_mb: memory of a node of its partition; None if nobody knows it.
    """
    wishes = known.run.journal
    rows = sorted(known.attempts, key=lambda row: row.attempt)
    saved: dict[int, int] = {}
    for row in checkpoints:
        saved[row.attempt] = max(row.train_step, saved.get(row.attempt, 0))
    attempts = [_attempt(row, saved.get(row.attempt)) for row in rows]
    executed = [each.number for each in attempts if each.stage is not Stage.VOID]
    decided = wishes.get("decided", {})
    is_stop = decided.get("action") == "stop"
    return Facts(
        run_id=known.run.run_id,
        created_at=known.run.created_at,
        attempts=attempts,
        counted_from=wishes.get("counted_from", 1),
        is_held="held_at" in wishes,
        is_cancelled="cancel_requested_at" in wishes,
        was_stopped=is_stop and decided.get("after") == (executed[-1] if executed else 0),
        delayed_until=_delayed_until(rows[-1] if rows else None, wishes),
        mem_max_mb=mem_max_mb,
    )


def _attempt(row: AttemptRow, checkpoint: int | None) -> AttemptFacts:
    stage = {
        AttemptState.ENDED.value: Stage.OVER,
        AttemptState.WITHDRAWN.value: Stage.VOID,
    }.get(row.state, Stage.OPEN)
    return AttemptFacts(
        number=row.attempt,
        stage=stage,
        cause=Cause(row.cause) if stage is Stage.OVER and row.cause else None,
        ended_at=row.ended_at,
        has_run=row.started_at is not None,
        checkpoint=checkpoint,
        mem_mb=row.journal.get("intended", {}).get("mem_mb"),
    )


def _delayed_until(last: AttemptRow | None, wishes: dict[str, Any]) -> datetime | None:
    """When to try again what Slurm did not take; None where the last attempt was taken."""
    refused = last.journal.get("refused") if last is not None else None
    if refused is None or not refused.get("retryable"):
        return None
    wait_s = min(_DELAY_S * 2.0 ** (wishes.get("delays", 1) - 1), _DELAY_MAX_S)
    return from_text(refused["at"]) + timedelta(seconds=wait_s)
