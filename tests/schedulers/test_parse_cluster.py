"""What scontrol, sinfo and sacctmgr say about a cluster unlike ours."""

from __future__ import annotations

import pytest

from hpcflow.schedulers.slurm.parse_cluster import (
    cluster_info,
    parse_accounts,
    parse_qos,
    parse_settings,
    seconds,
)
from hpcflow.schedulers.slurm.times import parse_length_s, parse_minutes, parse_time

CONFIG = """Configuration data as of 2026-03-01T10:00:00
AccountingStorageType   = accounting_storage/slurmdbd
ClusterName             = big
MinJobAge               = 300 sec
PowerPlugin             = 
PreemptMode             = REQUEUE
PreemptParameters       = (null)
SLURM_VERSION           = 25.05.3
SchedulerParameters     = bf_continue,bf_max_job_test=1000

Slurmctld(primary) at ctl1 is UP
"""  # noqa: W291
PARTITIONS = """\
PartitionName=gpu AllowAccounts=ALL Default=YES MaxTime=2-00:00:00 DefaultTime=NONE GraceTime=0 \
MaxNodes=64 MinNodes=1 PriorityTier=10 QoS=big Nodes=g[1-2],h1 OverSubscribe=EXCLUSIVE \
PreemptMode=OFF State=UP
PartitionName=old Default=NO MaxTime=UNLIMITED DefaultTime=01:00:00 GraceTime=120 \
MaxNodes=UNLIMITED PriorityTier=1 QoS=N/A Nodes=ALL OverSubscribe=NO PreemptMode=REQUEUE State=DOWN
PartitionName=empty Default=NO MaxTime=30:00 State=UP
"""
NODES = """\
gpu|60|128|515000|gpu:a100:4(S:0-1),nvme:1|a100,hbm80g
gpu|4|96|1000000|gpu:h100:8(S:0-7)|h100,ib
old|12+|32|128000+|(null)|(null)
mixed|1|64|256000|gpu:2,gpu:mig-1g.5gb:7|x
"""


def test_a_cluster_is_put_together_from_three_answers() -> None:
    info = cluster_info(parse_settings(CONFIG), PARTITIONS, NODES)
    assert (info.name, info.version, info.has_accounting) == ("big", "25.05.3", True)
    gpu, old, empty = info.partitions
    assert (gpu.is_default, gpu.is_up, gpu.time_limit_max_min) == (True, True, 2880)
    assert (gpu.nodes, gpu.cpus_per_node, gpu.mem_mb_per_node) == (64, 128, 1_000_000)
    assert (gpu.gpus_per_node, gpu.gpu_types) == (8, ("a100", "h100"))
    assert gpu.features == ("a100", "hbm80g", "h100", "ib")
    assert (gpu.job_nodes_min, gpu.job_nodes_max, gpu.is_exclusive) == (1, 64, True)
    assert (gpu.priority_tier, gpu.time_limit_default_min) == (10, None)
    assert (gpu.node_names, old.node_names, empty.node_names) == (("g1", "g2", "h1"), (), ())
    assert (gpu.qos, old.qos, empty.qos) == ("big", None, None)
    assert (old.is_up, old.time_limit_max_min, old.grace_s) == (False, None, 120)
    assert (old.nodes, old.mem_mb_per_node, old.gpus_per_node) == (12, 128_000, 0)
    assert (old.preempt_mode, old.time_limit_default_min) == ("REQUEUE", 60)
    assert (empty.nodes, empty.cpus_per_node, empty.time_limit_max_min) == (0, 0, 30)
    assert empty.preempt_mode == "REQUEUE"  # what the cluster says for all


def test_a_partition_says_whose_jobs_it_takes() -> None:
    gpu, cpu, all_ = cluster_info(
        {},
        "PartitionName=gpu AllowAccounts=physics,art DenyQos=low State=UP\n"
        "PartitionName=cpu DenyAccounts=art AllowQos=normal,high State=UP\n"
        "PartitionName=all AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL State=UP\n",
        "",
    ).partitions
    assert gpu.admits("physics", "normal")
    assert gpu.admits(None, None)
    assert not gpu.admits("biology", "normal")
    assert not gpu.admits("physics", "low")
    assert cpu.admits("biology", "high")
    assert not cpu.admits("art", "high")
    assert not cpu.admits("biology", "low")
    assert all_.admits("art", "low")


def test_gpus_may_have_no_type_and_several_kinds() -> None:
    info = cluster_info({}, "PartitionName=mixed State=UP", NODES)
    assert (info.partitions[0].gpus_per_node, info.partitions[0].gpu_types) == (
        9,
        ("mig-1g.5gb",),
    )
    assert not info.has_accounting


def test_settings_keep_their_text_and_null_is_nothing() -> None:
    settings = parse_settings(CONFIG)
    assert settings["SchedulerParameters"] == "bf_continue,bf_max_job_test=1000"
    assert settings["PreemptParameters"] == settings["PowerPlugin"] == ""
    assert seconds(settings["MinJobAge"]) == 300
    assert seconds("0 sec") == 0
    assert seconds("INFINITE") is None
    assert seconds(None) is None


@pytest.mark.parametrize(
    ("text", "length_s", "minutes"),
    [
        ("30", 1800, 30),
        ("30:00", 1800, 30),
        ("00:30", 30, 1),
        ("02:00:00", 7200, 120),
        ("1-12", 129_600, 2160),
        ("1-12:30", 131_400, 2190),
        ("1-12:30:01", 131_401, 2191),
        ("UNLIMITED", None, None),
        ("NONE", None, None),
        ("infinite", None, None),
        ("", None, None),
        ("1-", None, None),
    ],
)
def test_lengths_of_time(text: str, length_s: int | None, minutes: int | None) -> None:
    assert parse_length_s(text) == length_s
    assert parse_minutes(text) == minutes


@pytest.mark.parametrize("text", ["", "N/A", "Unknown", "None", "NULL", "yesterday", "12:00:61"])
def test_no_time_is_no_time(text: str) -> None:
    assert parse_time(text) is None


def test_accounts_of_other_clusters_do_not_count() -> None:
    text = "big|physics\nbig|chem\nsmall|bio\nbig|\n"
    assert parse_accounts(text, "big") == {"physics", "chem"}
    assert parse_accounts(text, None) == {"physics", "chem", "bio"}
    assert parse_accounts("", "big") == frozenset()


def test_the_qos_are_one_on_a_line() -> None:
    assert parse_qos("normal\ngpu_debug\n\n") == {"normal", "gpu_debug"}
    assert cluster_info({}, "", "", "normal\n").qos == frozenset({"normal"})
    assert cluster_info({}, "", "").qos is None
