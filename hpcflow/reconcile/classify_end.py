"""What the scheduler's answer, or its silence, says about an attempt. Pure.

=======================================  ==========================================================
what is known                            what follows
=======================================  ==========================================================
the queue or accounting shows the job    ``observed``, if anything is new; ``ended`` too, if its raw
                                         state is an end
it is in neither, and the queue has      ``ended`` as the queue said
shown its end
it is in neither, the job itself         ``ended`` with the exit code that the job wrote down
reported its exit
it is in neither, and said nothing       ``observed`` as MISSING; ``ended`` as vanished only when it
                                         is still missing :data:`VANISHED_AFTER_S` later, and was in
                                         between, for one and the same login node;
                                         :data:`LISTED_AFTER_S` where accounting lists it as alive
accounting was not asked or is silent    nothing: absence from the queue is not an end
=======================================  ==========================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

from hpcflow.model.journal import Ended, JournalRecord, Observed, Stall
from hpcflow.model.state import MISSING, AttemptState, Cause, cause_of_end
from hpcflow.model.views import AttemptView
from hpcflow.schedulers.base import JobInfo

#: slurmctld sends its records to slurmdbd in batches, and both restart; after three minutes of
#: both answering and neither knowing the job it is gone.
VANISHED_AFTER_S: Final = 180.0

#: What accounting lists as waiting or running, and the queue does not know, is more often a job
#: that squeue left out than a record that nobody closed. This costs an hour, that a second job.
LISTED_AFTER_S: Final = 3600.0

#: From one look to the next no more than this counts: whatever the clock says, or jumps by, nothing
#: vanishes that was not looked for three times, with real time in between. Only looks of one login
#: node are compared: intervals between clocks of two hosts mean nothing.
LOOK_COUNTS_S: Final = VANISHED_AFTER_S / 2

#: Rounds that are jobs come from another node each time. Then the looks of all count together, for
#: a time that no clocks of one cluster are apart: munge refuses five minutes.
_VANISHED_FOR_ALL: Final = timedelta(hours=3)
_LOOKS_OF_ALL: Final = 6

#: What Slurm calls a job that ends within the grace time of its preemption follows from its exit
#: code alone: a program that is told to leave while it is still starting dies of that. And the end
#: of its grace time has become that of the job: one that ends later, before slurmctld looks at time
#: limits, is called TIMEOUT, whatever its exit code (job_complete() in job_mgr.c of Slurm 22.05).
_MAY_BE_PREEMPTION: Final = frozenset({Cause.FAILED, Cause.CHECKPOINTED, Cause.TIMEOUT})

#: What Slurm calls a job whose script came to its end in the last moment.
_MAY_BE_COMPLETED: Final = frozenset({Cause.PREEMPTED, Cause.TIMEOUT})

#: From the moment of a preemption to the end that it caused, the grace time included.
LEFT_WITHIN: Final = timedelta(hours=1)

_UNKNOWN: Final = "neither the queue nor accounting knows this job"
_LISTED: Final = "the queue does not know this job, which accounting lists as waiting or running"

#: Slurm's words for a job that only waits for its turn.
_NOT_YET: Final = frozenset({None, "", "None", "Priority", "Resources"})


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
) -> list[JournalRecord]:
    """The journal records that follow from an answer.

    Args:
        attempt: what is known so far; it has a job id and has not ended.
        job: what the queue or accounting says; None when both answered, and the queue does not know
            it, nor accounting its end.
        cancel_requested: whether the run is cancelled; then every end but a completion counts as
            cancelled, also of a job that found the request when it started, or failed on TERM.
        first_notice: the first signal that the job says it was told to leave by. Slurm calls a
            job that saves and leaves within the grace time of its preemption FAILED; the TERM that
            comes before any USR2 is how it can be known.
        stall: what was last said about its lack of progress. A job that was cancelled for that, or
            was told to leave and did, has stalled, unless Slurm has a reason of its own.
        has_finished: whether its program has said that it finished. What hangs after that, in its
            teardown, and was ended for it, has completed: sent again, it would find nothing to do.
            So has one whose script then came to its end, whatever Slurm calls it.
        launch_failed: whether Slurm cancelled it because its node could not start the script.
        seen_ended: the record of its end as the queue showed it, of a job that was not judged then.
        memory_when_killed: what it used, if it was killed with nearly all of its memory in use.
            Without cgroups, Slurm does not report that a job ran out of memory.
        missed: the records that say so, since the job was last seen.
        last_sign: the time of the file that the job last wrote. A job that writes has not vanished.
        host: the login node that looks, and whose clock ``now`` is.
        is_listed: whether accounting says that it waits or runs.
    """
    if job is None:
        records = _judge_absence(attempt, seen_ended, missed, last_sign, host, is_listed, now)
    else:
        records = _judge_answer(attempt, job, launch_failed, now)
    return [
        _refine(
            record, attempt, cancel_requested, first_notice, stall, has_finished, memory_when_killed
        )
        if isinstance(record, Ended)
        else record
        for record in records
    ]


#: What was done about a stall -> the causes that hide it then.
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
    """The cause that Slurm does not know."""
    if has_finished and attempt.exit_code == 0 and ended.cause in _MAY_BE_COMPLETED:
        # Both: srun can exit with 0 where its tasks were killed.
        cause, why = Cause.COMPLETED, "it had said that it finished, and its script ended with 0"
    elif cancel_requested and ended.cause is not Cause.COMPLETED:
        cause, why = Cause.CANCELLED, "cancel was requested"
    elif stall is not None and stall.action == "cancel" and ended.cause in _HIDE_STALL["cancel"]:
        cause, why = Cause.STALLED, stall.why  # with a TERM that was ours
    elif ended.cause is Cause.CHECKPOINTED and first_notice == "TERM":
        cause, why = Cause.PREEMPTED, "it saved and exited on a TERM that hpcflow did not send"
    elif stall is not None and ended.cause in _HIDE_STALL.get(stall.action, ()):
        cause, why = Cause.STALLED, stall.why
    elif ended.cause is Cause.FAILED and memory_when_killed is not None:
        cause, why = Cause.OUT_OF_MEMORY, memory_when_killed
    else:
        return ended
    if cause is Cause.STALLED and has_finished:
        cause, why = Cause.COMPLETED, f"it had said that it finished; {why}"
    return ended.model_copy(update={"cause": cause, "rule": f"{why}; {ended.rule}"})


def _judge_answer(
    attempt: AttemptView, job: JobInfo, launch_failed: bool, now: datetime
) -> list[JournalRecord]:
    records: list[JournalRecord] = []
    if launch_failed:  # Slurm may report the times of a restart that did not happen
        job = replace(job, submitted_at=attempt.submitted_at, started_at=attempt.started_at)
    if _is_news(attempt, job):
        records.append(observed(attempt.attempt, job, now))
    if job.state is AttemptState.ENDED:
        exit_code = job.exit_code if job.exit_code is not None else attempt.exit_code
        if job.source == "accounting" and attempt.exit_code is not None:
            exit_code = attempt.exit_code  # sacct takes 128 off: 203 would be 75, "send me again"
        cause, rule = cause_of_end(job.raw_state, exit_code), f"{job.source} says {job.raw_state}"
        if job.is_held_for_its_exit:
            rule = f"{rule}: Slurm holds it for its exit code"
        if cause in _MAY_BE_PREEMPTION and _was_leaving(job):
            cause, rule = Cause.PREEMPTED, f"{rule}, and that it was being preempted"
        if launch_failed:
            cause, rule = Cause.LAUNCH_FAILED, f"{rule}: its node could not start the script"
        records.append(
            Ended(
                at=now,
                attempt=attempt.attempt,
                cause=cause,
                raw_state=job.raw_state,
                exit_code=exit_code,
                ended_at=job.ended_at,
                rule=rule,
            )
        )
    return records


def _was_leaving(job: JobInfo) -> bool:
    """Whether it ended in the grace time of a preemption; Slurm keeps the time of one that was
    called off."""
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
) -> list[JournalRecord]:
    if attempt.exit_code is not None:
        return [_ended_unseen(attempt, now, "the job's own last word")]
    if seen_ended is not None:
        raw_state = seen_ended.raw_state
        return [
            Ended(
                at=now,
                attempt=attempt.attempt,
                cause=cause_of_end(raw_state, seen_ended.exit_code),
                raw_state=raw_state,
                exit_code=seen_ended.exit_code,
                ended_at=seen_ended.ended_at,
                rule=f"the queue said {raw_state} before it forgot the job",
            )
        ]
    own = [each for each in missed if each.host == host]
    after_s = LISTED_AFTER_S if is_listed else VANISHED_AFTER_S
    if _silent_s(own, last_sign, now) >= after_s:
        return [_ended_unseen(attempt, now, f"missing for {after_s:g} s")]
    if _is_missed_by_all(missed, last_sign, now):
        return [_ended_unseen(attempt, now, "missing for three hours in every check")]
    if own and 0 <= (now - own[-1].at).total_seconds() < LOOK_COUNTS_S:
        return []
    return [
        Observed(
            at=now,
            attempt=attempt.attempt,
            job_id=attempt.job_id or "",
            state=AttemptState.UNKNOWN,
            raw_state=MISSING,
            reason=_LISTED if is_listed else _UNKNOWN,
            last_sign=last_sign,
            host=host,
        )
    ]


def _is_missed_by_all(
    missed: Sequence[Observed], last_sign: datetime | None, now: datetime
) -> bool:
    """Whether nobody has seen it for hours, where each look may come from another machine."""
    looks = [each for each in missed if each.last_sign == last_sign]
    return len(looks) >= _LOOKS_OF_ALL and now - looks[0].at >= _VANISHED_FOR_ALL


def _silent_s(missed: Sequence[Observed], last_sign: datetime | None, now: datetime) -> float:
    """For how long it has been missing, and has written nothing, as far as looks show it.

    That it has written is seen by the change of its file's time. What time that is does not matter:
    it may be another machine's.
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
    """What the scheduler shows of the job of attempt ``number``, as a record."""
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
    """Whether nothing follows from an answer, as from nearly all of them.

    Where the job itself has said more than the scheduler shows (it has begun or left), that is
    looked into.
    """
    return (
        job.state is attempt.state
        and job.state is not AttemptState.ENDED
        and not _is_news(attempt, job)
    )


def _is_news(attempt: AttemptView, seen: JobInfo) -> bool:
    """Whether anything that the ledger keeps would change."""
    return (
        seen.raw_state != attempt.raw_state
        or (seen.state is AttemptState.QUEUED and _why(seen.reason) != _why(attempt.reason))
        or (bool(seen.nodes) and list(seen.nodes) != attempt.nodes)
        or (seen.submitted_at is not None and seen.submitted_at != attempt.submitted_at)
        or (seen.started_at is not None and seen.started_at != attempt.started_at)
        or (seen.ended_at is not None and seen.ended_at != attempt.ended_at)
    )


def _why(reason: str | None) -> str:
    """The reason of a wait. Those that only say "not yet" change with every look, and are one."""
    return "" if reason in _NOT_YET else str(reason)
