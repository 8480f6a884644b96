"""What an answer of the scheduler, or its silence, means for an attempt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from docs.generator.ends import ENDS, End
from hpcflow.model.journal import Observed, Stall
from hpcflow.model.state import (
    MISSING,
    SLURM_STATES,
    AttemptState,
    Cause,
    attempt_state,
    normalize_raw_state,
)
from hpcflow.model.views import AttemptView
from hpcflow.reconcile.classify_end import LOOK_COUNTS_S, VANISHED_AFTER_S, News, classify
from hpcflow.schedulers.base import JobInfo

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)
HOST = "login1"

RUNNING = AttemptView(
    run_id="digits-20260301-abcdefgh",
    attempt=1,
    job_name="digits-20260301-abcdefgh:1",
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


def _missed(ago_s: float, sign: datetime | None = None, by: str | None = HOST) -> Observed:
    return Observed(
        at=NOW - timedelta(seconds=ago_s),
        attempt=1,
        job_id="1",
        state=AttemptState.UNKNOWN,
        raw_state=MISSING,
        last_sign=sign,
        host=by,
    )


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


def judged(
    job: JobInfo | None,
    *,
    missed_s_ago: Sequence[float] = (),
    signs: Sequence[datetime | None] = (),
    by: str | None = HOST,
) -> News:
    """``signs``: the time of its file at each look, the present one of login1 included; ``by``: who
    looked before."""
    *before, sign = signs or [None] * (len(missed_s_ago) + 1)
    missed = [_missed(*each, by) for each in zip(missed_s_ago, before, strict=True)]
    return classify(RUNNING, job, missed=missed, last_sign=sign, host=HOST, now=NOW)


def is_only_seen(news: News) -> bool:
    return isinstance(news.seen, Observed) and news.ended is None


def test_nothing_new_is_not_written_again() -> None:
    assert judged(answer("RUNNING")) == News()


@pytest.mark.parametrize("end", ENDS, ids=str)
def test_the_table(end: End) -> None:
    """What docs/states.md shows."""
    told: dict[str, Any] = {
        "first_notice": end.first_notice,
        "stall": None if end.stall is None else _stall(end.stall),
        "has_finished": end.has_finished,
        "cancel_requested": end.cancel_requested,
        "launch_failed": end.launch_failed,
        "memory_when_killed": end.memory_when_killed,
    }
    if end.raw_state is None:
        missed = [_missed(VANISHED_AFTER_S), _missed(LOOK_COUNTS_S)]
        attempt = replace(RUNNING, exit_code=end.exit_code)
        news = classify(attempt, None, missed=missed, host=HOST, now=NOW, **told)
        assert news.seen is None
    else:
        job = answer(end.raw_state, exit_code=end.exit_code)
        if end.preempted is not None:
            job = replace(job, preempted_at=NOW - end.preempted)
        attempt = replace(RUNNING, exit_code=end.own_word)
        news = classify(attempt, job, now=NOW, **told)
        assert isinstance(news.seen, Observed)
        assert news.seen.raw_state == end.raw_state
    ended = news.ended
    assert ended is not None
    assert (ended.cause, ended.exit_code, ended.ended_at) == (end.cause, end.exit_code, NOW)
    if end.stall is not None:
        assert ("no progress for" in ended.rule) == (end.cause is Cause.STALLED or end.has_finished)


def test_every_cause_and_every_word_for_an_end_stands_in_the_table() -> None:
    assert {end.cause for end in ENDS} == {*Cause} - {Cause.REQUEUED, Cause.PRUNED}
    words = {normalize_raw_state(end.raw_state) for end in ENDS if end.raw_state is not None}
    ends = {word for word, state in SLURM_STATES.items() if state is AttemptState.ENDED}
    assert words == ends


@pytest.mark.parametrize("raw_state", ["COMPLETING", "SUSPENDED", "PENDING", "BRAND_NEW_WORD"])
def test_what_is_not_an_end_never_ends_an_attempt(raw_state: str) -> None:
    assert is_only_seen(judged(answer(raw_state)))


def test_absence_is_first_noted_and_then_waited_for() -> None:
    seen = judged(None).seen
    assert isinstance(seen, Observed)
    assert (seen.state, seen.raw_state) == (AttemptState.UNKNOWN, MISSING)
    assert judged(None, missed_s_ago=[LOOK_COUNTS_S - 1]) == News()
    assert is_only_seen(judged(None, missed_s_ago=[LOOK_COUNTS_S]))
    assert judged(None, missed_s_ago=[VANISHED_AFTER_S - 1, LOOK_COUNTS_S - 1]) == News()


@pytest.mark.parametrize("ago_s", [86_400, -86_400], ids=["ahead", "back"])
def test_a_clock_that_jumps_makes_nothing_vanish(ago_s: float) -> None:
    """Only what lies between two looks counts, and of that no more than half of what it takes."""
    assert is_only_seen(judged(None, missed_s_ago=[ago_s]))
    assert judged(None, missed_s_ago=[ago_s, 10]) == News()


@pytest.mark.parametrize("by", [None, "login2"])
def test_looks_of_others_and_of_nobody_knows_whom_do_not_count(by: str | None) -> None:
    looks = [VANISHED_AFTER_S, LOOK_COUNTS_S, 1]
    seen = judged(None, missed_s_ago=looks, by=by).seen
    assert isinstance(seen, Observed)
    assert seen.host == "login1"
    assert judged(None, missed_s_ago=looks).ended is not None


@pytest.mark.parametrize("hours_ahead", [-24, 0, 24])
def test_whoever_writes_has_not_vanished(hours_ahead: float) -> None:
    """Whatever the time is for the machine that its file has its time from."""
    looks = [3 * LOOK_COUNTS_S, 2 * LOOK_COUNTS_S, LOOK_COUNTS_S]
    wrote = [NOW + timedelta(hours=hours_ahead, seconds=30 * each) for each in range(4)]
    assert is_only_seen(judged(None, missed_s_ago=looks, signs=wrote))
    late = [wrote[0], wrote[1], wrote[2], wrote[2]]
    assert is_only_seen(judged(None, missed_s_ago=looks, signs=late))
    silent = [wrote[0], wrote[1], wrote[1], wrote[1]]
    assert judged(None, missed_s_ago=looks, signs=silent).ended is not None


def test_hpcflow_cancel_wins_over_every_other_word_for_a_stall() -> None:
    for end in ENDS:
        if end.stall is None or end.raw_state is None:
            continue
        job = answer(end.raw_state, exit_code=end.exit_code)
        stall = _stall(end.stall)
        ended = classify(RUNNING, job, cancel_requested=True, stall=stall, now=NOW).ended
        assert ended is not None
        assert ended.cause in (Cause.CANCELLED, Cause.COMPLETED)
