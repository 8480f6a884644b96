"""What is charged: exactly, by the prices of its time, and nothing where there is no price."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import strategies as st
from pydantic import ValidationError

from hpcflow.model.usage import Usage
from hpcflow.sites.bill import Bill, bill_of
from hpcflow.sites.prices import Price
from tests.sampled import sampled

NOON = datetime(2026, 7, 1, 12, tzinfo=timezone.utc)
USAGE = Usage(nodes=2, cpus=16, mem_mb=4096, gpus={"a100": 8})


def price(**said: Any) -> Price:
    return Price.model_validate(said, by_alias=True, by_name=False)


def bill(
    of: Price | None, usage: Usage = USAGE, *, hours: float = 2, begin: datetime = NOON
) -> Bill:
    took = timedelta(hours=hours)
    elapsed_s = Decimal(str(took.total_seconds()))
    return bill_of(usage, of, begin=begin, end=begin + took, elapsed_s=elapsed_s)


def test_everything_that_has_a_price_is_charged() -> None:
    found = bill(
        price(gpu_hour_usd="3", node_hour_usd="0.5", cpu_hour_usd="0.01", mem_gb_hour_usd="0.001")
    )
    assert {line.kind: line.cost_usd for line in found.charges} == {
        "gpu:a100": Decimal(48),
        "node": Decimal(2),
        "cpu": Decimal("0.32"),
        "mem": Decimal("0.008"),
    }
    assert found.cost_usd == Decimal("50.328")
    assert found.cost_su is None
    assert found.gpu_hours == 16


def test_what_is_not_charged_is_counted_all_the_same() -> None:
    found = bill(price(gpu_hour_usd="3"))
    assert {line.kind: (line.hours, line.cost_usd) for line in found.charges} == {
        "gpu:a100": (Decimal(16), Decimal(48)),
        "node": (Decimal(4), None),
        "cpu": (Decimal(32), None),
        "mem": (Decimal(8), None),
    }


def test_money_and_service_units_stand_side_by_side() -> None:
    found = bill(price(node_hour_su="3", gpu_hour_usd="1"))
    assert (found.cost_usd, found.cost_su) == (Decimal(16), Decimal(12))


def test_without_a_price_nobody_knows_and_that_is_not_nothing() -> None:
    found = bill(None)
    assert (found.cost_usd, found.cost_su) == (None, None)
    assert found.gpu_hours == 16
    assert bill(price(gpu_hour_usd="0")).cost_usd == 0


def test_gpus_of_several_types_have_prices_of_their_own() -> None:
    mixed = Usage(nodes=1, gpus={"a100": 2, "h100": 1})
    by_type = price(gpu_type_hour_usd={"a100": "3", "h100": "7"})
    assert bill(by_type, mixed).cost_usd == 26
    with_default = price(gpu_type_hour_usd={"h100": "7"}, gpu_hour_usd="3")
    assert bill(with_default, mixed).cost_usd == 26
    assert bill(price(gpu_type_hour_usd={"a100": "3"}), mixed).cost_usd is None, "h100 is unknown"


def test_a_name_of_slurm_is_a_key_of_the_site() -> None:
    named = Usage(nodes=1, gpus={"nvidia_a100": 1, "": 1})
    found = bill_of(
        named,
        price(gpu_type_hour_usd={"a100": "3"}),
        begin=NOON,
        end=NOON + timedelta(hours=1),
        elapsed_s=Decimal(3600),
        gpu_types={"nvidia_a100": "a100", "": "a100"},
    )
    assert found.cost_usd == 6


CHANGED = {
    "gpu_hour_usd": "3",
    "valid_from": "2026-07-01T13:00:00+00:00",
    "earlier": [
        {"gpu_hour_usd": "2", "valid_from": "2026-06-01"},
        {"gpu_hour_usd": "1", "valid_from": "2026-01-01"},
    ],
}


@pytest.mark.parametrize(
    ("begin", "cost"),
    [
        ("2026-07-02T00:00", 48),
        ("2026-07-01T13:00", 48),
        ("2026-07-01T12:00", 16 + 24),  # an hour of each
        ("2026-07-01T11:00", 32),
        ("2026-06-01T00:00", 32),
        ("2026-05-31T23:30", 4 + 24),
        ("2026-01-01T00:00", 16),
    ],
)
def test_a_run_keeps_the_price_of_its_time(begin: str, cost: int) -> None:
    found = bill(price(**CHANGED), begin=datetime.fromisoformat(f"{begin}+00:00"))
    assert found.cost_usd == cost


def test_before_the_first_price_nobody_knows() -> None:
    before = datetime(2025, 12, 31, 23, tzinfo=timezone.utc)
    found = bill(price(**CHANGED), begin=before)
    assert found.cost_usd is None
    assert found.gpu_hours == 16


def test_a_job_that_never_ran_costs_nothing() -> None:
    found = bill(price(**CHANGED), Usage(), hours=0)
    assert found.cost_usd == 0


def test_what_was_suspended_is_not_charged_in_any_period() -> None:
    """Half of the time, so half of each period."""
    found = bill_of(
        USAGE,
        price(**CHANGED),
        begin=NOON,
        end=NOON + timedelta(hours=2),
        elapsed_s=Decimal(3600),
    )
    assert found.cost_usd == Decimal(8 * 2) / 2 + Decimal(8 * 3) / 2


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ({"earlier": [{"gpu_hour_usd": "2"}]}, "is missing"),
        (
            {"valid_from": "2026-01-01", "earlier": [{"valid_from": "2026-02-01"}]},
            "must be before",
        ),
        (
            {"valid_from": "2026-03-01", "earlier": [{}, {"gpu_hour_usd": "1"}]},
            "valid_from",
        ),
        ({"valid_from": "yesterday"}, "expected a day like 2026-07-01"),
        ({"valid_from": "2026-07-01T00:00:00"}, "expected a day like 2026-07-01"),
        ({"gpu_hour_usd": "-1"}, "greater than or equal to 0"),
        ({"gpu_hour_eur": "1"}, "Extra inputs"),
    ],
)
def test_what_is_no_price(said: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ValidationError, match=wrong):
        price(**said)


RATE = st.decimals(min_value=0, max_value=1000, places=4)
CUTS = st.lists(st.integers(-100, 100), max_size=4, unique=True)


@sampled(
    80,
    1000,
    rates=st.lists(RATE, min_size=5, max_size=5),
    cuts=CUTS,
    begin=st.integers(-120, 120),
    minutes=st.integers(0, 3000),
    gpus=st.integers(0, 64),
)
def test_however_prices_change_the_sum_is_that_of_the_hours(
    rates: list[Decimal], cuts: list[int], begin: int, minutes: int, gpus: int
) -> None:
    """Against a sum minute by minute, in fractions."""
    newest_first = sorted(cuts, reverse=True)
    days = [(NOON + timedelta(hours=cut)).isoformat() for cut in newest_first]
    sections: list[dict[str, Any]] = [
        {"gpu_hour_usd": str(rate), "valid_from": day}
        for rate, day in zip(rates, days, strict=False)
    ]
    sections.append({"gpu_hour_usd": str(rates[4])})
    whole = price(**sections[0], earlier=sections[1:])
    start = NOON + timedelta(hours=begin)
    end = start + timedelta(minutes=minutes)
    found = bill_of(
        Usage(gpus={"": gpus}), whole, begin=start, end=end, elapsed_s=Decimal(minutes * 60)
    )

    def rate_at(minute: int) -> Fraction:
        at = start + timedelta(minutes=minute)
        for rate, day in zip(rates, days, strict=False):
            if at >= datetime.fromisoformat(day):
                return Fraction(rate)
        return Fraction(rates[4])

    expected = sum((rate_at(minute) * gpus / 60 for minute in range(minutes)), Fraction(0))
    assert found.cost_usd is not None
    assert abs(Fraction(found.cost_usd) - expected) < Fraction(1, 10**6)
    assert abs(Fraction(found.gpu_hours) - Fraction(gpus * minutes, 60)) < Fraction(1, 10**6)
