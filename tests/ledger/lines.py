"""Lines for journals and event files, as the login side and jobs write them."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from hpcflow.clock import to_text
from hpcflow.model.journal import (
    Accounted,
    CancelRequested,
    ChargeLine,
    CheckpointRemoved,
    Ended,
    Intended,
    JournalRecord,
    Observed,
    Refused,
    Resumed,
    Submitted,
    Withdrawn,
)
from hpcflow.model.state import AttemptState, Cause
from tests.storage.runs import CREATED_AT


def at(minutes: float) -> datetime:
    """So many minutes after the run was created."""
    return CREATED_AT + timedelta(minutes=minutes)


def text(record: JournalRecord) -> bytes:
    """A journal line."""
    return record.to_line().encode()


def intended(attempt: int, minutes: float = 0, **more: Any) -> bytes:
    return text(
        Intended(
            at=at(minutes),
            attempt=attempt,
            job_name=f"digits-20260301-aaaaaaaa:{attempt}",
            scheduler="slurm",
            partition="gpu",
            **more,
        )
    )


def submitted(attempt: int, minutes: float = 0) -> bytes:
    return text(Submitted(at=at(minutes), attempt=attempt, job_id=f"10{attempt}"))


def refused(attempt: int, minutes: float = 0) -> bytes:
    return text(Refused(at=at(minutes), attempt=attempt, reason="Invalid account", retryable=False))


def withdrawn(attempt: int, minutes: float = 0) -> bytes:
    return text(Withdrawn(at=at(minutes), attempt=attempt, reason="no job of this name"))


def observed(attempt: int, state: AttemptState, minutes: float = 0, **more: Any) -> bytes:
    raw = {"raw_state": state.value.upper(), "job_id": f"10{attempt}", **more}
    return text(Observed(at=at(minutes), attempt=attempt, state=state, **raw))


def ended(attempt: int, cause: Cause, minutes: float = 0, **more: Any) -> bytes:
    words = {"raw_state": cause.value.upper(), "rule": "accounting says so", **more}
    return text(Ended(at=at(minutes), attempt=attempt, cause=cause, **words))


def cancel_requested(minutes: float = 0, **more: Any) -> bytes:
    return text(CancelRequested(at=at(minutes), by="ada", **more))


def resumed(minutes: float = 0) -> bytes:
    return text(Resumed(at=at(minutes), by="ada"))


def event(kind: str, minutes: float = 0, **said: Any) -> bytes:
    """A line of an event file."""
    return (json.dumps({"at": to_text(at(minutes)), "event": kind, **said}) + "\n").encode()


def started(attempt: int, minutes: float = 0) -> bytes:
    return event("started", minutes, job_id=f"10{attempt}", nodes=["n1", "n2"], restarts=0)


def progress(train_step: int, minutes: float = 0, **metrics: float | None) -> bytes:
    return event("progress", minutes, train_step=train_step, metrics=metrics)


def checkpoint(train_step: int, minutes: float = 0, **more: Any) -> bytes:
    said = {"path": f"checkpoints/{train_step}", "size_bytes": 1000, **more}
    return event("checkpoint", minutes, train_step=train_step, **said)


def late_metrics(train_step: int, minutes: float = 0, **metrics: float | None) -> bytes:
    """A job logged these for a train step after its checkpoint was begun in minute 1."""
    said = {"path": f"checkpoints/{train_step}", "size_bytes": 1000, "created_at": to_text(at(1))}
    more = {"epoch": 1.5, "metrics": metrics}
    return event("checkpoint_metrics", minutes, train_step=train_step, **said, **more)


def removed(train_step: int, minutes: float = 0) -> bytes:
    """A job removed a checkpoint by its rule."""
    said = {"path": f"checkpoints/{train_step}", "size_bytes": 1000}
    return event("checkpoint_removed", minutes, train_step=train_step, **said)


def removed_by_hand(train_step: int, made_in: int, minutes: float = 0) -> bytes:
    """A person removed a checkpoint that attempt ``made_in`` had made."""
    path = f"checkpoints/{train_step}"
    facts = {"train_step": train_step, "path": path, "size_bytes": 1000, "made_in": made_in}
    return text(CheckpointRemoved(at=at(minutes), by="ada", **facts))


def exited(code: int, minutes: float = 0) -> bytes:
    return event("exited", minutes, exit_code=code)


def accounted(attempt: int, usd: str, *kinds: str, **more: Any) -> bytes:
    charges = [ChargeLine(kind=kind, begin=at(0), end=at(60), hours=Decimal(1)) for kind in kinds]
    times = {"started_at": at(0), "ended_at": at(60), "elapsed_s": Decimal(3600)}
    facts = {"attempt": attempt, "job_id": f"10{attempt}", "source": "accounting", **times}
    amounts = {"gpu_hours": Decimal(8), "cost_usd": Decimal(usd), "charges": charges}
    return text(Accounted(at=at(61), **amounts, **facts, **more))


def mirror(what: str, train_step: int, minutes: float = 0) -> bytes:
    """A line of ``mirror.jsonl``."""
    said = {"at": to_text(at(minutes)), "what": what, "url": "s3://lab/ada", "why": "down"}
    more = {"train_step": train_step, "size_bytes": 9000, "manifest_sha256": "0" * 64}
    return json.dumps({**said, **more}).encode() + b"\n"
