"""The rules of :func:`hpcflow.requeue.policy.decide` by example.

docs/states.md shows these rows, and the tests compare ``decide()`` with them. The time is
:data:`NOW`; attempts ended a minute before, unless a row says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Any, Final

from hpcflow.model.retry import Retry
from hpcflow.model.state import Cause
from hpcflow.requeue.policy import Action, AttemptFacts, Facts, Stage

NOW: Final = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)
_MADE: Final = NOW - timedelta(days=1)
_ENDED: Final = NOW - timedelta(seconds=60)
_HOUR_AGO: Final = NOW - timedelta(hours=1)
_REQUEUED_ONCE: Final = (Cause.PREEMPTED, Cause.REQUEUED, Cause.PREEMPTED, Cause.PREEMPTED)


@dataclass(frozen=True)
class Example:
    """A row: with this ``retry:``, these facts lead to this action by this rule."""

    told: str
    facts: Facts
    action: Action
    rule: str
    retry: dict[str, Any] = field(default_factory=dict)
    mem_mb: int | None = None

    @property
    def policy(self) -> Retry:
        return Retry.model_validate(self.retry)


def _ended(*causes: Cause, checkpoints: bool = True, **changes: Any) -> tuple[AttemptFacts, ...]:
    """Return attempts that ended by ``causes``, each with a further checkpoint, or none."""
    return tuple(
        replace(
            AttemptFacts(number, Stage.OVER, cause, _ENDED),
            checkpoint=100 * number if checkpoints else None,
            **changes,
        )
        for number, cause in enumerate(causes, start=1)
    )


def _made(*checkpoints: int | None, causes: Sequence[Cause]) -> tuple[AttemptFacts, ...]:
    pairs = zip(_ended(*causes), checkpoints, strict=True)
    return tuple(replace(attempt, checkpoint=made) for attempt, made in pairs)


def _crashed(*crashes: str | None) -> tuple[AttemptFacts, ...]:
    """Return failed attempts; each crash is the end of a log, or None for a later failure."""
    failed = _ended(*[Cause.FAILED] * len(crashes), checkpoints=False)
    return tuple(
        replace(each, crash=crash, ended_at=_HOUR_AGO)
        for each, crash in zip(failed, crashes, strict=True)
    )


def _run(attempts: tuple[AttemptFacts, ...] = (), **changes: Any) -> Facts:
    return Facts("digits-20260228-abcdefgh", _MADE, attempts, **changes)


def _old(attempts: tuple[AttemptFacts, ...], **changes: Any) -> Facts:
    return replace(_run(attempts, **changes), created_at=NOW - timedelta(days=22))


def _open(*, is_ending: bool = False) -> tuple[AttemptFacts, ...]:
    return (AttemptFacts(1, Stage.OPEN, is_ending=is_ending),)


def _void() -> tuple[AttemptFacts, ...]:
    return (AttemptFacts(1, Stage.VOID, has_run=False),)


EXAMPLES: Final[tuple[Example, ...]] = (
    Example("no job was submitted yet", _run(), Action.RESUBMIT, "first"),
    Example(
        "no job was submitted yet, a minute after it was created",
        replace(_run(), created_at=_ENDED),
        Action.WAIT,
        "new",
    ),
    Example(
        "Slurm never created a job for its only attempt", _run(_void()), Action.RESUBMIT, "first"
    ),
    Example(
        "a trial of a sweep, and Slurm never accepted a job for it",
        _run(_void(), is_trial=True),
        Action.WAIT,
        "trial",
    ),
    Example(
        "it seems that no job was submitted yet, but its journal is missing",
        _run(is_journal_lost=True),
        Action.STOP,
        "lost_journal",
    ),
    Example(
        "a trial of a sweep, and its journal is missing",
        _run(is_trial=True, is_journal_lost=True),
        Action.STOP,
        "lost_journal",
    ),
    Example(
        "preempted, and its journal is missing",
        _run(_ended(Cause.PREEMPTED), is_journal_lost=True),
        Action.STOP,
        "lost_journal",
    ),
    Example("its job is pending, running, or may exist", _run(_open()), Action.NONE, "under_way"),
    Example(
        "cancelled, and its job is pending, running or in doubt",
        _run(_open(), is_cancelled=True),
        Action.CANCEL,
        "cancel",
    ),
    Example(
        "cancelled, and its job is completing",
        _run(_open(is_ending=True), is_cancelled=True),
        Action.NONE,
        "under_way",
    ),
    Example("completed", _run(_ended(Cause.COMPLETED)), Action.NONE, "completed"),
    Example(
        "completed and extended, and no attempt was submitted since",
        _run(_ended(Cause.COMPLETED), extends=1, counted_from=2, is_attended=True),
        Action.RESUBMIT,
        "go_on",
    ),
    Example(
        "extended, and completed since",
        _run(_ended(Cause.COMPLETED, Cause.COMPLETED), extends=1, counted_from=2),
        Action.NONE,
        "completed",
    ),
    Example(
        "cancelled, and its job has ended",
        _run(_ended(Cause.PREEMPTED), is_cancelled=True),
        Action.NONE,
        "cancelled",
    ),
    Example(
        "a trial that its sweep has pruned",
        _run(_ended(Cause.PRUNED), is_cancelled=True),
        Action.NONE,
        "cancelled",
    ),
    Example("`scancel` by hand", _run(_ended(Cause.CANCELLED)), Action.NONE, "cancelled"),
    Example(
        "`scancel` by hand, then `hpcflow release`",
        _run(_ended(Cause.CANCELLED), counted_from=2),
        Action.RESUBMIT,
        "go_on",
    ),
    Example(
        "stopped by a rule before",
        _run(_ended(Cause.FAILED), was_stopped=True),
        Action.NONE,
        "stopped",
    ),
    Example(
        "preempted, and held", _run(_ended(Cause.PREEMPTED), is_held=True), Action.WAIT, "held"
    ),
    Example(
        "preempted three weeks ago",
        _old(_ended(Cause.PREEMPTED, ended_at=NOW - timedelta(days=21))),
        Action.WAIT,
        "forgotten",
    ),
    Example(
        "preempted three weeks ago; the round an hour ago found the same",
        _old(_ended(Cause.PREEMPTED, ended_at=NOW - timedelta(days=21)), timed_out_at=_HOUR_AGO),
        Action.STOP,
        "forgotten",
    ),
    Example("preempted", _run(_ended(Cause.PREEMPTED)), Action.RESUBMIT, "go_on"),
    Example(
        "preempted fifty times, each time with a new checkpoint",
        _run(_ended(*[Cause.PREEMPTED] * 50)),
        Action.RESUBMIT,
        "go_on",
    ),
    Example(
        "preempted three times, with `preemptions: 2`",
        _run(_ended(*[Cause.PREEMPTED] * 3)),
        Action.STOP,
        "budget",
        {"preemptions": 2},
    ),
    Example("reached its time limit", _run(_ended(Cause.TIMEOUT)), Action.RESUBMIT, "go_on"),
    Example(
        "saved and exited by itself", _run(_ended(Cause.CHECKPOINTED)), Action.RESUBMIT, "go_on"
    ),
    Example(
        "reached its time limit twice without a new checkpoint",
        _run(_ended(*[Cause.TIMEOUT] * 2, checkpoints=False)),
        Action.RESUBMIT,
        "go_on",
    ),
    Example(
        "reached its time limit three times without a new checkpoint",
        _run(_ended(*[Cause.TIMEOUT] * 3, checkpoints=False)),
        Action.STOP,
        "no_progress",
    ),
    Example(
        "preempted three times while it was pending or starting",
        _run(_ended(*[Cause.PREEMPTED] * 3, checkpoints=False, has_run=False)),
        Action.RESUBMIT,
        "go_on",
    ),
    Example("its node failed", _run(_ended(Cause.NODE_FAIL)), Action.RESUBMIT, "go_on"),
    Example(
        "its node failed ten seconds ago",
        _run(_ended(Cause.NODE_FAIL, ended_at=NOW - timedelta(seconds=10))),
        Action.WAIT,
        "backoff",
    ),
    Example(
        "its nodes failed eleven times",
        _run(_ended(*[Cause.NODE_FAIL] * 11)),
        Action.STOP,
        "budget",
    ),
    Example(
        "the launch failed",
        _run(_ended(Cause.LAUNCH_FAILED, checkpoints=False)),
        Action.RESUBMIT,
        "go_on",
    ),
    Example("vanished", _run(_ended(Cause.VANISHED)), Action.RESUBMIT, "go_on"),
    Example("failed", _run(_ended(Cause.FAILED)), Action.RESUBMIT, "go_on"),
    Example(
        "failed twice in a row, the last time a minute ago",
        _run(_ended(Cause.FAILED, Cause.FAILED, checkpoints=False)),
        Action.WAIT,
        "backoff",
    ),
    Example(
        "crashed at its start, before its first train step",
        _run(_crashed("a")),
        Action.RESUBMIT,
        "go_on",
    ),
    Example(
        "crashed twice at its start, with the same last lines",
        _run(_crashed("a", "a")),
        Action.STOP,
        "same_crash",
    ),
    Example(
        "crashed twice at its start, with other last lines",
        _run(_crashed("a", "b")),
        Action.RESUBMIT,
        "go_on",
    ),
    Example(
        "crashed at its start, trained in the next attempt, crashed again with the same last lines",
        _run(_crashed("a", None, "a")),
        Action.STOP,
        "no_progress",
    ),
    Example(
        "crashed twice with the same last lines, was resumed by hand, crashed again",
        _run(_crashed("a", "a", "a"), counted_from=3),
        Action.RESUBMIT,
        "go_on",
    ),
    Example(
        "failed four times, each time with a new checkpoint",
        _run(_ended(*[Cause.FAILED] * 4)),
        Action.STOP,
        "budget",
    ),
    Example(
        "failed, with `failures: 0`",
        _run(_ended(Cause.FAILED)),
        Action.STOP,
        "budget",
        {"failures": 0},
    ),
    Example(
        "failed four times, resumed by hand, failed again",
        _run(_ended(*[Cause.FAILED] * 5), counted_from=5),
        Action.RESUBMIT,
        "go_on",
    ),
    Example(
        "an administrator requeued its job, which then was lost",
        _run(_ended(Cause.REQUEUED)),
        Action.RESUBMIT,
        "go_on",
    ),
    Example(
        "an administrator requeued its job nine times, then it failed, all without a checkpoint",
        _run(_ended(*[Cause.REQUEUED] * 9, Cause.FAILED, checkpoints=False)),
        Action.RESUBMIT,
        "go_on",
    ),
    Example(
        "preempted, requeued by an administrator after a checkpoint, preempted twice without one",
        _run(_made(None, 500, None, None, causes=_REQUEUED_ONCE)),
        Action.RESUBMIT,
        "go_on",
    ),
    Example(
        "the same, and preempted a third time",
        _run(_made(None, 500, None, None, None, causes=(*_REQUEUED_ONCE, Cause.PREEMPTED))),
        Action.STOP,
        "no_progress",
    ),
    Example("stalled", _run(_ended(Cause.STALLED)), Action.RESUBMIT, "go_on"),
    Example(
        "ran out of 64,000 MB where a node has 500,000",
        _run(_ended(Cause.OUT_OF_MEMORY, mem_mb=64_000), mem_max_mb=500_000),
        Action.RESUBMIT,
        "go_on",
        mem_mb=96_000,
    ),
    Example(
        "ran out of 64,000 MB where a node has 80,000",
        _run(_ended(Cause.OUT_OF_MEMORY, mem_mb=64_000), mem_max_mb=80_000),
        Action.RESUBMIT,
        "go_on",
        mem_mb=80_000,
    ),
    Example(
        "ran out of all the memory of a node",
        _run(_ended(Cause.OUT_OF_MEMORY, mem_mb=64_000), mem_max_mb=64_000),
        Action.STOP,
        "memory",
    ),
    Example(
        "ran out of memory twice",
        _run(_ended(*[Cause.OUT_OF_MEMORY] * 2, mem_mb=64_000), mem_max_mb=500_000),
        Action.STOP,
        "budget",
    ),
    Example(
        "preempted, and Slurm said a minute ago that a limit is full",
        _run(_ended(Cause.PREEMPTED), delayed_until=NOW + timedelta(minutes=1)),
        Action.WAIT,
        "delayed",
    ),
    Example(
        "preempted, and a hard budget has no room for another attempt",
        _run(_ended(Cause.PREEMPTED), over_budget="budget project:vision has no room"),
        Action.WAIT,
        "over_budget",
    ),
    Example(
        "preempted, and its run directory is gone: it was mirrored",
        _run(_ended(Cause.PREEMPTED), is_purged=True, is_mirrored=True),
        Action.RESTORE,
        "purged",
    ),
    Example(
        "preempted, and its run directory is gone: it has no mirror",
        _run(_ended(Cause.PREEMPTED), is_purged=True),
        Action.STOP,
        "purged",
    ),
    Example(
        "no known checkpoint in three attempts, and its run directory is gone: it was mirrored",
        _run(_ended(*[Cause.PREEMPTED] * 3, checkpoints=False), is_purged=True, is_mirrored=True),
        Action.RESTORE,
        "purged",
    ),
    Example(
        "failed too often, and its run directory is gone: it was mirrored",
        _run(_ended(*[Cause.FAILED] * 4), is_purged=True, is_mirrored=True),
        Action.STOP,
        "budget",
    ),
    Example(
        "completed, and its run directory is gone",
        _run(_ended(Cause.COMPLETED), is_purged=True, is_mirrored=True),
        Action.NONE,
        "completed",
    ),
    Example(
        "cancelled with `hpcflow cancel`, and its run directory is gone",
        _run(_ended(Cause.PREEMPTED), is_cancelled=True, is_purged=True, is_mirrored=True),
        Action.NONE,
        "cancelled",
    ),
    Example(
        "held, and its run directory is gone",
        _run(_ended(Cause.PREEMPTED), is_held=True, is_purged=True, is_mirrored=True),
        Action.WAIT,
        "held",
    ),
    Example(
        "preempted, and its newest checkpoint is gone from scratch: it was mirrored",
        _run(_ended(Cause.PREEMPTED), only_mirrored=100),
        Action.RESTORE,
        "only_mirrored",
    ),
    Example(
        "failed too often, and its newest checkpoint is gone from scratch",
        _run(_ended(*[Cause.FAILED] * 4), only_mirrored=400),
        Action.STOP,
        "budget",
    ),
    Example(
        "preempted after its deadline",
        _run(_ended(Cause.PREEMPTED)),
        Action.WAIT,
        "deadline",
        {"deadline": "12h"},
    ),
    Example(
        "preempted after its deadline; the round an hour ago found the same",
        _run(_ended(Cause.PREEMPTED), timed_out_at=_HOUR_AGO),
        Action.STOP,
        "deadline",
        {"deadline": "12h"},
    ),
)
