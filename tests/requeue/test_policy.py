"""decide(): the table of docs/states.md, and what must be true of every table."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docs.generator.decisions import EXAMPLES, NOW, Example
from hpcflow.model.retry import Retry
from hpcflow.model.state import Cause
from hpcflow.requeue.policy import BUDGETS, RULES, Action, AttemptFacts, Facts, Stage, decide


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.told)
def test_the_table(example: Example) -> None:
    decision = decide(example.facts, example.policy, NOW)
    assert (decision.action, decision.rule) == (example.action, example.rule), decision.why
    assert example.mem_mb in (None, decision.mem_mb)
    if decision.rule in ("backoff", "delayed"):
        assert decision.not_before is not None
        assert decision.not_before > NOW


def test_every_rule_and_every_cause_stands_in_the_table() -> None:
    rules = {rule.__name__.lstrip("_") for rule in RULES} - {"resubmit"}
    assert {example.rule for example in EXAMPLES} == rules | {"first", "go_on"}
    seen = {attempt.cause for example in EXAMPLES for attempt in example.facts.attempts}
    assert seen == {*Cause, None}
    others = {Cause.COMPLETED, Cause.CANCELLED, Cause.PRUNED, Cause.REQUEUED}
    assert {*BUDGETS} | others == {*Cause}


def _failed(number: int, *, checkpoint: int | None = None) -> AttemptFacts:
    return AttemptFacts(number, Stage.OVER, Cause.FAILED, NOW, checkpoint=checkpoint)


def _wait_s(facts: Facts, policy: Retry) -> float:
    decision = decide(facts, policy, NOW)
    assert decision.action is Action.WAIT
    assert decision.not_before is not None
    return (decision.not_before - NOW).total_seconds()


def test_each_failure_in_a_row_doubles_the_wait_up_to_the_longest() -> None:
    policy = Retry.model_validate({"failures": 99, "without_checkpoint": 99, "backoff_max": "10m"})
    for count, base in enumerate([30, 60, 120, 240, 480, 600, 600], start=1):
        attempts = [_failed(number) for number in range(1, count + 1)]
        assert base <= _wait_s(Facts("r", NOW, attempts), policy) <= base * 1.25


@pytest.mark.parametrize(
    ("retry", "once", "twice"),
    [
        ({"failures": 9}, "1 failure", "2 failures in a row"),
        ({"failures": 0}, "ended once as failed", "ended 2 times as failed"),
        ({"without_checkpoint": 1}, "the last attempt made no new checkpoint", None),
        ({"without_checkpoint": 2}, None, "2 attempts in a row made no new checkpoint"),
    ],
)
def test_people_are_told_why_in_their_own_language(
    retry: dict[str, int], once: str | None, twice: str | None
) -> None:
    for why, attempts in ((once, [_failed(1)]), (twice, [_failed(1), _failed(2)])):
        if why is not None:
            facts = Facts("r", NOW, attempts)
            assert decide(facts, Retry.model_validate(retry), NOW).why.startswith(why)


def test_progress_ends_the_row() -> None:
    policy = Retry.model_validate({"failures": 99})
    attempts = [_failed(1), _failed(2), _failed(3, checkpoint=100)]
    assert 30 <= _wait_s(Facts("r", NOW, attempts), policy) < 40
    assert 60 <= _wait_s(Facts("r", NOW, [*attempts, _failed(4)]), policy) < 80


def test_runs_that_failed_together_come_back_apart() -> None:
    policy = Retry.model_validate({"backoff": "1h", "backoff_max": "1h"})
    waits = {_wait_s(Facts(f"run-{n}", NOW, [_failed(1)]), policy) for n in range(50)}
    assert len(waits) > 40


ATTEMPTS = st.builds(
    AttemptFacts,
    number=st.just(0),
    stage=st.just(Stage.OVER),
    cause=st.sampled_from(list(Cause)),
    ended_at=st.integers(0, 100_000).map(lambda s: NOW - timedelta(seconds=s)),
    has_run=st.booleans(),
    checkpoint=st.none() | st.integers(0, 10**6),
    mem_mb=st.none() | st.integers(1, 10**6),
)


@st.composite
def all_facts(draw: st.DrawFn) -> Facts:
    attempts = [
        replace(attempt, number=number)
        for number, attempt in enumerate(draw(st.lists(ATTEMPTS, max_size=12)), start=1)
    ]
    stage = draw(st.sampled_from(Stage))
    if attempts and stage is not Stage.OVER:
        attempts[-1] = replace(attempts[-1], stage=stage, cause=None)
    return Facts(
        run_id="r",
        created_at=NOW - timedelta(days=2),
        attempts=attempts,
        counted_from=draw(st.integers(1, 14)),
        is_held=draw(st.booleans()),
        is_cancelled=draw(st.booleans()),
        was_stopped=draw(st.booleans()),
        delayed_until=draw(st.none() | st.just(NOW + timedelta(minutes=3))),
        mem_max_mb=draw(st.none() | st.integers(1, 10**6)),
    )


@given(facts=all_facts())
def test_whatever_the_facts_there_is_one_decision_and_it_is_safe(facts: Facts) -> None:
    decision = decide(facts, Retry(), NOW)
    assert decision == decide(facts, Retry(), NOW)
    assert decision.why
    if any(each.stage is Stage.OPEN for each in facts.attempts):
        assert facts.last is not None
        ends = facts.is_cancelled and not facts.last.is_ending
        expected = Action.CANCEL if ends else Action.NONE
        assert decision.action is expected, "what is under way is never sent a second time"
    if facts.is_held or facts.is_cancelled or facts.was_stopped:
        assert decision.action is not Action.RESUBMIT
    if facts.last is not None and facts.last.cause is Cause.COMPLETED:
        assert decision.action is Action.NONE


@given(facts=all_facts())
def test_whoever_waits_for_a_time_is_decided_anew_when_it_has_come(facts: Facts) -> None:
    decision = decide(facts, Retry(), NOW)
    later = NOW
    for _ in range(3):
        if decision.not_before is None:
            break
        assert decision.not_before > later
        later = decision.not_before
        decision = decide(facts, Retry(), later)
    assert decision.not_before is None
