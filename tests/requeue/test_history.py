"""What is told of each attempt: waiting, running, work lost, time to recover."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from hpcflow.clock import to_text
from hpcflow.ledger.rows import AttemptRow
from hpcflow.model.journal import (
    BeginLifted,
    CancelRequested,
    Decided,
    Held,
    JournalRecord,
    Refused,
    Released,
    Resumed,
    Stall,
    Submitted,
)
from hpcflow.requeue.history import history

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)


def at(seconds: float) -> datetime:
    """So long after noon."""
    return NOON + timedelta(seconds=seconds)


def attempt(
    number: int,
    submitted: float | None,
    started: float | None = None,
    ended: float | None = None,
    *,
    cause: str | None = "preempted",
    trained: float | None = None,
    how: str = "sbatch",
    **report: int,
) -> AttemptRow:
    """Times are seconds after noon; ``report`` is what the program said: train_step, saved …"""
    said: dict[str, Any] = dict(report)
    if trained is not None:
        said["trained_at"] = to_text(at(trained))
    return AttemptRow(
        run_id="digits-20260301-abcdefgh",
        attempt=number,
        job_name=f"digits-20260301-abcdefgh:{number}",
        job_id=str(4710 + number),
        state="running" if ended is None else "ended",
        raw_state=None,
        cause=None if ended is None else cause,
        reason=None,
        rule=None,
        partition="gpu",
        nodes=["n1"],
        submitted_at=None if submitted is None else at(submitted),
        started_at=None if started is None else at(started),
        ended_at=None if ended is None else at(ended),
        exit_code=None,
        resume_from=None,
        journal={"submitted": {"how": how}},
        report=said,
    )


FIRST = attempt(1, 0, 5, 605, trained=10, began_at=0, train_step=100, saved=100)


@dataclass(frozen=True)
class Case:
    """These attempts, and what is told of the last of them."""

    what: str
    rows: list[AttemptRow]
    waited_s: float | None = None
    ran_s: float | None = None
    lost: int | None = None
    recovery_s: float | None = None


CASES = [
    Case("it waits in the queue", [attempt(1, 0)]),
    Case("it runs", [attempt(1, 0, 5, trained=10, began_at=0, train_step=7)], waited_s=5),
    Case(
        "the first one has nothing to recover from; it saved before it left",
        [FIRST],
        waited_s=5,
        ran_s=600,
        lost=0,
    ),
    Case(
        "what no checkpoint holds is lost",
        [attempt(1, 0, 5, 605, trained=10, began_at=0, train_step=130, saved=100)],
        waited_s=5,
        ran_s=600,
        lost=30,
    ),
    Case(
        "without any checkpoint all is lost that this attempt did",
        [FIRST, attempt(2, 610, 620, 720, trained=640, began_at=100, train_step=142)],
        waited_s=10,
        ran_s=100,
        lost=42,
        recovery_s=35,
    ),
    Case(
        "it failed to train at all",
        [FIRST, attempt(2, 610, 620, 625, cause="failed")],
        waited_s=10,
        ran_s=5,
    ),
    Case(
        "what completed has lost nothing, whatever it saved",
        [
            FIRST,
            attempt(2, 606, 609, 700, cause="completed", trained=617, began_at=100, train_step=200),
        ],
        waited_s=3,
        ran_s=91,
        recovery_s=12,
    ),
    Case(
        "a standby has waited for the end of the attempt before, not for its turn",
        [FIRST, attempt(2, 30, 612, 700, trained=620, how="standby", cause="node_fail")],
        waited_s=7,
        ran_s=88,
        recovery_s=15,
    ),
    Case(
        "recovery is counted from the end before, also if one in between never ended",
        [FIRST, attempt(2, None), attempt(3, 650, 660, 700, trained=665, train_step=3)],
        waited_s=10,
        ran_s=40,
        lost=3,
        recovery_s=60,
    ),
    Case(
        "clocks that differ make no time negative",
        [FIRST, attempt(2, 610, 609, 608, trained=604)],
        waited_s=0,
        ran_s=0,
        recovery_s=0,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_the_numbers_of_an_attempt(case: Case) -> None:
    last = history(reversed(case.rows), []).chapters[-1]
    assert last.attempt == case.rows[-1].attempt
    told = (last.waited_s, last.ran_s, last.lost_train_steps, last.recovery_s)
    assert told == (case.waited_s, case.ran_s, case.lost, case.recovery_s)


def test_a_program_whose_checkpoints_are_adopted_came_as_far_as_the_last_of_them() -> None:
    second = replace(attempt(2, 610, 615, 700, saved=80), resume_from="checkpoints/000000040")
    first, last = history([second, attempt(1, 0, 5, 605, saved=40)], []).chapters
    assert (first.began_at_train_step, first.reached_train_step) == (None, 40)
    assert (last.began_at_train_step, last.reached_train_step) == (40, 80)
    assert last.lost_train_steps is None, "it may have gone further, and has not said so"


def submitted(number: int, seconds: float) -> Submitted:
    return Submitted(at=at(seconds), attempt=number, job_id=str(4710 + number))


def decided(seconds: float, action: Any, rule: str, why: str, **more: Any) -> Decided:
    return Decided(at=at(seconds), after=1, action=action, rule=rule, why=why, **more)


def stall(seconds: float, action: Any, rule: str) -> Stall:
    more = {"silent_s": 1860.0, "signs": 3, "longest_s": 5.0}
    return Stall(at=at(seconds), attempt=1, action=action, rule=rule, why="no progress", **more)


RECORDS: list[JournalRecord] = [
    Held(at=at(-9), by="ada"),
    Released(at=at(-8), by="ada"),
    submitted(1, 0),
    stall(1900, "notice", "floor"),
    stall(2020, "cancel", "silent"),
    decided(2030, "wait", "backoff", "1 failure", not_before=at(2060)),
    Refused(at=at(2061), attempt=2, reason="a limit is full", retryable=True),
    decided(2062, "resubmit", "go_on", "attempt 1 ended as stalled", not_before=at(2022)),
    submitted(2, 2063),
    BeginLifted(at=at(2064), attempt=2, job_id="4712"),
    CancelRequested(at=at(2070), by="grace"),
    Resumed(at=at(2080), by="ada"),
]


def test_whatever_was_said_is_told_with_its_time_and_who_said_it() -> None:
    entries = history([], RECORDS).entries
    assert [each.at for each in entries] == [
        record.at for record in RECORDS if not isinstance(record, Submitted)
    ]
    assert [(each.attempt, each.action or each.kind, each.by) for each in entries] == [
        (0, "held", "ada"),
        (0, "released", "ada"),
        (1, "notice", None),
        (1, "cancel", None),
        (1, "wait", None),
        (1, "refused", None),
        (1, "resubmit", None),
        (2, "begin_lifted", None),
        (2, "cancel_requested", "grace"),
        (2, "resumed", "ada"),
    ]
    assert [each.not_before for each in entries if each.kind == "decided"] == [at(2060), None]
