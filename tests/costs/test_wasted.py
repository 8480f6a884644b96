"""Which runs wasted the most, why, and what to do about it."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from hpcflow.clock import to_text
from hpcflow.costs.wasted import WastedRun, most_wasted
from hpcflow.ledger.derive import derive_attempt, run_row
from hpcflow.ledger.fold import AttemptFold
from hpcflow.ledger.rows import BilledRow, Known
from tests.costs.billed import row
from tests.ledger.lines import at
from tests.storage.runs import make_run


def wasting(run_id: str, cause: str, attempt: int = 1, **minutes: float) -> tuple[BilledRow, Known]:
    """An attempt of an hour, and the run with all that the ledger knows of it."""
    times = {"started_at": to_text(at(0)), "ended_at": to_text(at(60))}
    bill = {"elapsed_s": "3600", "source": "accounting", **times}
    journal = {
        "accounted": bill,
        "ended": {"at": to_text(at(60)), "cause": cause, "raw_state": "X", "rule": "x"},
    }
    report = {name: to_text(at(each)) for name, each in minutes.items()}
    found = derive_attempt(run_id, attempt, AttemptFold(journal=journal, report=report))
    run = replace(run_row(make_run(Path("/scratch"))), run_id=run_id)
    billed = row(run_id, attempt=attempt, cause=cause, wasted_s=found.wasted_s)
    return billed, Known(run, [found])


def worst(*some: tuple[BilledRow, Known], top: int = 10) -> list[WastedRun]:
    known: dict[str, Known] = {}
    for _, each in some:
        before = known.setdefault(each.run.run_id, each)
        if before is not each:
            before.attempts.extend(each.attempts)
    return most_wasted([billed for billed, _ in some], top, lambda ids: {i: known[i] for i in ids})


@pytest.mark.parametrize(
    ("cause", "minutes", "why", "next_action"),
    [
        ("completed", {"trained_at": 30}, "its start took long", "hpcflow history a-1"),
        (
            "preempted",
            {"trained_at": 1, "saved_at": 20},
            "it worked on after its last checkpoint (1 × preempted)",
            "interval: auto",
        ),
        (
            "preempted",
            {"trained_at": 1},
            "it ended before its first checkpoint (1 × preempted)",
            "save earlier",
        ),
        (
            "failed",
            {},
            "it ended before its first checkpoint (1 × failed)",
            "hpcflow logs a-1",
        ),
    ],
)
def test_it_is_said_why_and_what_to_do(
    cause: str, minutes: dict[str, Any], why: str, next_action: str
) -> None:
    (found,) = worst(wasting("a-1", cause, **minutes))
    assert found.why == why
    assert next_action in found.next_action


def test_the_worst_comes_first_and_only_so_many() -> None:
    some = [wasting(f"r-{n}", "preempted", trained_at=0, saved_at=60 - n) for n in range(1, 6)]
    found = worst(*some, top=2)
    assert [each.run_id for each in found] == ["r-5", "r-4"]
    assert found[0].wasted_usd == Decimal("0.5"), "5 of 60 minutes, of 6 USD"
    assert found[0].wasted_gpu_hours == pytest.approx(2 * 5 / 60)
    assert found[0].lost_hours == pytest.approx(5 / 60)


def test_attempts_of_a_run_are_summed_and_its_share_is_of_all_of_them() -> None:
    (found,) = worst(
        wasting("a-1", "preempted", 1, trained_at=6, saved_at=54),
        wasting("a-1", "failed", 2, trained_at=6),
        wasting("a-1", "completed", 3, trained_at=0),
    )
    assert found.attempts == 3
    assert (found.startup_hours, found.lost_hours, found.unsaved_hours) == pytest.approx(
        (0.1, 0.1, 1.0)
    )
    assert found.share == pytest.approx(1.2 / 3)
    assert found.why == "it ended before its first checkpoint (1 × failed)"


def test_where_something_has_no_price_hours_decide() -> None:
    dear = wasting("dear-1", "preempted", trained_at=0, saved_at=50)
    billed, known = wasting("free-1", "preempted", trained_at=0, saved_at=10)
    found = worst(dear, (replace(billed, cost_usd=None), known))
    assert [(each.run_id, each.wasted_usd) for each in found] == [
        ("free-1", None),
        ("dear-1", Decimal(1)),
    ]


def test_where_something_is_charged_in_units_alone_hours_decide() -> None:
    paid = wasting("paid-1", "preempted", trained_at=0, saved_at=50)
    first, known = wasting("units-1", "preempted", 1, trained_at=0, saved_at=59)
    billed, again = wasting("units-1", "preempted", 2, trained_at=0, saved_at=10)
    in_units = replace(billed, cost_usd=None, cost_su="7000")
    found = worst(paid, (first, known), (in_units, again))
    assert [each.run_id for each in found] == ["units-1", "paid-1"]


def test_what_wasted_nothing_is_not_told_of() -> None:
    assert worst(wasting("a-1", "completed", trained_at=0)) == []
    assert most_wasted([], 10, lambda _: {}) == []


def test_what_the_ledger_has_lost_meanwhile_is_said() -> None:
    billed, _ = wasting("a-1", "failed")
    (found,) = most_wasted([billed], 1, lambda _: {})
    assert found.why == "the cause is not in the ledger"
