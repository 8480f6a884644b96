"""What `hpcflow limits` shows, line by line."""

from __future__ import annotations

from dataclasses import replace

from hpcflow.pending.limits import partition_lines
from hpcflow.sites.live import PartitionInfo
from hpcflow.sites.standing import Standing
from tests.pending.waiting import CLUSTER, GPU, PARTITION_NODES, STANDING


def names(standing: Standing, *partitions: PartitionInfo) -> list[str]:
    lines = partition_lines(standing, replace(CLUSTER, partitions=partitions))
    return [line.name for line in lines]


def test_the_qos_of_a_partition_binds_the_jobs_there() -> None:
    plain = replace(GPU, name="plain", qos=None)
    unknown = replace(GPU, name="unknown", qos="which-nobody-tells-of")
    lines = partition_lines(STANDING, replace(CLUSTER, partitions=(unknown, plain, GPU)))
    assert [(line.name, line.qos) for line in lines] == [
        ("gpu", "part"),
        ("unknown", "which-nobody-tells-of"),
    ]
    assert lines[0].limits == (PARTITION_NODES,)
    assert lines[1].limits is None, "not the same as none"


def test_where_the_user_may_not_go_there_is_nothing_to_show() -> None:
    of_biology = replace(GPU, name="bio", allowed_accounts=frozenset({"biology"}))
    of_others = replace(GPU, name="chem", allowed_accounts=frozenset({"chemistry"}))
    of_vips = replace(GPU, name="vip", allowed_qos=frozenset({"vip"}))
    tight = replace(GPU, name="tight", allowed_qos=frozenset({"tight"}))
    assert names(STANDING, of_biology, of_others, of_vips, tight) == ["bio", "tight"]
    elsewhere = tuple(replace(each, partition="cpu") for each in STANDING.associations)
    assert names(replace(STANDING, associations=elsewhere), GPU) == []


def test_where_accounts_are_not_enforced_everybody_may_go_where_no_account_is_asked_for() -> None:
    assert names(replace(STANDING, associations=()), GPU) == ["gpu"]
