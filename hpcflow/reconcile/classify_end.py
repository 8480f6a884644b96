"""Say what is new about an attempt, from the scheduler's answer. Pure.

=======================================  ==========================================================
what is known                            records
=======================================  ==========================================================
the queue or accounting shows the job    ``observed``, if anything is new; ``ended`` too, if its raw
                                         state is an end
it is in neither, and the queue has      ``ended`` as the queue showed it
shown its end
it is in neither, and the job itself     ``ended`` with the exit code that the job recorded
reported its exit
it is in neither, and reported nothing   ``observed`` as MISSING; ``ended`` as vanished when one
                                         login node has missed it in all its looks for
                                         :data:`VANISHED_AFTER_S`; or for :data:`LISTED_AFTER_S` if
                                         accounting lists it as alive
accounting was not queried, or does not  none: absence from the queue is not an end
answer
=======================================  ==========================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

from hpcflow.model.journal import Ended, JournalRecord, Observed, Stall, Submitted
from hpcflow.model.state import MISSING, AttemptState, Cause, cause_of_end
from hpcflow.model.views import AttemptView
from hpcflow.schedulers.base import JobInfo

#: slurmctld sends its records to slurmdbd in batches, and both restart. A job that both do not know
#: for three minutes, although they answer, has vanished.
VANISHED_AFTER_S: Final = 180.0

#: A job that accounting lists as pending or running, but the queue does not, was usually left out
#: by squeue; else the record was never closed. To wait costs an hour, a wrong end a second job.
LISTED_AFTER_S: Final = 3600.0

#: The most that the time between two looks counts, so that a clock that jumps cannot end a job: it
#: vanishes after three looks at least. Only looks of one login node are compared: intervals between
#: clocks of two hosts mean nothing.
LOOK_COUNTS_S: Final = VANISHED_AFTER_S / 2

#: Rounds that are jobs run on another node each time. Then the looks of all nodes count together,
#: over a time much longer than clocks of one cluster differ: munge refuses five minutes.
_VANISHED_FOR_ALL: Final = timedelta(hours=3)
_LOOKS_OF_ALL: Final = 6

#: Slurm's state of a job that ends within the grace time of its preemption follows from its exit
#: code alone, and a program that gets TERM while it starts fails. The end of the grace time becomes
#: the job's end time: a job that ends after that, before slurmctld checks time limits, is TIMEOUT
#: with any exit code (job_complete() in job_mgr.c of Slurm 22.05).
_MAY_BE_PREEMPTION: Final = frozenset({Cause.FAILED, Cause.CHECKPOINTED, Cause.TIMEOUT})

#: Slurm's causes of a job whose script ended at the last moment.
_MAY_BE_COMPLETED: Final = frozenset({Cause.PREEMPTED, Cause.TIMEOUT})

#: From the moment of a preemption to the end that it caused, the grace time included.
LEFT_WITHIN: Final = timedelta(hours=1)

_UNKNOWN: Final = "neither the queue nor accounting knows this job"
_LISTED: Final = "the queue does not know this job, which accounting lists as pending or running"

#: Slurm's reasons of a job that only waits for its turn.
_NOT_YET: Final = frozenset({None, "", "None", "Priority", "Resources"})


@dataclass(frozen=True)
class News:
    """What is new about an attempt: an observation, or that another job has it; an end; or both."""

    seen: Observed | Submitted | None = None
    ended: Ended | None = None

    @property
    def records(self) -> list[JournalRecord]:
        """The journal records to append."""
        return [each for each in (self.seen, self.ended) if each is not None]


def classify(
    attempt: AttemptView,
    job: JobInfo | None,
    *,
    cancel_requested: bool = False,
    first_notice: str | None = None,
    stall: Stall | None = None,
    has_finished: bool = False,
    launch_failed: bool = False,
    seen_ended: Observed | None = None,
    memory_when_killed: str | None = None,
    missed: Sequence[Observed] = (),
    last_sign: datetime | None = None,
    host: str | None = None,
    is_listed: bool = False,
    now: datetime,
) -> News:
    """Return what follows from an answer.

    Args:
        attempt: the attempt so far; it has a job id and has not ended.
        job: from the queue or accounting; None if both answered, but the queue does not know the
            job, and accounting not its end.
        cancel_requested: whether the run is cancelled. Then every end but a completion counts as
            cancelled, also of a job that found the request when it started, or failed on TERM.
        first_notice: signal of the first notice that the job reported. Slurm calls a job that saves
            and exits within the grace time of its preemption FAILED; only a TERM before any USR2
            shows the preemption.
        stall: the last act about its lack of progress. A job that was cancelled for it, or exited
            on the notice, has stalled, unless Slurm has its own reason.
        has_finished: whether its program reported that it finished. If it hung after that and was
            cancelled, it has completed: another attempt would have nothing to do. So has a job
            whose script then ended, in any state.
        launch_failed: whether Slurm cancelled it because its node could not start the script.
        seen_ended: the record of its end from the queue, if it was not classified then.
        memory_when_killed: what it used, if it was killed with nearly all of its memory in use.
            Without cgroups, Slurm does not report that a job ran out of memory.
        missed: the MISSING records since the job was last seen.
        last_sign: time of the file that the job last wrote. A job that writes has not vanished.
        host: the login node that looks; ``now`` is by its clock.
        is_listed: whether accounting lists the job as pending or running.
    """
    if job is None:
        news = _judge_absence(attempt, seen_ended, missed, last_sign, host, is_listed, now)
    else:
        news = _judge_answer(attempt, job, launch_failed, now)
    if news.ended is None:
        return news
    ended = _refine(
        news.ended, attempt, cancel_requested, first_notice, stall, has_finished, memory_when_killed
    )
    return replace(news, ended=ended)


#: Act about a stall -> the causes that hide it.
_HIDE_STALL: Final = {
    "notice": frozenset({Cause.CHECKPOINTED}),
    "cancel": frozenset({Cause.CHECKPOINTED, Cause.CANCELLED, Cause.FAILED, Cause.VANISHED}),
}


def _refine(
    ended: Ended,
    attempt: AttemptView,
    cancel_requested: bool,
    first_notice: str | None,
    stall: Stall | None,
    has_finished: bool,
    memory_when_killed: str | None,
) -> Ended:
    """Replace the cause if hpcflow knows more than Slurm."""
    if has_finished and attempt.exit_code == 0 and ended.cause in _MAY_BE_COMPLETED:
        # Both, because srun can exit with 0 if its tasks were killed.
        cause, why = Cause.COMPLETED, "it had reported that it finished, and its script exited 0"
    elif cancel_requested and ended.cause is not Cause.COMPLETED:
        cause, why = Cause.CANCELLED, "cancel was requested"
    elif stall is not None and stall.action == "cancel" and ended.cause in _HIDE_STALL["cancel"]:
        cause, why = Cause.STALLED, stall.why  # by a TERM from hpcflow
    elif ended.cause is Cause.CHECKPOINTED and first_notice == "TERM":
        cause, why = Cause.PREEMPTED, "it saved and exited on a TERM that hpcflow did not send"
    elif stall is not None and ended.cause in _HIDE_STALL.get(stall.action, ()):
        cause, why = Cause.STALLED, stall.why
    elif ended.cause is Cause.FAILED and memory_when_killed is not None:
        cause, why = Cause.OUT_OF_MEMORY, memory_when_killed
    else:
        return ended
    if cause is Cause.STALLED and has_finished:
        cause, why = Cause.COMPLETED, f"it had reported that it finished; {why}"
    return ended.model_copy(update={"cause": cause, "rule": f"{why}; {ended.rule}"})


def _judge_answer(attempt: AttemptView, job: JobInfo, launch_failed: bool, now: datetime) -> News:
    ended = None
    if launch_failed:  # Slurm may report the times of a restart that did not happen
        job = replace(job, submitted_at=attempt.submitted_at, started_at=attempt.started_at)
    seen = observed(attempt.attempt, job, now) if _is_news(attempt, job) else None
    if job.state is AttemptState.ENDED:
        exit_code = job.exit_code if job.exit_code is not None else attempt.exit_code
        if job.source == "accounting" and attempt.exit_code is not None:
            exit_code = attempt.exit_code  # sacct subtracts 128: 203 would be 75, "resubmit"
        cause, rule = cause_of_end(job.raw_state, exit_code), f"{job.source} says {job.raw_state}"
        if job.is_held_for_its_exit:
            rule = f"{rule}: Slurm holds it for its exit code"
        if cause in _MAY_BE_PREEMPTION and _was_leaving(job):
            cause, rule = Cause.PREEMPTED, f"{rule}, and that it was being preempted"
        if launch_failed:
            cause, rule = Cause.LAUNCH_FAILED, f"{rule}: its node could not start the script"
        ended = Ended(
            at=now,
            attempt=attempt.attempt,
            cause=cause,
            raw_state=job.raw_state,
            exit_code=exit_code,
            ended_at=job.ended_at,
            rule=rule,
        )
    return News(seen, ended)


def _was_leaving(job: JobInfo) -> bool:
    """Return whether it ended in the grace time of a preemption; Slurm also keeps the time of one
    that it called off."""
    if job.preempted_at is None:
        return False
    return job.ended_at is None or abs(job.ended_at - job.preempted_at) <= LEFT_WITHIN


def _judge_absence(
    attempt: AttemptView,
    seen_ended: Observed | None,
    missed: Sequence[Observed],
    last_sign: datetime | None,
    host: str | None,
    is_listed: bool,
    now: datetime,
) -> News:
    if attempt.exit_code is not None:
        return News(ended=_ended_unseen(attempt, now, "the job's own exit event"))
    if seen_ended is not None:
        raw_state = seen_ended.raw_state
        ended = Ended(
            at=now,
            attempt=attempt.attempt,
            cause=cause_of_end(raw_state, seen_ended.exit_code),
            raw_state=raw_state,
            exit_code=seen_ended.exit_code,
            ended_at=seen_ended.ended_at,
            rule=f"the queue showed {raw_state} before it dropped the job",
        )
        return News(ended=ended)
    own = [each for each in missed if each.host == host]
    after_s = LISTED_AFTER_S if is_listed else VANISHED_AFTER_S
    if _silent_s(own, last_sign, now) >= after_s:
        return News(ended=_ended_unseen(attempt, now, f"missing for {after_s:g} s"))
    if _is_missed_by_all(missed, last_sign, now):
        rule = "missing for three hours in every check"
        return News(ended=_ended_unseen(attempt, now, rule))
    if own and 0 <= (now - own[-1].at).total_seconds() < LOOK_COUNTS_S:
        return News()
    missing = Observed(
        at=now,
        attempt=attempt.attempt,
        job_id=attempt.job_id or "",
        state=AttemptState.UNKNOWN,
        raw_state=MISSING,
        reason=_LISTED if is_listed else _UNKNOWN,
        last_sign=last_sign,
        host=host,
    )
    return News(missing)


def _is_missed_by_all(
    missed: Sequence[Observed], last_sign: datetime | None, now: datetime
) -> bool:
    """Return whether all looks, perhaps from several hosts, have missed the job for hours."""
    looks = [each for each in missed if each.last_sign == last_sign]
    return len(looks) >= _LOOKS_OF_ALL and now - looks[0].at >= _VANISHED_FOR_ALL


def _silent_s(missed: Sequence[Observed], last_sign: datetime | None, now: datetime) -> float:
    """Return for how long the job has been missing without writing, by the looks of one host.

    A change of its file's time shows that it has written; the time itself may be another host's.
    """
    silent_s = 0.0
    looks = [*((each.at, each.last_sign) for each in missed), (now, last_sign)]
    for (before, old_sign), (after, sign) in pairwise(looks):
        gap_s = min(max((after - before).total_seconds(), 0.0), LOOK_COUNTS_S)
        silent_s = silent_s + gap_s if sign == old_sign else 0.0
    return silent_s


def _ended_unseen(attempt: AttemptView, now: datetime, rule: str) -> Ended:
    cause = cause_of_end("", attempt.exit_code)
    return Ended(
        at=now,
        attempt=attempt.attempt,
        cause=cause,
        raw_state=MISSING if cause is Cause.VANISHED else "",
        exit_code=attempt.exit_code,
        ended_at=attempt.ended_at or now,
        rule=rule,
    )


def observed(number: int, job: JobInfo, now: datetime) -> Observed:
    return Observed(
        at=now,
        attempt=number,
        job_id=job.job_id,
        state=job.state,
        raw_state=job.raw_state,
        reason=job.reason,
        nodes=list(job.nodes) or None,
        submitted_at=job.submitted_at,
        begins_at=job.begins_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
        preempted_at=job.preempted_at,
        exit_code=job.exit_code,
        signal=job.signal,
        source=job.source,
    )


def is_as_known(attempt: AttemptView, job: JobInfo) -> bool:
    """Return whether an answer has nothing new, as most have.

    It has if the job itself reported more than the scheduler shows: its start or exit.
    """
    return (
        job.state is attempt.state
        and job.state is not AttemptState.ENDED
        and not _is_news(attempt, job)
    )


def _is_news(attempt: AttemptView, seen: JobInfo) -> bool:
    return (
        seen.raw_state != attempt.raw_state
        or (seen.state is AttemptState.QUEUED and _why(seen.reason) != _why(attempt.reason))
        or (bool(seen.nodes) and list(seen.nodes) != attempt.nodes)
        or (seen.submitted_at is not None and seen.submitted_at != attempt.submitted_at)
        or (seen.started_at is not None and seen.started_at != attempt.started_at)
        or (seen.ended_at is not None and seen.ended_at != attempt.ended_at)
    )


def _why(reason: str | None) -> str:
    """Return the reason of a wait; reasons that change with every look count as one."""
    return "" if reason in _NOT_YET else str(reason)
