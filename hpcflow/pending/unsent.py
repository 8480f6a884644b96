"""Explain why a run has no pending job: hpcflow waits, or the run is running or over. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from hpcflow.errors import shell_word
from hpcflow.history import RunHistory
from hpcflow.model import lost_journal, purged
from hpcflow.model.next_action import HELD, OVER_BUDGET, RESTORE, STOP, WAIT
from hpcflow.model.state import HELD_FOR_ITS_EXIT, UNTRUSTED_EXIT_CODE, RunState
from hpcflow.model.units import format_duration
from hpcflow.model.views import AttemptView, RunView

_TIME: Final = "%Y-%m-%d %H:%M:%S"
_RESUME: Final = "submit it now: hpcflow resume {run}"
_FIND_CAUSE: Final = "see why: hpcflow history {run}; then continue: hpcflow resume {run}"
_CRASHED: Final = "see its log: hpcflow logs {run}; correct the program, then: hpcflow resume {run}"
_FAILED: Final = "see why: hpcflow logs {run}; a daemon would resubmit it: hpcflow daemon status"
#: A rule of :mod:`hpcflow.requeue.policy`: stop a program that crashes at start.
_SAME_CRASH: Final = "same_crash"
_TO_BE_SUBMITTED: Final = (RunState.CREATED, RunState.WAITING, RunState.FAILED)
_DAEMON: Final = "a daemon submits it; see whether one runs: hpcflow daemon status; or " + _RESUME


@dataclass(frozen=True)
class Unsent:
    """A run without a pending job.

    Attributes:
        words: its state, and why.
        until: when the wait ends; None if no time is known.
        to_try: what to type.
    """

    words: str
    until: datetime | None
    to_try: tuple[str, ...]


def explain_unsent(
    run: RunView,
    last: AttemptView | None,
    history: RunHistory,
    now: datetime,
    *,
    is_journal_lost: bool = False,
    is_purged: bool = False,
    no_room: tuple[str, str] | None = None,
    has_snapshot: bool = False,
) -> Unsent:
    """Explain why the run has no pending job.

    Args:
        last: its last attempt.
        history: empty if its journal is missing.
        is_journal_lost: whether it has no journal.
        is_purged: whether its run directory is gone, although its scratch is mounted.
        no_room: why a hard budget does not allow its next attempt now, and what to do.
        has_snapshot: whether it executes a snapshot of its code, not the corrected program.
    """
    words, until, advice = _explained(run, last, history, no_room, now, is_purged=is_purged)
    if has_snapshot and advice == _CRASHED:
        advice += " --set code=snapshot"
    if is_journal_lost and run.state in _TO_BE_SUBMITTED and run.next_action != HELD:
        words = f"it was stopped ({lost_journal.RULE}): {lost_journal.WHY}"
        advice = lost_journal.ADVICE
    return Unsent(
        words, until, (advice.replace("{run}", shell_word(run.run_id)),) if advice else ()
    )


def waits_for_budget(run: RunView) -> bool:
    """Return whether the last decision was to wait for a hard budget."""
    return (run.next_action, run.next_rule) == (WAIT, OVER_BUDGET)


def _explained(
    run: RunView,
    last: AttemptView | None,
    history: RunHistory,
    no_room: tuple[str, str] | None,
    now: datetime,
    *,
    is_purged: bool,
) -> tuple[str, datetime | None, str]:
    if run.state in (RunState.QUEUED, RunState.RUNNING) and last and history.is_cancelled:
        words = f"cancelled, but its job {last.job_id} has not ended yet"
        return words, None, "if it does not end soon: hpcflow cancel {run}"
    if run.state is RunState.RUNNING and last is not None:
        return _runs(last, now), None, "follow it: hpcflow logs --follow {run}"
    if run.state is RunState.SUBMITTING:
        words = "an attempt is being submitted, or its submission was killed before Slurm answered"
        return words, None, "look for its job, and continue: hpcflow resume {run}"
    if run.state is RunState.COMPLETED:
        return "it is completed", None, "see its results: hpcflow show {run}"
    if run.state is RunState.CANCELLED:
        return "it was cancelled", None, "continue it anyway: hpcflow resume {run}"
    if waits_for_budget(run):
        if no_room is None:
            return "it waited for a budget, which allows it now", None, _DAEMON
        return f"it waits: {no_room[0]}", None, no_room[1]
    return _waits(run, last, history, is_purged=is_purged)


def _waits(
    run: RunView, last: AttemptView | None, history: RunHistory, *, is_purged: bool
) -> tuple[str, datetime | None, str]:
    action, rule, why = run.next_action, run.next_rule, run.next_why or ""
    if action == HELD:
        held = history.hold
        if held is not None and held.why is not None:
            look = "see what it would execute: hpcflow restore {run}; then: "
            advice = f"{look}hpcflow resume {{run}}, or: hpcflow cancel {{run}}"
            return f"it is held: {held.why}", None, advice
        by = f" by {held.by} on {held.at:{_TIME}}" if held is not None else ""
        return f"it is held{by}", None, "to continue: hpcflow release {run}"
    if (action, rule) == (STOP, purged.RULE):
        return f"it was stopped ({rule}): {purged.WHY}", None, purged.ADVICE
    if action == STOP:
        advice = _CRASHED if rule == _SAME_CRASH else _FIND_CAUSE
        return f"it was stopped ({rule}): {why}", None, advice
    if rule == "delayed":
        why = history.refused.reason if history.refused is not None else why
        return f"Slurm did not accept it: {why}", run.next_at, _RESUME
    if rule == "trial":
        return f"its sweep submits it ({rule}): {why}", None, _sweep(run)
    if action == WAIT:
        return f"hpcflow waits before it submits a job ({rule}): {why}", run.next_at, _RESUME
    if action == RESTORE:
        words = f"hpcflow first restores it from its mirror ({rule}): {why}"
        return words, run.next_at, "restore it now: hpcflow restore {run}"
    if is_purged:
        words = f"{purged.GONE}; hpcflow submits no job until it is restored"
        return words, None, "if it was mirrored: hpcflow restore {run}"
    if refusal := _refused_since(history, last):
        return (
            f"Slurm refused it: {refusal}",
            None,
            "correct it, then: hpcflow resume {run} --set …",
        )
    if last is None:
        return "no job was submitted yet", None, _DAEMON
    cause = f" as {last.cause.value}" if last.cause else ""
    if last.exit_code == UNTRUSTED_EXIT_CODE:
        cause += (
            f" with exit code {UNTRUSTED_EXIT_CODE}: other users could have changed its run "
            "directory, so the job executed nothing"
        )
    if last.raw_state in HELD_FOR_ITS_EXIT and last.exit_code:
        cause += (
            f" with exit code {last.exit_code}, and Slurm holds its job {last.job_id} because of it"
        )
    if run.state is RunState.FAILED:
        return f"attempt {last.attempt} ended{cause}; hpcflow decided nothing since", None, _FAILED
    return (
        f"attempt {last.attempt} ended{cause}; the next is not submitted yet",
        run.next_at,
        _DAEMON,
    )


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


def _refused_since(history: RunHistory, last: AttemptView | None) -> str | None:
    """Return why the scheduler refused the attempt after ``last``; None if it did not."""
    refused = history.refused
    if refused is None or refused.retryable:
        return None
    return refused.reason if last is None or refused.attempt > last.attempt else None
