"""What an attempt wasted: until it trained, after its last checkpoint, or all of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcflow.clock import to_text
from hpcflow.ledger.waste import Waste, waste_of
from tests.ledger.lines import at


def bill(minutes: float = 60, **more: Any) -> dict[str, Any]:
    """Of an attempt that began when its run was created."""
    times = {"started_at": to_text(at(0)), "ended_at": to_text(at(minutes))}
    return {"elapsed_s": str(minutes * 60), **times, **more}


def said(**minutes: float) -> dict[str, Any]:
    return {name: to_text(at(each)) for name, each in minutes.items()}


@pytest.mark.parametrize(
    ("cause", "report", "waste"),
    [
        ("completed", said(trained_at=5), Waste(startup_s=300)),
        ("completed", {}, Waste()),  # a program that says nothing
        ("preempted", said(trained_at=5, saved_at=50), Waste(startup_s=300, lost_s=600)),
        ("preempted", said(trained_at=5), Waste(unsaved_s=3600)),
        ("failed", {}, Waste(unsaved_s=3600)),
        ("pruned", said(trained_at=5), Waste(startup_s=300)),  # it has shown what it should
        ("timeout", said(trained_at=5, saved_at=60), Waste(startup_s=300)),
        # Clocks of nodes differ.
        ("preempted", said(trained_at=-1, saved_at=61), Waste()),
    ],
)
def test_what_was_wasted_and_why(cause: str, report: dict[str, Any], waste: Waste) -> None:
    assert waste_of(bill(), cause, report) == waste


def test_a_job_that_never_started_wasted_nothing() -> None:
    assert waste_of({"elapsed_s": "0"}, "cancelled", {}) == Waste()


def test_of_what_has_no_bill_or_no_end_nobody_can_tell() -> None:
    assert waste_of({}, "failed", {}) is None
    assert waste_of(bill(), None, {}) is None


@given(
    st.sampled_from(["completed", "preempted", "failed"]),
    st.floats(0, 100),
    st.floats(-10, 200),
    st.floats(-10, 200),
)
def test_it_is_never_more_than_what_is_charged(
    cause: str, charged: float, trained: float, saved: float
) -> None:
    """Less was charged than the clock says, where it was suspended."""
    found = waste_of(
        bill(100, elapsed_s=str(charged * 60)), cause, said(trained_at=trained, saved_at=saved)
    )
    assert found is not None
    assert min(found.startup_s, found.lost_s, found.unsaved_s) >= 0
    assert found.total_s <= charged * 60 + 1e-6
