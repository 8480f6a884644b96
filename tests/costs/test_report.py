"""Sums over bills: by whatever one asks for, and honest about what is not known."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from hpcflow.costs.report import BY, report
from tests.costs.billed import ROW


def test_the_dearest_comes_first_and_the_total_is_that_of_all() -> None:
    rows = [
        ROW,
        replace(ROW, attempt=2, cost_usd="0.5", gpu_hours=0.1),
        replace(ROW, run_id="b-1", project="speech", cost_usd="100"),
    ]
    found = report(rows, ["project"])
    assert [(line.by, line.runs, line.attempts, line.cost_usd) for line in found.lines] == [
        (("speech",), 1, 1, Decimal(100)),
        (("vision",), 1, 2, Decimal("6.5")),
    ]
    assert (found.total.runs, found.total.cost_usd) == (2, Decimal("106.5"))
    assert found.total.gpu_hours == pytest.approx(4.1)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("user", "ada"),
        ("run", "a-1"),
        ("sweep", ""),
        ("gpu_type", "a100"),
        ("month", "2026-07"),
        ("cause", "completed"),
    ],
)
def test_every_key_has_its_value(key: str, value: str) -> None:
    assert key in BY
    (line,) = report([ROW], [key, "project"]).lines
    assert line.by == (value, "vision")


def test_what_has_no_price_is_counted_in_hours_and_said() -> None:
    (line,) = report([replace(ROW, cost_usd=None)], ["project"]).lines
    assert (line.cost_usd, line.gpu_hours, line.unpriced) == (None, 2.0, 1)
    (line,) = report([ROW, replace(ROW, attempt=2, cost_usd=None)], ["project"]).lines
    assert (line.cost_usd, line.gpu_hours, line.unpriced) == (Decimal(6), 4.0, 1)


def test_estimates_and_what_has_no_bill_yet_are_said() -> None:
    rows = [
        replace(ROW, billed_by="events"),
        replace(ROW, attempt=2, billed_by=None, elapsed_s=None, gpu_hours=None, cost_usd=None),
    ]
    (line,) = report(rows, ["project"]).lines
    assert (line.estimated, line.unbilled, line.unpriced, line.attempts) == (1, 1, 0, 2)


def test_what_was_wasted_is_its_share_of_the_bill() -> None:
    (line,) = report([replace(ROW, wasted_s=900.0)], ["project"]).lines
    assert (line.wasted_usd, line.wasted_gpu_hours) == (Decimal("1.5"), 0.5)
    (line,) = report([replace(ROW, elapsed_s=0.0, wasted_s=0.0, cost_usd="0")], ["project"]).lines
    assert line.wasted_usd == 0
    for elapsed_s, wasted_s in ((1e-300, -1e18), (-1e-300, 1e18)):  # of another role
        row = replace(ROW, elapsed_s=elapsed_s, wasted_s=wasted_s)
        (line,) = report([row], ["project"]).lines
        assert not any((line.wasted_usd, line.wasted_gpu_hours, line.wasted_hours))


def test_what_being_preemptible_has_saved() -> None:
    (line,) = report([replace(ROW, cost_usd="2", on_demand_usd="6")], ["project"]).lines
    assert line.saved_usd == 4


def test_service_units_are_no_money() -> None:
    (line,) = report([replace(ROW, cost_usd=None, cost_su="12")], ["project"]).lines
    assert (line.cost_usd, line.cost_su, line.unpriced) == (None, Decimal(12), 0)
    assert (line.unpriced_usd, line.unpriced_su) == (1, 0)


def test_of_nothing_there_is_a_report_too() -> None:
    found = report([], ["user"])
    assert (found.lines, found.total.attempts) == ([], 0)
