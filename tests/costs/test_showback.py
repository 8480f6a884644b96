"""Who used how much of what a team used."""

from __future__ import annotations

import math
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from hpcflow.costs.report import showback
from hpcflow.ledger.rows import PartRow
from tests.costs.billed import row


def test_the_shares_of_a_team_are_of_its_money() -> None:
    rows = [
        row("a-1", user="grace", cost_usd="1"),
        row("a-2", user="ada", cost_usd="2"),
        row("a-3", user="ada", cost_usd="1"),
        row("b-1", user="ada", project="speech", cost_usd="100"),
    ]
    speech, vision = showback(rows)
    assert (speech.name, vision.name) == ("speech", "vision")
    assert [(each.user, each.share, each.line.runs) for each in vision.members] == [
        ("ada", 0.75, 2),
        ("grace", 0.25, 1),
    ]
    assert (vision.total.cost_usd, vision.unit.name) == (Decimal(4), "USD")


def test_who_used_what_has_no_price_has_not_used_nothing() -> None:
    rows = [
        row("a-1", user="ada", gpu_hours=3.0),
        row("a-2", user="grace", gpu_hours=1.0, cost_usd=None),
    ]
    (team,) = showback(rows)
    assert team.unit.name == "GPU hours"
    assert [each.share for each in team.members] == [0.75, 0.25]


def test_where_one_is_charged_in_money_and_one_in_units_hours_are_compared() -> None:
    rows = [
        row("a-1", user="ada", gpu_hours=1.0),
        row("a-2", user="grace", gpu_hours=1.0, cost_usd=None, cost_su="70"),
    ]
    (team,) = showback(rows)
    assert team.unit.name == "GPU hours"
    assert [each.share for each in team.members] == [0.5, 0.5]


def test_work_that_is_charged_in_units_alone_is_not_nothing_beside_money() -> None:
    rows = [
        row("a-1", user="ann", gpu_hours=1.0, cost_usd="3"),
        row("a-2", user="ann", gpu_hours=1000.0, cost_usd=None, cost_su="1000"),
        row("b-1", user="bob", gpu_hours=10.0, cost_usd="30"),
    ]
    (team,) = showback(rows)
    assert team.unit.name == "GPU hours"
    assert [each.user for each in team.members] == ["ann", "bob"]
    assert team.members[0].share == 1001 / 1011


def test_all_that_is_charged_in_units_is_shared_in_units_whatever_has_money_besides() -> None:
    rows = [
        row("a-1", user="ada", gpu_hours=1.0, cost_su="30"),
        row("a-2", user="grace", gpu_hours=1.0, cost_usd=None, cost_su="70"),
        row("a-3", user="grace", elapsed_s=0.0, gpu_hours=0.0, cost_usd=None),
    ]
    (team,) = showback(rows)
    assert team.unit.name == "SU"
    assert [each.share for each in team.members] == [0.7, 0.3]


def test_without_gpus_and_prices_it_is_hours_and_of_nothing_there_is_no_share() -> None:
    (team,) = showback([row("a-1", gpu_hours=0.0, cost_usd=None)])
    assert (team.unit.name, team.members[0].share) == ("hours", 1.0)
    (team,) = showback([row("a-1", elapsed_s=0.0, gpu_hours=0.0, cost_usd="0")])
    assert team.members[0].share is None


def test_a_team_may_be_something_else_than_a_project() -> None:
    rows = [row("a-1"), row("b-1", partition="spot", cost_usd="1")]
    assert [team.name for team in showback(rows, "partition")] == ["gpu", "spot"]
    assert [team.name for team in showback(rows, "account")] == ["physics"]
    assert showback([]) == []


def test_who_used_several_partitions_is_a_member_of_each_team_as_far_as_they_did() -> None:
    parts = [
        PartRow("gpu", "physics", "a100", 1.0, "3", None, None),
        PartRow("spot", "biology", "a100", 1.0, "1", None, None),
    ]
    rows = [row("a-1", cost_usd="4", parts=parts), row("b-1", user="grace", cost_usd="9")]
    gpu, spot = showback(rows, "partition")
    assert [(each.user, each.share) for each in gpu.members] == [("grace", 0.75), ("ada", 0.25)]
    assert [(each.user, each.line.cost_usd) for each in spot.members] == [("ada", Decimal(1))]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 10**9)), min_size=1))
def test_shares_add_up_to_all(used: list[tuple[str, int]]) -> None:
    rows = [
        row(f"r-{n}", user=user, cost_usd=f"{cents}e-2") for n, (user, cents) in enumerate(used)
    ]
    (team,) = showback(rows)
    shares = [each.share for each in team.members]
    if sum(cents for _, cents in used):
        assert math.isclose(sum(share or 0 for share in shares), 1)
    else:
        assert set(shares) == {None}
