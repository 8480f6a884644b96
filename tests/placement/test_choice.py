"""Which place `auto` chooses: by cost, by time, by standing, and never by what nobody knows."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pytest

from hpcflow.ledger.ends import Observed
from hpcflow.placement.choice import Candidate, candidates, rank
from hpcflow.sites.placement import Placement, placements
from hpcflow.sites.schema import Weights
from tests.sites.build import site, spec

NOW = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
CLUSTER = site(
    """
    name: alpha
    partitions:
      gpu: {gpus_per_node: 4, cpus_per_node: 32, time_limit_max: 24h,
            price: {gpu_hour_usd: "2.00"}}
      spot: {gpus_per_node: 4, cpus_per_node: 32, time_limit_max: 24h, preemptible: true,
             price: {gpu_hour_usd: "1.00"}}
      gift: {gpus_per_node: 4, cpus_per_node: 32, time_limit_max: 24h}
      cpu: {cpus_per_node: 64, time_limit_max: 72h}
    scratch: {path: /scratch}
    """
)


def fitting(observed: dict[str, Observed] | None = None, **config: Any) -> dict[str, Candidate]:
    resources = {"gpus_per_node": 4, "time_limit": "10h", **config.pop("resources", {})}
    asked = spec(**resources) if not config else spec(**resources).model_copy(update=config)
    places = [each for each in placements(asked, CLUSTER).values() if isinstance(each, Placement)]
    found = candidates(places, asked, observed=observed or {}, now=NOW)
    return {each.placement.partition: each for each in found}


def order(found: dict[str, Candidate], weights: Weights | None = None) -> list[str]:
    ranked = rank(list(found.values()), weights or Weights())
    return [each.candidate.placement.partition for each in ranked]


def test_only_what_fits_is_a_candidate() -> None:
    assert list(fitting()) == ["gpu", "spot", "gift"]


def test_the_cost_is_that_of_the_whole_work_at_the_price_there() -> None:
    found = fitting()

    assert found["gpu"].cost_usd is not None
    assert Decimal(80) <= found["gpu"].cost_usd < Decimal("80.1")  # 4 GPUs × 10 h × 2 USD
    assert found["spot"].cost_usd is not None
    assert Decimal(40) < found["spot"].cost_usd < Decimal(42)
    assert found["gift"].cost_usd is None


def test_a_preemptible_place_is_worth_it_for_who_saves() -> None:
    saves = fitting()
    del saves["gift"]

    assert order(saves) == ["spot", "gpu"]


def test_a_place_with_many_preemptions_is_not_worth_it_for_who_does_not_save() -> None:
    every_hour = {"spot": Observed(running_s=100 * 3600, ends=100)}
    checkpoint = spec().checkpoint.model_copy(update={"interval_s": None})

    saves = fitting(every_hour)
    never = fitting(every_hour, checkpoint=checkpoint)

    assert order(saves)[0] == "spot"
    assert order(never)[0] == "gpu"
    assert never["spot"].runs_s > 100 * never["gpu"].runs_s


def test_half_the_time_weighs_as_much_as_half_the_cost() -> None:
    found = fitting()
    gpu = replace(found["gpu"], runs_s=3600, waits_s=0.0, cost_usd=Decimal(20))
    spot = replace(found["spot"], runs_s=3600, waits_s=3600.0, cost_usd=Decimal(10))

    first, second = rank([gpu, spot], Weights())

    assert first.score == 1
    assert second.score == pytest.approx(1)
    assert order({"gpu": gpu, "spot": spot}, Weights(time=2.0)) == ["gpu", "spot"]
    assert order({"gpu": gpu, "spot": spot}, Weights(cost=2.0)) == ["spot", "gpu"]


def test_the_better_standing_wins_among_equals() -> None:
    gpu = fitting()["gpu"]
    low, high = replace(gpu, account="a", fair_share=0.2), replace(gpu, account="b", fair_share=0.9)

    ranked = rank([low, high], Weights())

    assert [each.candidate.account for each in ranked] == ["b", "a"]
    assert ranked[1].score == pytest.approx(2**0.7)
    even = rank([low, high], Weights(fair_share=0.0))
    assert [each.candidate.account for each in even] == ["a", "b"]


def test_what_has_no_price_is_never_taken_for_free() -> None:
    ranked = {
        each.candidate.placement.partition: each for each in rank([*fitting().values()], Weights())
    }

    assert ranked["gift"].cost is None
    assert ranked["gift"].unit == "USD"
    assert ranked["gift"].score == pytest.approx(ranked["gpu"].score, rel=0.01)


def test_without_any_price_hours_are_compared() -> None:
    gift = fitting()["gift"]
    half = replace(gift, gpu_hours=gift.gpu_hours / 2, account="half")

    ranked = rank([gift, half], Weights())

    assert [each.candidate.account for each in ranked] == ["half", None]
    assert (ranked[0].unit, ranked[0].cost) == ("GPU hours", half.gpu_hours)


def test_service_units_are_compared_where_nothing_has_a_price_in_money() -> None:
    gift = fitting()["gift"]
    one, two = replace(gift, cost_su=Decimal(1)), replace(gift, cost_su=Decimal(2))

    assert [each.unit for each in rank([two, one], Weights())] == ["SU", "SU"]
    assert rank([two, one], Weights())[0].cost == 1


def test_a_start_that_nobody_predicts_is_taken_for_the_latest_one() -> None:
    gpu = fitting()["gpu"]
    soon, late = replace(gpu, waits_s=0.0), replace(gpu, waits_s=36_000.0)

    ranked = rank([gpu, late, soon], Weights())

    assert ranked[0].candidate is soon
    assert [each.score for each in ranked[1:]] == pytest.approx([2, 2], rel=0.01)


def test_a_third_place_never_changes_the_order_of_two() -> None:
    found = fitting()
    gpu = replace(found["gpu"], waits_s=0.0)
    spot = replace(found["spot"], waits_s=7_200.0)
    third = replace(found["gpu"], cost_usd=Decimal(10_000), waits_s=10**6)

    before = order({"gpu": gpu, "spot": spot})

    ranked = [each.candidate for each in rank([gpu, third, spot], Weights())]
    assert [each.placement.partition for each in ranked if each is not third] == before


def test_a_free_place_is_worth_some_wait_and_not_any() -> None:
    """Ten times the time, for it counts as ten times cheaper: here 90 hours, besides its ten."""
    weights = Weights()
    gpu = replace(fitting()["gpu"], waits_s=0.0)
    free = replace(gpu, cost_usd=Decimal(0))
    soon, late = replace(free, waits_s=85 * 3600.0), replace(free, waits_s=95 * 3600.0)

    assert rank([gpu, soon], weights)[0].candidate is soon
    assert rank([gpu, late], weights)[0].candidate is gpu
    assert rank([free], weights)[0].score == 1
    assert rank([], weights) == []


def test_the_smallest_amounts_are_told_apart() -> None:
    gpu = fitting()["gpu"]
    one, ten = replace(gpu, cost_usd=Decimal("0.0001")), replace(gpu, cost_usd=Decimal("0.001"))

    assert rank([ten, one], Weights())[0].candidate is one


def test_no_price_and_no_time_is_too_large_to_be_compared() -> None:
    gpu = fitting()["gpu"]
    dear = replace(gpu, cost_usd=Decimal(10) ** 30, runs_s=1e60)
    cheap = replace(gpu, cost_usd=Decimal("1e-8"), runs_s=60.0)
    weights = Weights(cost=10, time=10)

    best, worst = rank([dear, cheap], weights)

    assert best.candidate is cheap
    assert worst.score > 1e100
    assert rank([dear], weights)[0].score == 1


def test_what_is_done_at_once_can_be_compared() -> None:
    at_once = replace(fitting()["gpu"], runs_s=0.0, waits_s=0.0)

    assert rank([at_once], Weights())[0].score == 1


def test_the_same_work_is_compared_where_limits_differ() -> None:
    found = fitting(resources={"gpus_per_node": 0, "time_limit": None})

    assert found["cpu"].placement.time_limit_min == 72 * 60
    assert found["cpu"].runs_s == found["gpu"].runs_s == pytest.approx(24 * 3600, rel=0.05)


def test_a_place_where_nothing_ever_ends_well_has_a_cost_all_the_same() -> None:
    gpu = fitting({"gpu": Observed(ends=10**6)})["gpu"]

    assert gpu.runs_s > 1e12
    assert gpu.cost_usd is not None
