"""What `hpcflow limits` shows, line by line."""

from __future__ import annotations

from dataclasses import replace

from hpcflow.outlook.limits import partition_lines
from tests.outlook.waiting import CLUSTER, GPU, PARTITION_NODES, STANDING

OF_BIOLOGY = replace(GPU, name="bio", allowed_accounts=frozenset({"biology"}))
OF_OTHERS = replace(GPU, name="chem", allowed_accounts=frozenset({"chemistry"}))
PLAIN = replace(GPU, name="plain", qos=None)
UNKNOWN = replace(GPU, name="unknown", qos="which-nobody-tells-of")


def test_the_qos_of_a_partition_binds_who_may_use_it() -> None:
    cluster = replace(CLUSTER, partitions=(GPU, OF_BIOLOGY, OF_OTHERS, PLAIN, UNKNOWN))
    lines = partition_lines(STANDING, cluster)
    assert [(line.name, line.qos) for line in lines] == [("bio", "part"), ("gpu", "part")]
    assert [line.limits for line in lines] == [(PARTITION_NODES,)] * 2


def test_where_accounts_are_not_enforced_everybody_may_use_what_is_for_nobody_in_particular() -> (
    None
):
    nobody = replace(STANDING, associations=())
    assert [line.name for line in partition_lines(nobody, CLUSTER)] == ["gpu"]
