"""What an answer of the scheduler, or its silence, means for an attempt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from hpcflow.model.journal import Ended, Observed, Stall
from hpcflow.model.state import AttemptState, Cause, attempt_state
from hpcflow.model.views import AttemptView
from hpcflow.observe.judge import LOOK_COUNTS_S, MISSING, VANISHED_AFTER_S, judge
from hpcflow.schedulers.base import JobInfo

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)

RUNNING = AttemptView(
    run_id="digits-20260301-abcdefgh",
    attempt=1,
    job_name="hpcflow:digits-20260301-abcdefgh:1",
    job_id="17",
    state=AttemptState.RUNNING,
    raw_state="RUNNING",
    cause=None,
    reason=None,
    partition="gpu",
    nodes=["n1", "n2"],
    submitted_at=NOW - timedelta(minutes=9),
    started_at=NOW - timedelta(minutes=8),
    ended_at=None,
    exit_code=None,
    resume_from=None,
)


def answer(raw_state: str, *, exit_code: int | None = None) -> JobInfo:
    state = attempt_state(raw_state)
    return JobInfo(
        job_id="17",
        job_name=RUNNING.job_name,
        raw_state=raw_state,
        state=state,
        nodes=("n1", "n2"),
        exit_code=exit_code,
        submitted_at=RUNNING.submitted_at,
        started_at=RUNNING.started_at,
        ended_at=NOW if state is AttemptState.ENDED else None,
    )


def judged(
    job: JobInfo | None,
    attempt: AttemptView = RUNNING,
    *,
    missed_s_ago: Sequence[float] = (),
    signs: Sequence[datetime | None] = (),
    by: str | None = "login1",
) -> list[object]:
    """``signs``: the time of its file at each look, the present one of login1 included; ``by``: who
    looked before."""
    *before, sign = signs or [None] * (len(missed_s_ago) + 1)
    missed = [
        Observed(
            at=NOW - timedelta(seconds=ago_s),
            attempt=1,
            job_id="1",
            state=AttemptState.UNKNOWN,
            raw_state=MISSING,
            last_sign=old_sign,
            host=by,
        )
        for ago_s, old_sign in zip(missed_s_ago, before, strict=True)
    ]
    return list(judge(attempt, job, missed=missed, last_sign=sign, host="login1", now=NOW))


def test_nothing_new_is_not_written_again() -> None:
    assert judged(answer("RUNNING")) == []


@pytest.mark.parametrize(
    ("raw_state", "exit_code", "cause"),
    [
        ("COMPLETED", 0, Cause.COMPLETED),
        ("FAILED", 1, Cause.FAILED),
        ("FAILED", 75, Cause.CHECKPOINTED),
        ("PREEMPTED", 75, Cause.PREEMPTED),
        ("TIMEOUT", 0, Cause.TIMEOUT),
        ("DEADLINE", 0, Cause.TIMEOUT),
        ("NODE_FAIL", 0, Cause.NODE_FAIL),
        ("OUT_OF_MEMORY", 125, Cause.OUT_OF_MEMORY),
        ("CANCELLED by 1000", 0, Cause.CANCELLED),
        ("CANCELLED+", 0, Cause.CANCELLED),
    ],
)
def test_an_end_is_observed_and_has_a_cause(raw_state: str, exit_code: int, cause: Cause) -> None:
    seen, ended = judged(answer(raw_state, exit_code=exit_code))
    assert isinstance(seen, Observed)
    assert seen.raw_state == raw_state
    assert isinstance(ended, Ended)
    assert (ended.cause, ended.exit_code, ended.ended_at) == (cause, exit_code, NOW)


@pytest.mark.parametrize("raw_state", ["COMPLETING", "SUSPENDED", "PENDING", "BRAND_NEW_WORD"])
def test_what_is_not_an_end_never_ends_an_attempt(raw_state: str) -> None:
    (seen,) = judged(answer(raw_state))
    assert isinstance(seen, Observed)


def test_absence_is_first_noted_and_then_waited_for() -> None:
    (seen,) = judged(None)
    assert isinstance(seen, Observed)
    assert (seen.state, seen.raw_state) == (AttemptState.UNKNOWN, MISSING)
    assert judged(None, missed_s_ago=[LOOK_COUNTS_S - 1]) == []
    (again,) = judged(None, missed_s_ago=[LOOK_COUNTS_S])
    assert isinstance(again, Observed)
    assert judged(None, missed_s_ago=[VANISHED_AFTER_S - 1, LOOK_COUNTS_S - 1]) == []


def test_a_job_that_stays_missing_has_vanished() -> None:
    (ended,) = judged(None, missed_s_ago=[VANISHED_AFTER_S, LOOK_COUNTS_S])
    assert isinstance(ended, Ended)
    assert ended.cause is Cause.VANISHED


@pytest.mark.parametrize("ago_s", [86_400, -86_400], ids=["ahead", "back"])
def test_a_clock_that_jumps_makes_nothing_vanish(ago_s: float) -> None:
    """Only what lies between two looks counts, and of that no more than half of what it takes."""
    (seen,) = judged(None, missed_s_ago=[ago_s])
    assert isinstance(seen, Observed)
    assert judged(None, missed_s_ago=[ago_s, 10]) == []


@pytest.mark.parametrize("by", [None, "login2"])
def test_looks_of_others_and_of_nobody_knows_whom_do_not_count(by: str | None) -> None:
    looks = [VANISHED_AFTER_S, LOOK_COUNTS_S, 1]
    (seen,) = judged(None, missed_s_ago=looks, by=by)
    assert isinstance(seen, Observed)
    assert seen.host == "login1"
    assert isinstance(judged(None, missed_s_ago=looks)[0], Ended)


@pytest.mark.parametrize("hours_ahead", [-24, 0, 24])
def test_whoever_writes_has_not_vanished(hours_ahead: float) -> None:
    """Whatever the time is for the machine that its file has its time from."""
    looks = [3 * LOOK_COUNTS_S, 2 * LOOK_COUNTS_S, LOOK_COUNTS_S]
    wrote = [NOW + timedelta(hours=hours_ahead, seconds=30 * each) for each in range(4)]
    assert isinstance(judged(None, missed_s_ago=looks, signs=wrote)[0], Observed)
    late = [wrote[0], wrote[1], wrote[2], wrote[2]]
    assert isinstance(judged(None, missed_s_ago=looks, signs=late)[0], Observed)
    silent = [wrote[0], wrote[1], wrote[1], wrote[1]]
    assert isinstance(judged(None, missed_s_ago=looks, signs=silent)[0], Ended)


@pytest.mark.parametrize(
    ("exit_code", "cause"),
    [(0, Cause.COMPLETED), (1, Cause.FAILED), (75, Cause.CHECKPOINTED)],
)
def test_the_jobs_own_last_word_counts_when_slurm_forgot_it(exit_code: int, cause: Cause) -> None:
    (ended,) = judged(None, replace(RUNNING, exit_code=exit_code))
    assert isinstance(ended, Ended)
    assert ended.cause is cause


def test_after_a_wish_to_cancel_whatever_is_not_completed_is_cancelled() -> None:
    for raw_state in ("FAILED", "TIMEOUT", "PREEMPTED"):
        job = answer(raw_state, exit_code=143)
        records = judge(RUNNING, job, cancel_requested=True, now=NOW)
        assert isinstance(records[-1], Ended)
        assert records[-1].cause is Cause.CANCELLED
    done = judge(
        RUNNING,
        answer("COMPLETED", exit_code=0),
        cancel_requested=True,
        now=NOW,
    )
    assert isinstance(done[-1], Ended)
    assert done[-1].cause is Cause.COMPLETED


@pytest.mark.parametrize(
    ("raw_state", "exit_code", "cause"),
    [
        ("FAILED", 1, Cause.PREEMPTED),  # it was still starting, and TERM killed it
        ("FAILED", None, Cause.PREEMPTED),
        ("FAILED", 75, Cause.PREEMPTED),
        ("COMPLETED", 0, Cause.COMPLETED),
        ("CANCELLED", None, Cause.CANCELLED),
        ("OUT_OF_MEMORY", 125, Cause.OUT_OF_MEMORY),
    ],
)
def test_what_ends_while_it_is_preempted_has_not_failed(
    raw_state: str, exit_code: int | None, cause: Cause
) -> None:
    job = replace(answer(raw_state, exit_code=exit_code), preempted_at=NOW)
    records = judge(RUNNING, job, now=NOW)
    assert isinstance(records[-1], Ended)
    assert records[-1].cause is cause


def test_a_preemption_that_was_called_off_long_ago_explains_no_end() -> None:
    job = replace(answer("FAILED", exit_code=1), ended_at=NOW, preempted_at=NOW)
    long_ago = replace(job, preempted_at=NOW - timedelta(days=2))
    causes = [judge(RUNNING, each, now=NOW)[-1] for each in (job, long_ago)]
    assert [each.cause for each in causes if isinstance(each, Ended)] == [
        Cause.PREEMPTED,
        Cause.FAILED,
    ]


@pytest.mark.parametrize(
    ("first_notice", "cause"), [("TERM", Cause.PREEMPTED), ("USR2", Cause.CHECKPOINTED)]
)
def test_leaving_within_the_grace_time_is_a_preemption(first_notice: str, cause: Cause) -> None:
    job = answer("FAILED", exit_code=75)
    records = judge(RUNNING, job, first_notice=first_notice, now=NOW)
    assert isinstance(records[-1], Ended)
    assert records[-1].cause is cause


def _stall(action: str) -> Stall:
    return Stall.model_validate(
        {
            "at": NOW,
            "attempt": 1,
            "action": action,
            "rule": "floor",
            "why": "no progress for 31m 00s",
            "silent_s": 1860.0,
            "signs": 21,
            "longest_s": 60.0,
        }
    )


@pytest.mark.parametrize(
    ("action", "raw_state", "exit_code", "cause"),
    [
        ("cancel", "CANCELLED by 1000", None, Cause.STALLED),
        ("cancel", "FAILED", 143, Cause.STALLED),
        ("cancel", "COMPLETED", 0, Cause.COMPLETED),
        ("cancel", "PREEMPTED", None, Cause.PREEMPTED),
        ("cancel", "NODE_FAIL", None, Cause.NODE_FAIL),
        ("notice", "FAILED", 75, Cause.STALLED),
        ("notice", "FAILED", 1, Cause.FAILED),
        ("notice", "CANCELLED by 1000", None, Cause.CANCELLED),
        ("withdraw", "FAILED", 75, Cause.CHECKPOINTED),
        ("withdraw", "CANCELLED by 1000", None, Cause.CANCELLED),
    ],
)
def test_what_was_ended_for_a_stall_has_stalled_unless_slurm_had_a_reason(
    action: str, raw_state: str, exit_code: int | None, cause: Cause
) -> None:
    job = answer(raw_state, exit_code=exit_code)
    (ended,) = [
        each
        for each in judge(RUNNING, job, stall=_stall(action), now=NOW)
        if isinstance(each, Ended)
    ]
    assert ended.cause is cause
    assert ("no progress for" in ended.rule) == (cause is Cause.STALLED)
    (ended,) = [
        each
        for each in judge(RUNNING, job, cancel_requested=True, stall=_stall(action), now=NOW)
        if isinstance(each, Ended)
    ]
    assert ended.cause in (Cause.CANCELLED, Cause.COMPLETED), "hpcflow cancel wins"


def test_a_job_that_leaves_on_the_term_of_our_cancel_has_stalled() -> None:
    job = answer("FAILED", exit_code=75)
    said = judge(RUNNING, job, first_notice="TERM", stall=_stall("cancel"), now=NOW)
    assert isinstance(said[-1], Ended)
    assert said[-1].cause is Cause.STALLED


def test_a_stalled_job_that_preemption_made_leave_was_preempted() -> None:
    job = answer("FAILED", exit_code=75)
    said = judge(RUNNING, job, first_notice="TERM", stall=_stall("notice"), now=NOW)
    (ended,) = [each for each in said if isinstance(each, Ended)]
    assert ended.cause is Cause.PREEMPTED
