"""Which checkpoints stay: the rule as a table, each row a folder and what is left of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcflow.runtime.manifest import finite
from hpcflow.runtime.mirrored import MirrorState
from hpcflow.runtime.rule import COMPLETE, FOREIGN, TORN, Found, Rule, best, judge, parse_rule

LOSS: dict[str, Any] = {"metric": "loss", "is_more_better": False}
ACCURACY: dict[str, Any] = {"metric": "accuracy", "is_more_better": True}


def saved(train_step: int, **metrics: float) -> Found:
    return Found(Path("checkpoints"), train_step, metrics=finite(metrics))


def torn(train_step: int) -> Found:
    return Found(Path("checkpoints"), train_step, TORN, "model.pt is missing")


def foreign(train_step: int) -> Found:
    return Found(Path("checkpoints"), train_step, FOREIGN, "it has no manifest.json")


def noted(train_step: int) -> Found:
    return Found(Path("checkpoints"), train_step, stranger="KEEP")


@dataclass(frozen=True)
class Row:
    told: str
    found: list[Found]
    rule: Rule | None
    stay: list[int]
    held: Mapping[int, str] = field(default_factory=dict)
    mirror: MirrorState | None = None
    is_over: bool = True


def mirror(done: Iterable[int] = (), under_way: Iterable[int] = ()) -> MirrorState:
    return MirrorState(frozenset(done), frozenset(done), frozenset(under_way))


#: Losses that fall without end: each checkpoint was the best when it was made.
FALLING = [saved(step, loss=1 / step) for step in range(10, 110, 10)]


TABLE = [
    Row("there is none", [], Rule(1), []),
    Row("there is one", [saved(10)], Rule(1), [10]),
    Row("no rule, nothing goes", [saved(10), torn(20), saved(30)], None, [10, 20, 30]),
    Row("the last two", [saved(step) for step in (10, 20, 30)], Rule(2), [20, 30]),
    Row("more than there are", [saved(10), saved(20)], Rule(5), [10, 20]),
    Row(
        "the lowest loss stays, however old",
        [saved(10, loss=0.1), saved(20, loss=0.5), saved(30, loss=0.4), saved(40, loss=0.3)],
        Rule(1, 1, **LOSS),
        [10, 40],
    ),
    Row(
        "the two highest accuracies",
        [saved(10, accuracy=0.7), saved(20, accuracy=0.9), saved(30, accuracy=0.8), saved(40)],
        Rule(1, 2, **ACCURACY),
        [20, 30, 40],
    ),
    Row(
        "the best is among the last, and counts as both",
        [saved(10, loss=0.3), saved(20, loss=0.2), saved(30, loss=0.1)],
        Rule(1, 1, **LOSS),
        [30],
    ),
    Row(
        "while it trains the newest may get another value, and takes no place among the best",
        [saved(10, loss=0.4), saved(20, loss=0.2), saved(30, loss=0.3), saved(40, loss=0.1)],
        Rule(1, 2, **LOSS),
        [20, 30, 40],
        is_over=False,
    ),
    Row(
        "nor does a newest one that is torn",
        [saved(10, loss=0.3), saved(20, loss=0.2), torn(30)],
        Rule(1, 1, **LOSS),
        [10, 20],
        is_over=False,
    ),
    Row(
        "of equals the earliest, which was made closest to the evaluation",
        [saved(10, loss=0.2), saved(20, loss=0.2), saved(30, loss=0.4)],
        Rule(1, 1, **LOSS),
        [10, 30],
    ),
    Row(
        "equals are one of the best, not two",
        [saved(10, loss=0.2), saved(20, loss=0.2), saved(30, loss=0.3), saved(40, loss=0.4)],
        Rule(1, 2, **LOSS),
        [10, 30, 40],
    ),
    Row(
        "NaN is no value, nor is infinity, whichever way is better",
        [saved(10, loss=math.nan), saved(20, loss=-math.inf), saved(30, loss=0.5), saved(40)],
        Rule(1, 1, **LOSS),
        [30, 40],
    ),
    Row(
        "one without the metric is not among the best",
        [saved(10, accuracy=0.1), saved(20, loss=0.5), saved(30, loss=0.6)],
        Rule(1, 1, **LOSS),
        [20, 30],
    ),
    Row(
        "none has the metric: nobody knows which is the best, so all stay",
        [saved(10, accuracy=0.1), torn(20), saved(30, accuracy=0.2)],
        Rule(1, 1, **LOSS),
        [10, 20, 30],
    ),
    Row(
        "the first in every hundred, from a hundred on",
        [saved(step) for step in (40, 90, 130, 190, 310, 350, 400, 450)],
        Rule(1, every=100),
        [130, 310, 400, 450],
    ),
    Row(
        "all three together",
        [saved(step, loss=loss) for step, loss in ((90, 0.1), (110, 0.5), (150, 0.4), (160, 0.3))],
        Rule(1, 1, every=100, **LOSS),
        [90, 110, 160],
    ),
    Row("a torn one goes where a whole one stays", [saved(10), torn(20)], Rule(1), [10]),
    Row("also an older one", [torn(10), saved(20)], Rule(3), [20]),
    Row("a torn one is none of the last", [saved(10), saved(20), torn(30)], Rule(2), [10, 20]),
    Row("torn ones stay where no whole one is", [torn(10), torn(20)], Rule(1), [10, 20]),
    Row(
        "a torn one is no first of a hundred",
        [torn(110), saved(120), saved(130), saved(250)],
        Rule(1, every=100),
        [120, 250],
    ),
    Row("what hpcflow did not make stays, and counts as none", [foreign(30), saved(20), saved(10)],
        Rule(1), [20, 30]),
    Row("nothing goes for the sake of what hpcflow did not make", [foreign(30), torn(20)],
        Rule(1), [20, 30]),
    Row("one with a person's file in it stays", [noted(10), saved(20), saved(30)],
        Rule(1), [10, 30]),
    Row(
        "what an attempt resumes from stays",
        [saved(10), saved(20), saved(30), saved(40)],
        Rule(1),
        [20, 40],
        {20: "attempt 2 resumes from it"},
    ),
    Row(
        "what the mirror reads now, it can read to its end",
        [saved(10), saved(20), saved(30)],
        Rule(1),
        [10, 30],
        mirror=mirror(under_way=[10]),
    ),
    Row(
        "what is neither the best nor being mirrored goes: the mirror takes the newest",
        [saved(10, loss=0.1), saved(20, loss=0.5), saved(30, loss=0.4)],
        Rule(1, 1, **LOSS),
        [10, 30],
        mirror=mirror(),
    ),
    Row(
        "what was the best was due, and stays until the mirror has it",
        [saved(10, loss=0.5), saved(20, loss=0.4), saved(30, loss=0.3), saved(40, loss=0.6)],
        Rule(1, 1, **LOSS),
        [20, 30, 40],
        mirror=mirror(done=[10]),
    ),
    Row(
        "and no longer",
        [saved(10, loss=0.5), saved(20, loss=0.4), saved(30, loss=0.3), saved(40, loss=0.6)],
        Rule(1, 1, **LOSS),
        [30, 40],
        mirror=mirror(done=[10, 20]),
    ),
    Row(
        "a mirror that never comes along holds no more than the rule keeps, the newest of them",
        FALLING,
        Rule(2, 1, **LOSS),
        [60, 70, 80, 90, 100],
        mirror=mirror(),
    ),
    Row(
        "without a mirror nothing waits for it",
        FALLING,
        Rule(2, 1, **LOSS),
        [90, 100],
    ),
    Row(
        "a torn one goes, whatever a mirror says of it",
        [saved(10), torn(20), saved(30)],
        Rule(1),
        [30],
        mirror=mirror(under_way=[20]),
    ),
]  # fmt: skip


@pytest.mark.parametrize("row", TABLE, ids=[row.told for row in TABLE])
def test_what_stays(row: Row) -> None:
    reasons = judge(row.found, row.rule, row.held, row.mirror, is_over=row.is_over)
    assert sorted(reasons) == sorted(each.train_step for each in row.found)
    assert sorted(step for step, why in reasons.items() if why) == row.stay


def test_whoever_stays_is_told_why() -> None:
    found = [saved(90, loss=0.1), saved(110, loss=0.5), saved(150, loss=0.25), saved(160), noted(5)]
    rule = Rule(2, 2, every=100, **LOSS)
    assert judge(found, rule, {90: "attempt 2 resumes from it"}) == {
        160: ["newest"],
        150: ["last 2", "no. 2: loss 0.25"],
        110: ["every 100"],
        90: ["attempt 2 resumes from it", "best: loss 0.1"],
        5: ["it contains KEEP, which is not hpcflow's"],
    }


STEPS = st.integers(0, 500)
FOUND = st.lists(
    st.one_of(
        st.builds(lambda step, loss: saved(step, loss=loss), STEPS, st.floats(width=16)),
        st.builds(saved, STEPS),
        st.builds(torn, STEPS),
        st.builds(foreign, STEPS),
    ),
    max_size=30,
    unique_by=lambda each: each.train_step,
)
RULES = st.builds(
    Rule,
    st.integers(1, 5),
    st.integers(0, 3),
    st.just("loss"),
    st.booleans(),
    st.none() | st.integers(1, 200),
)


MIRRORS = st.builds(
    MirrorState,
    st.just(frozenset()),
    st.frozensets(STEPS, max_size=10),
    st.frozensets(STEPS, max_size=3),
)


@given(FOUND, RULES, MIRRORS)
def test_a_mirror_holds_what_it_reads_and_at_most_as_many_more_as_the_rule(
    found: list[Found], rule: Rule, mirror: MirrorState
) -> None:
    without = judge(found, rule)
    reasons = judge(found, rule, mirror=mirror)
    whole = {each.train_step for each in found if each.state == COMPLETE}
    assert all(reasons[train_step] for train_step in whole & mirror.under_way)
    more = {step for step, why in reasons.items() if why and not without[step]}
    assert len(more - mirror.under_way) <= rule.last + rule.best
    assert all(reasons[step] for step, why in without.items() if why)


@given(FOUND, RULES, st.floats(allow_nan=False))
def test_whatever_value_the_newest_gets_at_last_the_best_is_still_there(
    found: list[Found], rule: Rule, value: float
) -> None:
    newest = max((each.train_step for each in found if each.state == COMPLETE), default=None)
    last = [
        replace(each, metrics=finite({"loss": value})) if each.train_step == newest else each
        for each in found
    ]
    reasons = judge(found, rule, is_over=False)
    whole = [each for each in last if each.state == COMPLETE]
    assert all(reasons[each.train_step] for each in best(whole, rule))


@given(FOUND, RULES, st.dictionaries(STEPS, st.just("held"), max_size=3))
def test_whatever_is_asked_the_newest_whole_one_stays_and_judging_twice_changes_nothing(
    found: list[Found], rule: Rule, held: dict[int, str]
) -> None:
    reasons = judge(found, rule, held)
    left = [each for each in found if reasons[each.train_step]]
    whole = [each.train_step for each in found if each.state == COMPLETE]
    left_whole = [each.train_step for each in left if each.state == COMPLETE]
    assert max(left_whole, default=None) == max(whole, default=None)
    assert len(left_whole) >= min(rule.last, len(whole))
    assert all(each in left for each in found if each.state == FOREIGN)
    again = judge(left, rule, held)
    assert all(again.values()), "what stayed would go the next time"


def test_a_rule_is_read_as_it_was_written() -> None:
    text = '{"last": 3, "best": 2, "metric": "loss", "is_more_better": false, "every": 100}'
    assert parse_rule(text) == Rule(3, 2, "loss", False, 100)
    assert parse_rule('{"last": 1}') == Rule(1)


@pytest.mark.parametrize(
    "text",
    ["", "3", "[]", "{}", '{"last": 0}', '{"last": true}', '{"last": 1, "every": 0}',
     '{"last": 1, "best": 1}', '{"last": 1, "best": -1}', '{"last": 1, "first": 1}'],
)  # fmt: skip
def test_what_is_no_rule_removes_nothing(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_rule(text)
