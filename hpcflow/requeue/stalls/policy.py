"""Decide whether a running attempt has stalled. Pure.

The *patience* of an attempt is the longer of ``retry.stall_after`` and what its own rhythm allows.
An attempt without progress for longer gets the notice to save and exit. After another
``checkpoint.notice`` without progress, its job is cancelled. Progress in between withdraws the
notice, unless the program has seen it and is exiting. Progress also withdraws a cancel that never
reached Slurm. A cancel that may still be in progress has to be waited for; otherwise the end would
be attributed to a user.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from hpcflow.ledger.rhythm import Rhythm
from hpcflow.model.units import counted, format_duration

#: A validation or save may take this many times the longest time seen.
LONGEST_FACTOR: Final = 3
#: A single long gap allows at most this many times ``stall_after``: it may have been a suspension,
#: a corrected clock, or a hang that a user ended.
LONGEST_MOST: Final = 8
#: Pulling a container, staging data and compiling take longer than a train step.
START_UP_FACTOR: Final = 2
#: An attempt cancelled for a stall may only have been slow: each one doubles the patience.
MOST_DOUBLINGS: Final = 4
#: A job that still runs this long after its cancel, plus the notice, was not cancelled: four times
#: Slurm's default KillWait.
CANCEL_TAKES_S: Final = 120.0


class Act(str, Enum):
    NONE = "none"
    NOTICE = "notice"
    CANCEL = "cancel"
    WITHDRAW = "withdraw"


@dataclass(frozen=True)
class Terms:
    """The settings of the run about stalls.

    Attributes:
        after_s: ``retry.stall_after``; None for never.
        factor: ``retry.stall_factor``.
        log: ``retry.stall_log``.
        notice_s: ``checkpoint.notice``: time to save and exit.
    """

    after_s: int | None
    factor: int
    log: bool
    notice_s: int


@dataclass(frozen=True)
class Given:
    """The last act about the attempt's silence, if not withdrawn.

    Attributes:
        silent_s: how long it had been silent then.
        longest_s: the longest silence before this one.
    """

    act: Act
    silent_s: float
    longest_s: float = 0.0


@dataclass(frozen=True)
class Watched:
    """A running attempt.

    Attributes:
        silent_s: how long it has been watched without a sign of progress.
        has_begun: there was a progress event since its job started, or its log has grown.
        rhythm: of this attempt and those before.
        log_gap_s: the longest time between two growths of its log, if that is watched.
        stalls: number of earlier attempts that stalled since the last `resume` or `release`.
        is_leaving: its program has reported the notice and is exiting.
        given: the last act about its silence.
        has_moved: whether there was a sign of progress since that act.
        cancelled_s: how long it has been watched since its cancel was last tried.
    """

    silent_s: float
    has_begun: bool = True
    rhythm: Rhythm = field(default_factory=Rhythm)
    log_gap_s: float = 0.0
    stalls: int = 0
    is_leaving: bool = False
    given: Given | None = None
    has_moved: bool = False
    cancelled_s: float = 0.0


@dataclass(frozen=True)
class Verdict:
    """What to do about a stall, by which rule, and why."""

    act: Act
    rule: str
    why: str


@dataclass(frozen=True)
class Patience:
    seconds: float
    rule: str
    why: str


def judge(watched: Watched, terms: Terms) -> Verdict | None:
    """Return what to do about an attempt now; None for nothing."""
    given = watched.given
    if given is None:
        return None if watched.is_leaving else _suspect(watched, terms)
    if watched.has_moved and not watched.is_leaving:
        may_end_yet = watched.cancelled_s < terms.notice_s + CANCEL_TAKES_S
        if given.act is Act.CANCEL and may_end_yet:
            return None
        return Verdict(Act.WITHDRAW, "moved", "it shows progress again")
    if given.act is Act.CANCEL and not watched.has_moved:
        return Verdict(Act.CANCEL, "silent", "its job still runs after the cancel")
    # If the watch file was lost since, silent_s began at 0 again, and it is watched for as long.
    since_s = watched.silent_s if watched.has_moved else watched.silent_s - given.silent_s
    if since_s < (_leaving_s(given, terms) if watched.is_leaving else terms.notice_s):
        return None
    done = "began to exit" if watched.is_leaving else "did not exit"
    silent = format_duration(watched.silent_s)
    return Verdict(Act.CANCEL, "silent", f"no progress for {silent}; it got the notice and {done}")


def patience(watched: Watched, terms: Terms) -> Patience | None:
    """Return how long it may be silent; None if it is not watched or has never reported."""
    if terms.after_s is None:
        return None
    if watched.has_begun:
        found = _train_step_patience(watched, terms.after_s, terms.factor)
    elif watched.rhythm.starts or terms.log:
        found = _start_up_patience(watched, terms.after_s)
    else:
        return None
    return max(found, key=lambda each: each.seconds)


def _train_step_patience(watched: Watched, after_s: int, factor: int) -> list[Patience]:
    rhythm = watched.rhythm
    longest_s = max(rhythm.longest_s, rhythm.start_up_s, watched.log_gap_s)
    return [
        _doubled(Patience(after_s, "floor", f"stall_after is {format_duration(after_s)}"), watched),
        _doubled(
            Patience(
                factor * rhythm.median_s,
                "rhythm",
                f"{factor} times the {_seconds(rhythm.median_s)} between two events",
            ),
            watched,
        ),
        _once(longest_s, "longest", "it once took", after_s),
    ]


def _start_up_patience(watched: Watched, after_s: int) -> list[Patience]:
    why = f"{START_UP_FACTOR} times stall_after, {format_duration(after_s)}, until it first reports"
    return [
        _doubled(Patience(START_UP_FACTOR * after_s, "start_up", why), watched),
        _once(watched.rhythm.start_up_s, "start_up", "its start once took", after_s),
    ]


def _doubled(allowed: Patience, watched: Watched) -> Patience:
    """Double the patience for each earlier stall."""
    if not watched.stalls:
        return allowed
    times = 2 ** min(watched.stalls, MOST_DOUBLINGS)
    before = counted(watched.stalls, "time")
    why = f"{allowed.why}; {times} times that, because it stalled {before} before"
    return Patience(times * allowed.seconds, allowed.rule, why)


def _once(took_s: float, rule: str, what: str, after_s: int) -> Patience:
    """Allow LONGEST_FACTOR times the longest gap seen, limited by LONGEST_MOST."""
    why = f"{LONGEST_FACTOR} times the {_seconds(took_s)} that {what}"
    most_s = LONGEST_MOST * after_s
    if LONGEST_FACTOR * took_s <= most_s:
        return Patience(LONGEST_FACTOR * took_s, rule, why)
    return Patience(most_s, rule, f"{why}, but at most {LONGEST_MOST} times stall_after")


def _leaving_s(given: Given, terms: Terms) -> float:
    """Return how long it may take to save and exit: the notice, or as long as a save may take."""
    longest_s = min(LONGEST_FACTOR * given.longest_s, terms.after_s or 0)
    return max(terms.notice_s, longest_s)


def _suspect(watched: Watched, terms: Terms) -> Verdict | None:
    allowed = patience(watched, terms)
    if allowed is None or watched.silent_s < allowed.seconds:
        return None
    silent = format_duration(watched.silent_s)
    return Verdict(
        Act.NOTICE, allowed.rule, f"no progress for {silent} ({allowed.why}); notice given"
    )


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}s" if seconds < 10 else format_duration(seconds)
