"""Sums over bills: by whatever one asks for, and honest about what is not known."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from hpcflow.costs.report import BY, report
from hpcflow.ledger.rows import PartRow
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
        ("account", "physics"),
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


SPOT = PartRow("spot", "biology", "a100", 4.0, "4", None, "12")
GPU = PartRow("gpu", "physics", "h100", 2.0, "6", None, None)


def test_an_attempt_in_several_partitions_is_of_each_of_their_lines_as_far_as_it_was_there() -> (
    None
):
    rows = [replace(ROW, parts=[GPU, SPOT], gpu_hours=6.0, cost_usd="10", wasted_s=900.0), ROW]
    found = report(rows, ["partition", "account", "gpu_type"])
    told = {line.by: line for line in found.lines}
    assert set(told) == {
        *(("gpu", "physics", "h100"), ("gpu", "physics", "a100"), ("spot", "biology", "a100")),
    }
    line = told["spot", "biology", "a100"]
    assert (line.attempts, line.hours, line.gpu_hours, line.cost_usd) == (1, 1, 4, Decimal(4))
    assert (line.saved_usd, line.wasted_usd) == (Decimal(8), Decimal(1))
    assert line.wasted_gpu_hours == 1


@pytest.mark.parametrize("keys", [[key] for key in BY] + [["partition", "account"]])
def test_the_sum_is_the_same_by_whatever_the_lines_are(keys: list[str]) -> None:
    unpriced = replace(SPOT, cost_usd=None, on_demand_usd=None)
    in_units = replace(GPU, cost_usd=None, cost_su="7")
    whole = replace(ROW, wasted_s=900.0, gpu_hours=6.0)
    rows = [
        replace(whole, run_id="a-2", parts=[GPU, SPOT], cost_usd="10", on_demand_usd="18"),
        replace(whole, run_id="a-3", parts=[GPU, unpriced], cost_usd=None),
        replace(whole, run_id="a-4", parts=[SPOT, in_units], cost_usd=None),
        ROW,
    ]
    total = report(rows, keys).total
    assert (total.runs, total.attempts, total.hours, total.gpu_hours) == (4, 4, 4, 20)
    assert (total.cost_usd, total.cost_su) == (Decimal(26), Decimal(7))
    assert (total.saved_usd, total.wasted_usd) == (Decimal(16), Decimal(5))
    assert (total.wasted_su, total.wasted_hours) == (Decimal("1.75"), 0.75)
    assert (total.unpriced, total.unpriced_usd, total.unpriced_su) == (1, 2, 4)
    lines = report(rows, keys).lines
    assert sum(line.cost_usd or 0 for line in lines) == 26
    assert sum(line.gpu_hours for line in lines) == 20
    assert {run_id for line in lines for run_id in line.run_ids} == total.run_ids
