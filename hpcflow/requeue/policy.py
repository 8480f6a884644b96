"""Decide what follows the end of an attempt: facts, policy and time -> decision. Pure.

There is no clock, file or database, and no chance: the jitter of a wait follows from the run's id.
:data:`RULES` has the rules in the order in which they are tried; the first that applies decides,
and its name is journaled. docs/states.md shows them by example.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from hpcflow.clock import CONFIRMED_AFTER
from hpcflow.model import lost_journal, purged
from hpcflow.model.retry import Retry
from hpcflow.model.state import Cause

#: Longer than a submission takes from creating a run to its first intent.
NEW_FOR: Final = timedelta(minutes=5)
#: A daemon that was down for a holiday resubmits its runs; a first daemon leaves older ones alone.
FORGOTTEN_AFTER: Final = timedelta(days=14)
#: Times further in the future come from a wrong clock and delay nothing.
CLOCKS_DIFFER: Final = timedelta(hours=2)
#: More doublings exceed any `backoff_max`, and finally overflow.
_MOST_DOUBLINGS: Final = 40
#: A failure within this time of the start, before the first train step, is a crash: with torch on a
#: busy file system, imports take a minute.
CRASHES_WITHIN: Final = timedelta(minutes=2)
#: How much more memory the next attempt requests after out of memory.
MEMORY_FACTOR: Final = 1.5


class Action(str, Enum):
    NONE = "none"  # an attempt is not over, or the run is
    WAIT = "wait"  # until ``not_before``, or for an event
    RESTORE = "restore"  # fetch what only its mirror has
    RESUBMIT = "resubmit"
    STOP = "stop"  # failed, until a user resumes it
    CANCEL = "cancel"  # the run was cancelled, but its job is not over


class Stage(str, Enum):
    """The state of an attempt, as far as the rules need it."""

    OPEN = "open"  # in doubt, pending or running
    OVER = "over"
    VOID = "void"  # never became a job


@dataclass(frozen=True)
class AttemptFacts:
    """The facts of one attempt.

    Attributes:
        cause: why it ended; None unless it is over.
        ended_at: when it ended, or was given up.
        has_run: whether a node ever executed it.
        checkpoint: highest train step of its complete checkpoints; None for none.
        mem_mb: memory requested on each node, if any.
        is_ending: Slurm is ending its job, or the job has reported its end.
        crash: digest of the log's end, equal for two that failed alike; only for an attempt that
            failed within :data:`CRASHES_WITHIN`, before its first train step.
    """

    number: int
    stage: Stage
    cause: Cause | None = None
    ended_at: datetime | None = None
    has_run: bool = True
    checkpoint: int | None = None
    mem_mb: int | None = None
    is_ending: bool = False
    crash: str | None = None


@dataclass(frozen=True)
class Facts:
    """The facts of a run.

    Attributes:
        attempts: by number.
        counted_from: number of the first attempt after the last `resume` or `release`; earlier
            attempts do not count against the budgets.
        extends: the completed attempt that the user has extended, if any.
        is_trial: its sweep decides when it is first submitted.
        is_held: the last request holds the run.
        was_stopped: a rule has stopped it, and no `resume` or `release` came since.
        is_attended: a daemon has decided about its last end before, or the user has made a request
            since.
        timed_out_at: when a daemon first found, by the clock alone, that its time is up; None if
            an attempt was submitted or a request made since.
        put_off_at: when a submission was last deferred or withdrawn, if none was accepted since.
        delayed_until: when to retry a deferred submission (a limit is full, Slurm is down).
        mem_max_mb: memory of a node of its partition.
        is_journal_lost: it has no journal, so the state of its jobs is unknown.
        is_purged: its run directory is gone, although its scratch is mounted.
        is_mirrored: it has a mirror.
        over_budget: which hard budget has no room for the next attempt, if any.
        only_mirrored: train step of its newest checkpoint, if that is gone from scratch and the
            mirror was not searched since the last attempt ended.
    """

    run_id: str
    created_at: datetime
    attempts: Sequence[AttemptFacts] = ()
    counted_from: int = 1
    extends: int | None = None
    is_trial: bool = False
    is_held: bool = False
    is_cancelled: bool = False
    was_stopped: bool = False
    is_attended: bool = False
    timed_out_at: datetime | None = None
    put_off_at: datetime | None = None
    delayed_until: datetime | None = None
    mem_max_mb: int | None = None
    is_journal_lost: bool = False
    is_purged: bool = False
    is_mirrored: bool = False
    over_budget: str | None = None
    only_mirrored: int | None = None

    @property
    def executed(self) -> list[AttemptFacts]:
        """Return the attempts that became jobs, oldest first."""
        return [attempt for attempt in self.attempts if attempt.stage is not Stage.VOID]

    @property
    def last(self) -> AttemptFacts | None:
        return self.executed[-1] if self.executed else None

    @property
    def counted(self) -> list[AttemptFacts]:
        """Return the executed attempts that count against the budgets."""
        return [each for each in self.executed if each.number >= self.counted_from]


@dataclass(frozen=True)
class Decision:
    """What to do, and why.

    Attributes:
        rule: name of the rule, for the journal.
        why: the facts behind it, for people.
        not_before: with WAIT, when to decide again; None if only an event can change it.
        mem_mb: with RESUBMIT, memory to request instead.
    """

    action: Action
    rule: str
    why: str
    not_before: datetime | None = None
    mem_mb: int | None = None


#: The rule that stops a run without new checkpoints.
NO_PROGRESS: Final = "no_progress"
#: The rule that stops a run whose program crashes at its start.
SAME_CRASH: Final = "same_crash"

#: Cause -> the budget that it is charged to. Other causes cost nothing: what an admin does to a job
#: says nothing about the run.
BUDGETS: Final[dict[Cause, str]] = {
    Cause.CHECKPOINTED: "timeouts",
    Cause.TIMEOUT: "timeouts",
    Cause.PREEMPTED: "preemptions",
    Cause.NODE_FAIL: "node_failures",
    Cause.LAUNCH_FAILED: "node_failures",
    Cause.VANISHED: "node_failures",
    Cause.FAILED: "failures",
    Cause.STALLED: "stalls",
    Cause.OUT_OF_MEMORY: "out_of_memory",
}

#: Causes without a failure: the run is resubmitted at once.
_AT_ONCE: Final = frozenset({Cause.CHECKPOINTED, Cause.TIMEOUT, Cause.PREEMPTED, Cause.REQUEUED})


def decide(facts: Facts, policy: Retry, now: datetime) -> Decision:
    """Return what to do with a run now; equal arguments give an equal decision."""
    for rule in RULES:
        decision = rule(facts, policy, now)
        if decision is not None:
            return decision
    raise AssertionError("the last rule has an answer for everything")


def after_preemption(facts: Facts, policy: Retry, now: datetime) -> Decision:
    """Return the decision if the running attempt were preempted now."""
    last = facts.last
    if last is None or last.stage is not Stage.OPEN:
        return decide(facts, policy, now)
    ended = replace(last, stage=Stage.OVER, cause=Cause.PREEMPTED, ended_at=now)
    attempts = [ended if each is last else each for each in facts.attempts]
    return decide(replace(facts, attempts=attempts), policy, now)


def _cancel(facts: Facts, _: Retry, __: datetime) -> Decision | None:
    """Cancel the jobs; `hpcflow cancel` may have been killed before it did."""
    last = facts.last
    if not facts.is_cancelled or last is None or last.stage is not Stage.OPEN or last.is_ending:
        return None
    why = f"the run was cancelled, but attempt {last.number} is not over"
    return Decision(Action.CANCEL, "cancel", why)


def _under_way(facts: Facts, _: Retry, __: datetime) -> Decision | None:
    last = facts.last
    if last is not None and last.stage is Stage.OPEN:
        return Decision(Action.NONE, "under_way", f"attempt {last.number} is not over")
    return None


def _completed(facts: Facts, _: Retry, __: datetime) -> Decision | None:
    last = facts.last
    if last is not None and last.cause is Cause.COMPLETED and last.number != facts.extends:
        return Decision(Action.NONE, "completed", f"attempt {last.number} completed")
    return None


def _new(facts: Facts, _: Retry, now: datetime) -> Decision | None:
    """Wait for the process that created the run; it may still be submitting it."""
    until = facts.created_at + NEW_FOR
    if facts.attempts or now >= until or until - now > CLOCKS_DIFFER:
        return None
    return Decision(Action.WAIT, "new", "it was created just now", until)


def _forgotten(facts: Facts, _: Retry, now: datetime) -> Decision | None:
    """Do not resubmit a run that ended long before a daemon first saw it."""
    last = facts.last
    if facts.is_attended:
        return None
    if last is not None and (last.number < facts.counted_from or last.ended_at is None):
        return None
    # The latest one: a clock that was far behind may have written the others.
    moments = (facts.put_off_at, last.ended_at if last else None, facts.created_at)
    since = max(moment for moment in moments if moment is not None)
    if now - since < FORGOTTEN_AFTER:
        return None
    what = "Slurm last refused it" if facts.put_off_at else "it ended" if last else "it was created"
    return _time_is_up(facts, "forgotten", f"{what} on {since:%Y-%m-%d}", now)


def _cancelled(facts: Facts, _: Retry, __: datetime) -> Decision | None:
    if facts.is_cancelled:
        return Decision(Action.NONE, "cancelled", "hpcflow cancel was requested")
    last = facts.last
    ended = (Cause.CANCELLED, Cause.PRUNED)
    if last is not None and last.cause in ended and last.number >= facts.counted_from:
        return Decision(Action.NONE, "cancelled", f"attempt {last.number} was cancelled by hand")
    return None


def _stopped(facts: Facts, _: Retry, __: datetime) -> Decision | None:
    if facts.was_stopped:
        return Decision(Action.NONE, "stopped", "it was stopped and not resumed since")
    return None


def _held(facts: Facts, _: Retry, __: datetime) -> Decision | None:
    if facts.is_held:
        return Decision(Action.WAIT, "held", "hpcflow hold was requested")
    return None


def _lost_journal(facts: Facts, _: Retry, __: datetime) -> Decision | None:
    """Stop a run without a journal: it looks as if it never had a job, but may be completed."""
    if not facts.is_journal_lost:
        return None
    advice = lost_journal.ADVICE.format(run=facts.run_id)
    return Decision(Action.STOP, lost_journal.RULE, f"{lost_journal.WHY}; {advice}")


def _trial(facts: Facts, _: Retry, __: datetime) -> Decision | None:
    """Leave the first submission to the sweep, which may have been stopped or ended since."""
    if not facts.is_trial or facts.last is not None:
        return None
    return Decision(Action.WAIT, "trial", "its sweep submits it, or ends it")


def _deadline(facts: Facts, policy: Retry, now: datetime) -> Decision | None:
    if policy.deadline_s is None:
        return None
    deadline = facts.created_at + timedelta(seconds=policy.deadline_s)
    if now < deadline:
        return None
    return _time_is_up(facts, "deadline", f"its deadline was {deadline:%Y-%m-%d %H:%M} UTC", now)


def _same_crash(facts: Facts, _: Retry, __: datetime) -> Decision | None:
    """Stop a program that crashed twice at its start in the same way: it would do so again.

    The node is not the reason: see ``Evidence.own`` in :mod:`hpcflow.requeue.nodes`.
    """
    ran = [each for each in facts.counted if each.has_run][-2:]
    if len(ran) < 2 or ran[0].crash is None or ran[0].crash != ran[1].crash:
        return None
    why = (
        f"attempts {ran[0].number} and {ran[1].number} failed soon after their start, before the "
        "first train step, with the same last lines"
    )
    return Decision(Action.STOP, SAME_CRASH, why)


def _no_progress(facts: Facts, policy: Retry, _: datetime) -> Decision | None:
    if facts.is_purged:  # the events about its checkpoints may be gone, too
        return None
    # An admin's requeue is no lack of progress, but a checkpoint made before it counts.
    ran = [
        each
        for each in facts.counted
        if each.has_run and (each.cause is not Cause.REQUEUED or _is_further(facts, each))
    ]
    latest = ran[-policy.without_checkpoint :]
    if len(latest) < policy.without_checkpoint:
        return None
    before = _best(each for each in facts.executed if each.number < latest[0].number)
    if any(_best([each]) > before for each in latest):
        return None
    which = "the last attempt" if len(latest) == 1 else f"{len(latest)} attempts in a row"
    return Decision(Action.STOP, NO_PROGRESS, f"{which} made no new checkpoint")


def _budget(facts: Facts, policy: Retry, _: datetime) -> Decision | None:
    last = facts.last
    if last is None or last.cause is None or last.number < facts.counted_from:
        return None
    name = BUDGETS.get(last.cause)
    if name is None:
        return None
    budget: int | None = getattr(policy, name)
    used = sum(each.cause is not None and BUDGETS.get(each.cause) == name for each in facts.counted)
    if budget is None or used <= budget:
        return None
    often = "once" if used == 1 else f"{used} times"
    return Decision(
        Action.STOP, "budget", f"ended {often} as {last.cause.value}, and {name} is {budget}"
    )


def _memory(facts: Facts, _: Retry, __: datetime) -> Decision | None:
    """Stop if a node has no more memory: the run would end the same way."""
    last = facts.last
    if last is None or last.cause is not Cause.OUT_OF_MEMORY or last.number < facts.counted_from:
        return None
    if last.mem_mb is not None and _more_memory(facts) is None:
        return Decision(
            Action.STOP, "memory", f"{last.mem_mb} MB were not enough, and a node has no more"
        )
    return None


def _delayed(facts: Facts, _: Retry, now: datetime) -> Decision | None:
    if facts.delayed_until is None or now >= facts.delayed_until:
        return None
    if facts.delayed_until - now > CLOCKS_DIFFER:
        return None
    return Decision(Action.WAIT, "delayed", "Slurm did not accept it", facts.delayed_until)


def _backoff(facts: Facts, policy: Retry, now: datetime) -> Decision | None:
    last = facts.last
    if last is None or last.cause in _AT_ONCE or last.number < facts.counted_from:
        return None
    row = _failures_in_a_row(facts)
    wait_s = min(policy.backoff_s * 2.0 ** min(row - 1, _MOST_DOUBLINGS), policy.backoff_max_s)
    wait_s *= 1 + _chance(facts.run_id, last.number) / 4
    ended_at = last.ended_at or now
    until = ended_at + timedelta(seconds=math.ceil(wait_s))
    if now >= until or ended_at - now > CLOCKS_DIFFER:
        return None
    why = "1 failure" if row == 1 else f"{row} failures in a row"
    return Decision(Action.WAIT, "backoff", why, until)


def _purged(facts: Facts, _: Retry, __: datetime) -> Decision | None:
    """Restore the run directory, which the next job needs; without a mirror, only its user can."""
    if not facts.is_purged:
        return None
    if facts.is_mirrored:
        return Decision(Action.RESTORE, purged.RULE, purged.GONE)
    advice = purged.ADVICE.format(run=facts.run_id)
    return Decision(Action.STOP, purged.RULE, f"{purged.WHY}; {advice}")


def _over_budget(facts: Facts, _: Retry, __: datetime) -> Decision | None:
    """Wait without a time: each round checks again, because jobs end and people raise budgets."""
    if facts.over_budget is None:
        return None
    return Decision(Action.WAIT, "over_budget", facts.over_budget)


def _only_mirrored(facts: Facts, _: Retry, __: datetime) -> Decision | None:
    step = facts.only_mirrored
    if step is None:
        return None
    return Decision(Action.RESTORE, "only_mirrored", f"checkpoint {step} is gone from scratch")


def _resubmit(facts: Facts, _: Retry, __: datetime) -> Decision:
    last = facts.last
    if last is None:
        return Decision(Action.RESUBMIT, "first", "no job was submitted yet")
    why = f"attempt {last.number} ended as {last.cause.value if last.cause else 'unknown'}"
    more_mb = _more_memory(facts) if last.cause is Cause.OUT_OF_MEMORY else None
    mem_mb = more_mb or last.mem_mb
    return Decision(Action.RESUBMIT, "go_on", why, mem_mb=mem_mb)


#: Tried in this order.
RULES: Final[tuple[Callable[[Facts, Retry, datetime], Decision | None], ...]] = (
    _cancel,
    _under_way,
    _completed,
    _new,
    _cancelled,
    _stopped,
    _held,
    _lost_journal,
    _trial,
    _forgotten,
    _deadline,
    _same_crash,
    _no_progress,
    _budget,
    _memory,
    _delayed,
    _backoff,
    _purged,
    _over_budget,
    _only_mirrored,
    _resubmit,
)


def _time_is_up(facts: Facts, rule: str, why: str, now: datetime) -> Decision:
    """Stop a run for good if an earlier round found the same; otherwise wait."""
    since = facts.timed_out_at
    if since is None or since > now:  # the clock of an earlier round was ahead
        since = now
    if now - since < CONFIRMED_AFTER:
        return Decision(Action.WAIT, rule, why, since + CONFIRMED_AFTER)
    return Decision(Action.STOP, rule, why)


def _best(attempts: Iterable[AttemptFacts]) -> int:
    """Return the highest train step of a checkpoint of these attempts; -1 for none."""
    return max((each.checkpoint for each in attempts if each.checkpoint is not None), default=-1)


def _is_further(facts: Facts, attempt: AttemptFacts) -> bool:
    """Return whether an attempt made a checkpoint further than all before."""
    before = _best(each for each in facts.executed if each.number < attempt.number)
    return _best([attempt]) > before


def _failures_in_a_row(facts: Facts) -> int:
    """Count the failures in a row, back to a preemption, a time limit or a new checkpoint."""
    row = 0
    for attempt in reversed(facts.counted):
        if attempt.cause in _AT_ONCE:
            break
        row += 1
        if _is_further(facts, attempt):
            break
    return max(1, row)


def _more_memory(facts: Facts) -> int | None:
    last = facts.last
    if last is None or last.mem_mb is None:
        return None
    wanted = int(last.mem_mb * MEMORY_FACTOR)
    most = facts.mem_max_mb if facts.mem_max_mb is not None else wanted
    return min(wanted, most) if most > last.mem_mb else None


def _chance(run_id: str, number: int) -> float:
    """Return a jitter from 0 to 1 that depends on run and attempt only."""
    digest = hashlib.sha256(f"{run_id}:{number}".encode()).digest()
    return int.from_bytes(digest[:4], "big") / 2**32
