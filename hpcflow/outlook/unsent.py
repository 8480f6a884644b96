"""Why a run is not in Slurm's queue: what hpcflow itself waits for, or that it runs, or is over.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from hpcflow.errors import shell_word
from hpcflow.ledger.queries import PURGED_RULE
from hpcflow.model import lost_journal
from hpcflow.model.journal import Decided, Held, JournalRecord, Refused
from hpcflow.model.requests import is_cancelled
from hpcflow.model.state import HELD_FOR_ITS_EXIT, UNTRUSTED_EXIT_CODE, RunState
from hpcflow.model.units import format_duration
from hpcflow.model.views import AttemptView, RunView

_TIME: Final = "%Y-%m-%d %H:%M:%S"
_RESUME: Final = "send it now: hpcflow resume {run}"
_FIND_CAUSE: Final = "see why: hpcflow history {run}; then go on: hpcflow resume {run}"
_CRASHED: Final = "see its log: hpcflow logs {run}; correct the program, then: hpcflow resume {run}"
_FAILED: Final = "see why: hpcflow logs {run}; a daemon would send it again: hpcflow daemon status"
#: The rule by which a run waits for a budget, in :mod:`hpcflow.requeue.policy`.
_OVER_BUDGET: Final = "over_budget"
#: The same of the rule that stops a run whose program crashes at its start.
_SAME_CRASH: Final = "same_crash"
_TO_BE_SENT: Final = (RunState.CREATED, RunState.WAITING, RunState.FAILED)
_DAEMON: Final = "the daemon sends it, see whether it runs: hpcflow daemon status; or " + _RESUME


@dataclass(frozen=True)
class Unsent:
    """A run of which no job waits.

    Attributes:
        words: where it stands and why.
        until: when what it waits for is over; None where it waits for no time.
        to_try: what to type.
    """

    words: str
    until: datetime | None
    to_try: tuple[str, ...]


def explain_unsent(
    run: RunView,
    last: AttemptView | None,
    records: Sequence[JournalRecord],
    now: datetime,
    *,
    is_journal_lost: bool = False,
    no_room: tuple[str, str] | None = None,
    has_snapshot: bool = False,
) -> Unsent:
    """Why no job of it waits.

    Args:
        last: its last attempt.
        records: its journal; none where that is gone.
        is_journal_lost: whether its run directory has no journal.
        no_room: why a hard budget has no room for its next attempt now, and what to do.
        has_snapshot: whether it executes a snapshot of its code, not the corrected program.
    """
    words, until, advice = _explained(run, last, records, no_room, now)
    if has_snapshot and advice == _CRASHED:
        advice += " --set code=snapshot"
    if is_journal_lost and run.state in _TO_BE_SENT and run.next_action != "held":
        words = f"it was stopped ({lost_journal.RULE}): {lost_journal.WHY}"
        advice = lost_journal.ADVICE
    return Unsent(
        words, until, (advice.replace("{run}", shell_word(run.run_id)),) if advice else ()
    )


def waits_for_budget(run: RunView, records: Sequence[JournalRecord]) -> bool:
    """Whether the last decision about it was to wait until a hard budget has room."""
    decided = _last(records, lambda each: isinstance(each, Decided))
    is_so = isinstance(decided, Decided) and decided.rule == _OVER_BUDGET
    return is_so and (run.next_action or "").startswith("wait")


def _explained(
    run: RunView,
    last: AttemptView | None,
    records: Sequence[JournalRecord],
    no_room: tuple[str, str] | None,
    now: datetime,
) -> tuple[str, datetime | None, str]:
    if run.state in (RunState.QUEUED, RunState.RUNNING) and last and is_cancelled(records):
        words = f"cancelled, but its job {last.job_id} has not ended yet"
        return words, None, "if it does not end soon: hpcflow cancel {run}"
    if run.state is RunState.RUNNING and last is not None:
        return _runs(last, now), None, "follow it: hpcflow logs --follow {run}"
    if run.state is RunState.SUBMITTING:
        words = "an attempt is being submitted, or its submission was killed before Slurm answered"
        return words, None, "look the job up, and go on: hpcflow resume {run}"
    if run.state is RunState.COMPLETED:
        return "it is completed", None, "what it made: hpcflow show {run}"
    if run.state is RunState.CANCELLED:
        return "it was cancelled", None, "go on after all: hpcflow resume {run}"
    if waits_for_budget(run, records):
        if no_room is None:
            return "it waited for a budget, which has room for it now", None, _DAEMON
        return f"it waits: {no_room[0]}", None, no_room[1]
    return _waits(run, last, records)


def _waits(
    run: RunView, last: AttemptView | None, records: Sequence[JournalRecord]
) -> tuple[str, datetime | None, str]:
    action, _, rule = (run.next_action or "").partition(": ")
    if action == "held":
        held = _last(records, lambda each: isinstance(each, Held))
        if isinstance(held, Held) and held.why is not None:
            look = "see what it would execute: hpcflow restore {run}; then: "
            advice = f"{look}hpcflow resume {{run}}, or: hpcflow cancel {{run}}"
            return f"it is held: {held.why}", None, advice
        by = f" by {held.by} on {held.at:{_TIME}}" if isinstance(held, Held) else ""
        return f"it is held{by}", None, "to continue: hpcflow release {run}"
    decided = _last(records, lambda each: isinstance(each, Decided))
    why = decided.why if isinstance(decided, Decided) else ""
    if action == "stop":
        advice = _CRASHED if rule == _SAME_CRASH else _FIND_CAUSE
        return f"it was stopped ({rule}): {why}", None, advice
    if rule == "delayed":
        return f"Slurm did not take it: {_refusal(records) or why}", run.next_at, _RESUME
    if rule == "trial":
        return f"it is a trial, and its sweep sends it: {why}", None, _sweep(run)
    if action == "wait":
        return f"it is sent again after a pause ({rule}): {why}", run.next_at, _RESUME
    if action == "restore":
        words = f"what it needs comes back from the mirror first ({rule}): {why}"
        return words, run.next_at, "fetch it now: hpcflow restore {run}"
    if last is not None and last.rule == PURGED_RULE:
        words = "its run directory is gone, and nothing is sent for it before it is back"
        return words, None, "if it was mirrored: hpcflow restore {run}"
    if refusal := _refused_since(records, last):
        return (
            f"Slurm refused it: {refusal}",
            None,
            "correct it, then: hpcflow resume {run} --set …",
        )
    if last is None:
        return "no job was sent yet", None, _DAEMON
    cause = f" as {last.cause.value}" if last.cause else ""
    if last.exit_code == UNTRUSTED_EXIT_CODE:
        cause += (
            f" with exit code {UNTRUSTED_EXIT_CODE}: other users could have changed its run "
            "directory, so the job executed nothing"
        )
    if last.raw_state in HELD_FOR_ITS_EXIT and last.exit_code:
        cause += f" with exit code {last.exit_code}, for which Slurm holds its job {last.job_id}"
    if run.state is RunState.FAILED:
        return f"attempt {last.attempt} ended{cause}, and nothing was decided since", None, _FAILED
    return f"attempt {last.attempt} ended{cause}, and the next is to be sent", run.next_at, _DAEMON


def _runs(last: AttemptView, now: datetime) -> str:
    where = f" on {', '.join(last.nodes)}" if last.nodes else ""
    since = ""
    if last.started_at is not None:
        ran = format_duration((now - last.started_at).total_seconds())
        since = f" since {last.started_at:{_TIME}} UTC, for {ran}"
    return f"it runs{since}, as job {last.job_id}{where}"


def _sweep(run: RunView) -> str:
    return (
        f"see it: hpcflow sweep status {shell_word(run.parent_sweep)}"
        if run.parent_sweep
        else _RESUME
    )


def _refusal(records: Sequence[JournalRecord]) -> str | None:
    refused = _last(records, lambda each: isinstance(each, Refused))
    return refused.reason if isinstance(refused, Refused) else None


def _refused_since(records: Sequence[JournalRecord], last: AttemptView | None) -> str | None:
    """Why the scheduler would not take the attempt that should have come after ``last``."""
    refused = _last(records, lambda each: isinstance(each, Refused))
    if not isinstance(refused, Refused) or refused.retryable:
        return None
    return refused.reason if last is None or refused.attempt > last.attempt else None


def _last(
    records: Sequence[JournalRecord], is_it: Callable[[JournalRecord], bool]
) -> JournalRecord | None:
    return next((each for each in reversed(records) if is_it(each)), None)
