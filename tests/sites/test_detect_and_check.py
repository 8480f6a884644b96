"""`site detect` writes the file of a live cluster, and `site check` holds a file against one."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from hpcflow.clock import SystemClock
from hpcflow.documents import parse_document, validate
from hpcflow.errors import SiteError, SpecError
from hpcflow.resources import resource_dir
from hpcflow.schedulers.slurm.commands import SlurmCommands
from hpcflow.sites.check import Finding, Level, check
from hpcflow.sites.detect import detect, site_name
from hpcflow.sites.live import ClusterInfo, NodeKind, PartitionInfo
from hpcflow.sites.loader import load_site, search_path
from hpcflow.sites.placement import place
from hpcflow.sites.recognize import recognize
from hpcflow.sites.schema import Site
from hpcflow.sites.standing import Association, Standing
from hpcflow.testing.cluster import Cluster
from tests.sampled import sampled
from tests.sites.build import spec

NODE = NodeKind(4, 8, 8192, {"a100": 4}, ("a100", "nvme"))
GPU = PartitionInfo(
    name="gpu",
    is_default=True,
    is_up=True,
    time_limit_max_min=1440,
    kinds=(NODE,),
    preempt_mode="OFF",
    time_limit_default_min=60,
    priority_tier=10,
)
SPOT = dataclasses.replace(
    GPU, name="spot", is_default=False, preempt_mode="REQUEUE", grace_s=5, priority_tier=1
)
SHORT = dataclasses.replace(
    GPU, name="short", is_default=False, time_limit_max_min=2, time_limit_default_min=1
)
#: The development cluster, as it says it is.
DEV = ClusterInfo(
    name="devcluster",
    version="22.05.8",
    partitions=(GPU, SPOT, SHORT),
    settings={"MaxArraySize": "1001", "MinJobAge": "300 sec", "PreemptMode": "REQUEUE"},
    qos=frozenset({"normal", "debug"}),
)


def devcluster() -> Site:
    """The shipped file of the development cluster."""
    return load_site("devcluster", search=[resource_dir("site_configs")])


def read(text: str) -> Site:
    """The site in a text that `detect` wrote."""
    return validate(Site, parse_document(text, Path("x.yaml"), SiteError), SiteError)


def info_with(**changes: Any) -> ClusterInfo:
    """The development cluster whose partition gpu, or its nodes, are a little different."""
    of_nodes = {
        key: changes.pop(key) for key in ("count", "cpus", "mem_mb", "gpus") & changes.keys()
    }
    kinds = (dataclasses.replace(NODE, **of_nodes),)
    gpu = dataclasses.replace(GPU, **{"kinds": kinds, **changes})
    return dataclasses.replace(DEV, partitions=(gpu, SPOT, SHORT))


def not_ok(findings: list[Finding]) -> list[tuple[str, str]]:
    """Level and key of what is not in order."""
    return [(each.level.value, each.key) for each in findings if each.level is not Level.OK]


# --- detect ----------------------------------------------------------------------------------


def test_a_detected_site_can_be_used_as_it_is() -> None:
    text = detect(DEV, host="login3.example.org", environ={"SCRATCH": "/scratch/ada"})
    found = read(text)
    assert found.name == "devcluster"
    assert found.cluster_name == "devcluster"
    assert found.hosts == ["login*.example.org"]
    assert found.scratch.path == "$SCRATCH"
    assert list(found.partitions) == ["gpu", "spot", "short"]
    placement = place(spec(nodes=4, gpus_per_node=4), found)
    assert (placement.partition, placement.gres_name) == ("gpu", "a100")
    assert placement.time_limit_min == 60
    spot = found.partitions["spot"]
    assert (spot.preemptible, spot.grace_s, spot.auto) == (True, 5, False)


def test_what_slurm_cannot_know_is_asked_for_in_comments() -> None:
    text = detect(DEV, environ={})
    for word in ("price:", "fabric:", "purge_days:", "accounts:", "modules:", "add mem"):
        assert any(word in line and "#" in line for line in text.splitlines()), word


def test_the_default_partition_comes_first() -> None:
    other = dataclasses.replace(SPOT, is_default=True)
    info = dataclasses.replace(DEV, partitions=(dataclasses.replace(GPU, is_default=False), other))
    assert next(iter(read(detect(info, environ={})).partitions)) == "spot"


@pytest.mark.parametrize(
    ("gpu", "mem_mb"),
    [
        ("h100", 81920),
        ("nvidia_a100_80gb_pcie", 81920),
        ("a100", None),
        ("t4", 16384),
        ("a100_1g.5gb", 5120),
        ("nvidia_h100_80gb_hbm3_3g.40gb", 40960),
        ("2g.10gb", 10240),
        ("amd_instinct_mi210", 65536),
    ],
)
def test_the_memory_of_a_gpu_is_given_only_where_its_name_leaves_no_doubt(
    gpu: str, mem_mb: int | None
) -> None:
    found = read(detect(info_with(gpus={gpu: 4}), environ={}))
    assert found.gpu_types[gpu].mem_mb == mem_mb


def test_mixed_gpus_may_all_be_asked_for() -> None:
    found = read(detect(info_with(gpus={"a100": 4, "v100": 2}), environ={}))
    assert list(found.partitions) == ["gpu-a100", "gpu-v100", "spot", "short"]
    run = spec(gpu_type="v100", gpus_per_node=1, partition="gpu")
    placement = place(run, found)
    assert (placement.gres_name, placement.slurm_partition) == ("v100", "gpu")
    with pytest.raises(SpecError, match="3 GPUs per node, and a node of partition gpu-v100 has 2"):
        place(spec(gpu_type="v100", gpus_per_node=3, partition="gpu"), found)


@pytest.mark.parametrize(
    ("gpu", "vendor"),
    [
        ("a100", "nvidia"),
        ("mi250", "amd"),
        ("instinct_mi300x", "amd"),
        ("gfx90a", "amd"),
        ("intel_max_1550", "intel"),
        ("pvc", "intel"),
        ("mig-1g.5gb", "nvidia"),
    ],
)
def test_the_vendor_is_told_by_the_name(gpu: str, vendor: str) -> None:
    found = read(detect(info_with(gpus={gpu: 4}), environ={}))
    assert found.gpu_types[gpu].vendor == vendor


def test_an_entry_for_a_kind_of_nodes_takes_no_name_from_a_partition() -> None:
    taken = dataclasses.replace(SPOT, name="gpu-a100")
    mixed = info_with(gpus={"a100": 4, "v100": 2}).partitions[0]
    info = dataclasses.replace(DEV, partitions=(mixed, taken))
    found = read(detect(info, environ={}))
    assert {name: found.slurm_partition(name) for name in found.partitions} == {
        "gpu-a100-2": "gpu",
        "gpu-v100": "gpu",
        "gpu-a100": "gpu-a100",
    }


@pytest.mark.parametrize(
    ("changes", "cpus"),
    [({}, 8), ({"is_exclusive": True}, 4), ({"gpus": True}, 4)],
)
def test_where_nodes_differ_a_job_is_given_cpus_that_all_have(
    changes: dict[str, Any], cpus: int
) -> None:
    gpus = {"a100": 4} if changes.pop("gpus", False) else {}
    kinds = (NodeKind(2, 8, 1000, gpus), NodeKind(2, 4, 1000, gpus))
    found = read(detect(info_with(kinds=kinds, **changes), environ={}))
    assert found.partitions["gpu"].cpus_per_node == cpus


@pytest.mark.parametrize(
    ("cluster", "name"),
    [("Alps", "alps"), ("my cluster!", "my-cluster"), ("..", "cluster"), ("", "cluster")],
)
def test_the_name_of_the_site_is_the_clusters_as_far_as_it_can_be(cluster: str, name: str) -> None:
    assert site_name(dataclasses.replace(DEV, name=cluster)) == name


hostile = st.text(max_size=20) | st.sampled_from(
    ["no", "null", "1e3", "on", "a: b", "#x", "x\ny: z", "- a", "{}", "a100", "gpu", "'", '"']
)
counts = st.integers(0, 200_000)
names = st.frozensets(hostile, max_size=2)


kinds = st.builds(
    NodeKind,
    count=st.integers(0, 20_000),
    cpus=st.integers(0, 1024),
    mem_mb=st.integers(0, 1 << 23),
    gpus=st.dictionaries(st.just("") | hostile, st.integers(1, 16), max_size=3),
)


@st.composite
def partition_infos(draw: st.DrawFn) -> PartitionInfo:
    """A partition as some Slurm may show it."""
    return PartitionInfo(
        name=draw(hostile),
        is_default=draw(st.booleans()),
        is_up=draw(st.booleans()),
        time_limit_max_min=draw(st.none() | counts),
        kinds=tuple(draw(st.lists(kinds, max_size=3))),
        preempt_mode=draw(st.sampled_from([None, "OFF", "REQUEUE", "CANCEL", "GANG,SUSPEND"])),
        grace_s=draw(st.none() | counts),
        time_limit_default_min=draw(st.none() | counts),
        job_nodes_min=draw(st.none() | st.integers(0, 64)),
        job_nodes_max=draw(st.none() | st.integers(0, 64)),
        is_exclusive=draw(st.booleans()),
        is_root_only=draw(st.booleans()),
        needs_reservation=draw(st.booleans()),
        allowed_groups=draw(st.none() | names),
        allowed_accounts=draw(st.none() | names),
        denied_accounts=draw(names),
        allowed_qos=draw(st.none() | names),
        denied_qos=draw(names),
        priority_tier=draw(st.none() | st.integers(0, 3)),
    )


clusters = st.builds(
    ClusterInfo,
    name=hostile,
    version=hostile,
    partitions=st.lists(partition_infos(), max_size=4, unique_by=lambda each: each.name).map(tuple),
    settings=st.dictionaries(
        st.sampled_from(["PreemptType", "MinJobAge", "MaxArraySize"]), hostile
    ),
    has_accounting=st.booleans(),
)


standings = st.builds(
    lambda account, default_qos, qos: Standing(
        "ada", (Association(account, None, default_qos, qos, is_default=True),)
    ),
    hostile,
    st.none() | hostile,
    st.lists(hostile, max_size=2).map(tuple),
)


@sampled(
    60,
    1000,
    clusters,
    st.none() | hostile,
    st.dictionaries(st.just("SCRATCH"), hostile),
    st.none() | standings,
    st.none() | names,
)
def test_whatever_a_cluster_says_its_detected_file_loads_and_agrees_with_it(
    info: ClusterInfo,
    host: str | None,
    environ: dict[str, str],
    standing: Standing | None,
    groups: frozenset[str] | None,
) -> None:
    text = detect(info, host=host, environ=environ, standing=standing, groups=groups)
    found = read(text)
    errors = [each for each in check(found, info) if each.level is Level.ERROR]
    # A cluster none of whose partitions can be used has nothing that a file could name.
    assert not errors or list(found.partitions) == ["none"]


# --- check -----------------------------------------------------------------------------------


def test_the_shipped_file_agrees_with_the_development_cluster() -> None:
    assert not_ok(check(devcluster(), DEV)) == []


@pytest.mark.parametrize(
    ("changes", "level", "key"),
    [
        ({"time_limit_max_min": 600}, "error", "time_limit_max"),
        ({"time_limit_max_min": 6000}, "warning", "time_limit_max"),
        ({"count": 3}, "error", "nodes_max"),
        ({"job_nodes_max": 2}, "error", "nodes_max"),
        ({"job_nodes_min": 2}, "error", "nodes_min"),
        ({"cpus": 4}, "error", "cpus_per_node"),
        ({"mem_mb": 8000}, "error", "mem_per_node"),
        ({"gpus": {"a100": 2}}, "error", "gpus_per_node"),
        ({"gpus": {"a100": 8}}, "warning", "gpus_per_node"),
        ({"gpus": {"h100": 4}}, "error", "gpu_type"),
        ({"gpus": {"": 4}}, "error", "gpu_type"),
        ({"preempt_mode": "CANCEL", "priority_tier": 1}, "warning", "preemptible"),
    ],
)
def test_every_difference_is_found(changes: dict[str, Any], level: str, key: str) -> None:
    assert not_ok(check(devcluster(), info_with(**changes))) == [(level, f"partitions.gpu.{key}")]


def test_a_partition_that_is_gone_is_an_error_and_a_new_one_a_warning() -> None:
    renamed = info_with(name="gpu2")
    assert not_ok(check(devcluster(), renamed)) == [
        ("error", "partitions.gpu"),
        ("warning", "partitions.gpu2"),
    ]


def test_a_partition_that_is_down_is_worth_a_word() -> None:
    assert not_ok(check(devcluster(), info_with(is_up=False))) == [("warning", "partitions.gpu")]


def test_the_grace_time_and_the_end_of_preemption_are_noticed() -> None:
    slower = dataclasses.replace(SPOT, grace_s=30)
    info = dataclasses.replace(DEV, partitions=(GPU, slower, SHORT))
    assert not_ok(check(devcluster(), info)) == [("warning", "partitions.spot.grace")]
    safe = dataclasses.replace(SPOT, preempt_mode="OFF")
    info = dataclasses.replace(DEV, partitions=(GPU, safe, SHORT))
    assert not_ok(check(devcluster(), info)) == [("warning", "partitions.spot.preemptible")]


def choosing(*lines: str, partition: str = "gpu") -> Site:
    """The development cluster, as people see it who choose by QOS and constraint."""
    return read(
        "name: devcluster\ncluster_name: devcluster\nscratch: {path: /s}\npartitions:\n  choice:\n"
        + "".join(f"    {line}\n" for line in (f"partition: {partition}", *lines))
        + "    cpus_per_node: 8\n    nodes_max: 4\n    time_limit_max: 24h\n    gpus_per_node: 4\n"
    )


def about_choice(site: Site, info: ClusterInfo = DEV) -> list[tuple[str, str]]:
    """Level and the end of the key of every finding about the one partition."""
    return [
        (each.level.value, each.key.removeprefix("partitions.choice"))
        for each in check(site, info)
        if each.key.startswith("partitions.choice")
    ]


def test_the_qos_and_the_constraint_are_held_against_the_cluster() -> None:
    agrees = choosing("qos: Debug", "constraint: a100&nvme")
    assert about_choice(agrees) == [("ok", ""), ("ok", ".qos"), ("ok", ".constraint")]
    differs = choosing("qos: debgu", "constraint: a100&nvem")
    assert about_choice(differs) == [("error", ".qos"), ("error", ".constraint")]
    told = [each.message for each in check(differs, DEV) if each.level is Level.ERROR]
    assert "no QOS debgu; did you mean debug?" in told[0]
    assert "no node has nvem; did you mean nvme?" in told[1]


@pytest.mark.parametrize(
    ("constraint", "level"),
    [
        ("a100|h100", "warning"),
        ("h100|h200", "error"),
        ("[a100*2&nvme*1]", "ok"),
        ("a100&!h100", "ok"),
        ("(a100&h100)", "error"),
    ],
)
def test_a_constraint_is_read_as_slurm_reads_it(constraint: str, level: str) -> None:
    assert (level, ".constraint") in about_choice(choosing(f"constraint: '{constraint}'"))


def test_without_a_partition_the_whole_cluster_counts_and_the_rest_is_not_compared() -> None:
    spot = dataclasses.replace(SPOT, kinds=(dataclasses.replace(NODE, features=("h100",)),))
    info = dataclasses.replace(DEV, partitions=(GPU, spot, SHORT))
    site = choosing("qos: debug", "constraint: a100|h100", partition="null")
    assert about_choice(site, info) == [("ok", ".qos"), ("ok", ".constraint"), ("warning", "")]
    (left,) = [each for each in check(site, info) if each.key == "partitions.choice"]
    assert left.message.startswith("nodes and limits not compared")


def test_a_qos_that_nobody_could_ask_for_is_not_called_right() -> None:
    silent = dataclasses.replace(DEV, qos=None)
    assert about_choice(choosing("qos: debug"), silent) == [("warning", ".qos")]


def test_another_cluster_is_not_this_one() -> None:
    info = dataclasses.replace(DEV, name="other", has_accounting=False)
    assert not_ok(check(devcluster(), info)) == [
        ("error", "cluster_name"),
        ("error", "has_accounting"),
    ]


def test_a_slurm_that_forgets_at_once_is_worth_a_word() -> None:
    info = dataclasses.replace(DEV, has_accounting=False, settings={"MinJobAge": "2 sec"})
    assert ("warning", "MinJobAge") in not_ok(check(devcluster(), info))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            "CALCULATE_RUNNING,ACCRUE_ALWAYS",
            "ACCRUE_ALWAYS: a standby gains age priority while pending",
        ),
        (
            "CALCULATE_RUNNING",
            "no ACCRUE_ALWAYS: a standby gains age priority only after the attempt before it ended",
        ),
        (
            "",
            "no ACCRUE_ALWAYS: a standby gains age priority only after the attempt before it ended",
        ),
    ],
)
def test_whether_a_standby_gains_queue_age_is_said(flags: str, words: str) -> None:
    info = dataclasses.replace(DEV, settings={**DEV.settings, "PriorityFlags": flags})
    assert Finding(Level.OK, "PriorityFlags", words) in check(devcluster(), info)


def test_a_partition_of_the_highest_tier_is_never_preempted() -> None:
    inherits = dataclasses.replace(GPU, preempt_mode="REQUEUE")
    assert not DEV.is_preemptible(inherits)
    assert DEV.is_preemptible(dataclasses.replace(inherits, priority_tier=1))
    never = dataclasses.replace(DEV, settings={"PreemptType": "preempt/none"})
    assert not never.is_preemptible(SPOT)


# --- the real one ----------------------------------------------------------------------------


@pytest.mark.cluster
def test_the_running_development_cluster_agrees_with_its_file_and_with_its_own_detection(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in cluster.env().items():
        monkeypatch.setenv(name, value)
    live = SlurmCommands(clock=SystemClock()).cluster_info()
    assert not_ok(check(devcluster(), live)) == []
    assert not_ok(check(read(detect(live, environ={})), live)) == []
    assert recognize(search_path(tmp_path)).name == "devcluster"
    mine = choosing("qos: normal", "constraint: a100", partition="null")
    assert about_choice(mine, live) == [("ok", ".qos"), ("ok", ".constraint"), ("warning", "")]
    theirs = choosing("qos: nonesuch", "constraint: nonesuch")
    assert about_choice(theirs, live) == [("error", ".qos"), ("error", ".constraint")]


# --- how long jobs run on after their time limit ---------------------------------------------


@pytest.mark.parametrize(
    ("kill_wait", "over", "expected_s"),
    [("5 sec", "0 min", 35), ("30 sec", "0 min", 60), ("30 sec", "2 min", 180)],
)
def test_how_long_a_job_may_run_on_is_written_and_compared(
    kill_wait: str, over: str, expected_s: int
) -> None:
    told = {"KillWait": kill_wait, "OverTimeLimit": over}
    info = dataclasses.replace(DEV, settings={**DEV.settings, **told})
    assert read(detect(info, environ={})).time_limit_overrun_s == expected_s
    site = devcluster().model_copy(update={"time_limit_overrun_s": expected_s})
    assert not_ok(check(site, info)) == []
    less = site.model_copy(update={"time_limit_overrun_s": expected_s - 1})
    (finding,) = (each for each in check(less, info) if each.level is Level.WARNING)
    assert finding.key == "time_limit_overrun"
    assert f"a job may run {expected_s} s past its time limit" in finding.message


def test_where_jobs_may_run_on_for_ever_it_is_said() -> None:
    told = {"KillWait": "30 sec", "OverTimeLimit": "UNLIMITED"}
    info = dataclasses.replace(DEV, settings={**DEV.settings, **told})
    assert not_ok(check(devcluster(), info)) == [("warning", "time_limit_overrun")]
    assert read(detect(info, environ={})).time_limit_overrun_s == 60


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("PrologFlags", "Alloc,ForceRequeueOnFail"),
        ("SchedulerParameters", "bf_continue,requeue_on_resume_failure"),
    ],
)
def test_settings_that_restart_jobs_despite_no_requeue_are_named(key: str, value: str) -> None:
    info = dataclasses.replace(DEV, settings={**DEV.settings, key: value})
    (finding,) = (each for each in check(devcluster(), info) if each.level is not Level.OK)
    assert (finding.level, finding.key) == (Level.WARNING, key)
    assert "despite --no-requeue" in finding.message


@pytest.mark.parametrize(
    ("exempt", "mode", "is_told"),
    [
        ("01:00:00", "REQUEUE", True),
        ("1-00:30:00", "REQUEUE", True),
        ("00:00:00", "REQUEUE", False),
        ("UNLIMITED", "REQUEUE", False),
        ("01:00:00", "OFF", False),
    ],
)
def test_how_long_a_job_is_exempt_from_preemption_is_told_where_jobs_are_preempted(
    exempt: str, mode: str, is_told: bool
) -> None:
    partitions = tuple(
        dataclasses.replace(each, preempt_mode=mode if each.name == "spot" else "OFF")
        for each in DEV.partitions
    )
    settings = {**DEV.settings, "PreemptExemptTime": exempt}
    info = dataclasses.replace(DEV, settings=settings, partitions=partitions)
    told = [each for each in check(devcluster(), info) if each.key == "PreemptExemptTime"]
    assert [each.level for each in told] == [Level.OK] * is_told
    assert all(f"in its first {exempt}" in each.message for each in told)
