"""What scontrol, sinfo and sacctmgr say about a cluster unlike ours."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpcflow.schedulers.slurm.parse_cluster import (
    cluster_info,
    keeps_cpus,
    parse_accounts,
    parse_qos,
    parse_settings,
    restart_delay_s,
    seconds,
)
from hpcflow.schedulers.slurm.parse_standing import QOS_FIELDS
from hpcflow.schedulers.slurm.units import parse_length_s, parse_minutes, parse_time
from hpcflow.sites.live import NodeKind

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
    (mixed,) = info.partitions
    assert (mixed.gpus_per_node, mixed.gpu_types) == (9, ("mig-1g.5gb",))
    assert mixed.kinds[0].gpus == {"": 2, "mig-1g.5gb": 7}
    assert not info.has_accounting


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("(null)", {}),
        ("gpu:2", {"": 2}),
        ("gpu:a100:4(S:0-1,3),shard:16(S:0-1)", {"a100": 4}),
        ("nvme:1,gpu:a100:2(S:0),gpu:a100:2(S:1),gpu:a100_1g.5gb:7", {"a100": 4, "a100_1g.5gb": 7}),
        ("gpu:mi250x:no_consume:8,mps:800", {"mi250x": 8}),
        ("gpu:no_consume:8", {"": 8}),
        ("gpu:h100:0,gpu", {}),
    ],
)
def test_gpus_are_found_among_other_resources(gres: str, gpus: dict[str, int]) -> None:
    info = cluster_info({}, "PartitionName=p State=UP", f"p|1|8|1000|{gres}|(null)")
    assert info.partitions[0].kinds[0].gpus == gpus


def test_a_node_has_as_much_as_its_partition_gives_to_a_job() -> None:
    nodes = "\n".join(f"{name}|2|56|8000|(null)|(null)" for name in "abcd")
    info = cluster_info(
        {"MaxMemPerNode": "6000"},
        "PartitionName=a MaxMemPerNode=UNLIMITED State=UP\n"
        "PartitionName=b State=UP\n"
        "PartitionName=c MaxCPUsPerNode=4 MaxMemPerCPU=500 MaxMemPerNode=UNLIMITED State=UP\n"
        "PartitionName=d MaxNodes=0 State=UP\n",
        nodes,
    )
    sizes = [(each.cpus_per_node, each.mem_mb_per_node) for each in info.partitions]
    assert sizes == [(56, 8000), (56, 6000), (4, 2000), (56, 6000)]
    assert [each.nodes_per_job for each in info.partitions] == [2, 2, 2, 0]


def test_cpus_and_memory_that_slurm_keeps_are_no_jobs() -> None:
    node = "CPUEfctv=112 CPUTot=128 AvailableFeatures=a,b Gres=gpu:mi250x:8 RealMemory=64000"
    nodes = (
        f"NodeName=n1 {node} MemSpecLimit=4000 OS=Linux 6 #1 SMP Partitions=all,amd\n"
        f"NodeName=n2 {node} MemSpecLimit=4000 Partitions=all\n"
        "NodeName=n3 CPUTot=8 AvailableFeatures=(null) Gres=(null) RealMemory=8000 Partitions=all\n"
    )
    info = cluster_info({}, "PartitionName=all State=UP\nPartitionName=amd State=UP", nodes)
    kind = NodeKind(2, 112, 60_000, {"mi250x": 8}, ("a", "b"))
    assert info.partitions[0].kinds == (kind, NodeKind(1, 8, 8000))
    assert info.partitions[1].kinds == (replace(kind, count=1),)


@pytest.mark.parametrize(
    ("totals", "expected"),
    [
        ("TotalCPUs=16 TotalNodes=2 TRES=cpu=16,mem=1G,node=2", False),
        ("TotalCPUs=16 TotalNodes=2 TRES=cpu=14,mem=1G,node=2", True),
        ("TotalCPUs=16 TotalNodes=2", False),
        ("TotalCPUs=0 TotalNodes=0 TRES=(null)", False),
    ],
)
def test_whether_slurm_keeps_cpus_is_told_by_the_partitions(totals: str, *, expected: bool) -> None:
    assert keeps_cpus(f"PartitionName=p State=UP {totals}\n") is expected


@pytest.mark.parametrize(
    ("enforce", "limits"),
    [("associations,limits,qos", [(30, 2), (20, 1)]), ("associations", [(1440, 4), (20, 1)])],
)
def test_a_job_is_limited_by_the_qos_of_its_partition_too(
    enforce: str, limits: list[tuple[int, int]]
) -> None:
    row = dict.fromkeys(QOS_FIELDS, "") | {"name": "brief", "maxwall": "00:30:00"}
    qos = "|".join((row | {"maxtres": "node=2,cpu=64"}).values())
    info = cluster_info(
        {"AccountingStorageEnforce": enforce},
        "PartitionName=a MaxTime=1-00:00:00 QoS=brief State=UP\n"
        "PartitionName=b MaxTime=20:00 MaxNodes=1 QoS=brief State=UP\n",
        "a|4|8|1000|(null)|(null)\nb|4|8|1000|(null)|(null)",
        qos,
    )
    found = [(each.time_limit_max_min, each.nodes_per_job) for each in info.partitions]
    assert found == limits
    assert info.qos == frozenset({"brief"})


def test_a_partition_tells_of_nodes_that_the_user_may_not_see() -> None:
    (seen,) = cluster_info(
        {},
        "PartitionName=p TotalCPUs=64 TotalNodes=2 State=UP"
        " TRES=cpu=64,mem=128G,node=2,billing=64,gres/gpu=8,gres/gpu:a100=8",
        None,
    ).partitions
    assert (seen.nodes, seen.cpus_per_node, seen.mem_mb_per_node) == (2, 32, 65536)
    assert seen.kinds[0].gpus == {"a100": 4}


@pytest.mark.parametrize(
    ("select", "shares", "is_exclusive"),
    [
        ("select/cons_tres", "NO", False),
        ("select/cons_tres", "EXCLUSIVE", True),
        ("select/linear", "NO", True),
        ("select/linear", "YES:4", False),
        ("select/cons_tres", "NO Exclusive=NODE", True),
        ("select/cons_tres", "NO Exclusive=USER", False),
    ],
)
def test_nodes_come_whole_by_the_partition_or_the_cluster(
    select: str, shares: str, *, is_exclusive: bool
) -> None:
    partition = f"PartitionName=p OverSubscribe={shares} State=UP"
    info = cluster_info({"SelectType": select}, partition, "")
    assert info.partitions[0].is_exclusive is is_exclusive


@pytest.mark.parametrize(
    ("setting", "caps_cpus"),
    [
        ("MaxCPUsPerNode=UNLIMITED MaxCPUsPerSocket=UNLIMITED", False),
        ("MaxCPUsPerNode=4", True),
        ("MaxCPUsPerNode=UNLIMITED MaxCPUsPerSocket=8", True),
        ("", False),
    ],
)
def test_a_partition_can_cap_the_cpus_of_a_node(setting: str, *, caps_cpus: bool) -> None:
    info = cluster_info({}, f"PartitionName=p {setting} State=UP", "")
    assert info.partitions[0].caps_cpus is caps_cpus


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


@pytest.mark.parametrize(
    ("settings", "expected_s"),
    [
        ({}, 121),
        ({"AuthInfo": "(null)", "SchedulerParameters": "(null)"}, 121),
        ({"AuthInfo": "socket=/run/munge.socket,cred_expire=600"}, 601),
        ({"SchedulerParameters": "bf_interval=2,requeue_delay=6"}, 7),
        ({"SchedulerParameters": "requeue_delay=0", "AuthInfo": "cred_expire=600"}, 1),
        ({"SchedulerParameters": "bf_requeue_delay_x=7"}, 121),
    ],
)
def test_how_long_a_restarted_job_waits(settings: dict[str, str], expected_s: int) -> None:
    assert restart_delay_s(settings) == expected_s
