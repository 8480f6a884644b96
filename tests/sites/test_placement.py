"""Placing a run on a site: what it did not say is filled in, what cannot be is refused by name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from hpcflow.config import load_spec
from hpcflow.errors import SpecError
from hpcflow.model.execution import Launcher
from hpcflow.sites.placement import Placement, place
from tests.sites.build import site, spec

CLUSTER = site(
    """
    name: alpha
    partitions:
      gpu: &gpu
        gpu_type: a100
        gpus_per_node: 4
        cpus_per_node: 32
        mem_per_node: 256G
        nodes_min: 1
        nodes_max: 8
        time_limit_max: 24h
        time_limit_default: 1h
      big:
        gpu_type: h100
        gpus_per_node: 8
        cpus_per_node: 96
        nodes_min: 2
        nodes_max: 64
        time_limit_max: 12h
        whole_nodes: true
        qos: large
        constraint: nvme
      cpu: {cpus_per_node: 64, time_limit_max: 72h}
      mixed: {gpus_per_node: 2, cpus_per_node: 16, auto: false}
    gpu_types:
      a100: {mem: 80G, gres_name: nvidia_a100}
      h100: {mem: 80G}
    accounts: [physics, biology]
    scratch: {path: /scratch}
    """
)
LOCAL = site(
    """
    name: here
    scheduler: local
    partitions: {local: {cpus_per_node: 2, gpus_per_node: 1, mem_per_node: 4G}}
    scratch: {path: /scratch}
    """
)
STRICT = site(
    """
    name: strict
    dialect:
      gpus: implied
      gpu_type_in_request: false
      mem: false
      required: [account, time_limit]
    launch: {pytorch: srun}
    partitions:
      all: {gpus_per_node: 4, gpu_type: gh200, cpus_per_node: 288, whole_nodes: true}
    gpu_types: {gh200: {mem: 96G}}
    scratch: {path: /scratch}
    """
)


def refused(on: Any, launch: dict[str, Any] | None = None, **resources: Any) -> SpecError:
    """The error about a run that asks for ``resources``."""
    with pytest.raises(SpecError) as caught:
        place(spec(launch=launch, **resources), on)
    return caught.value


# --- what fits -------------------------------------------------------------------------------


def test_a_run_gets_the_first_partition_and_its_defaults() -> None:
    placement = place(spec(gpus_per_node=1), CLUSTER)
    assert placement == Placement(
        partition="gpu",
        options=CLUSTER.partitions["gpu"],
        slurm_partition="gpu",
        gpu_type="a100",
        gres_name="nvidia_a100",
        account=None,
        qos=None,
        constraint=None,
        nodes=1,
        gpus_per_node=1,
        ranks_per_node=1,
        cpus_per_task=8,
        mem_mb=None,
        time_limit_min=60,
        launcher=Launcher.TORCHRUN,
    )


KINDS = site(
    """
    name: kinds
    partitions:
      a100: {partition: general, gpu_type: a100, gpus_per_node: 4, cpus_per_node: 32}
      h100: {partition: general, gpu_type: h100, gpus_per_node: 8, cpus_per_node: 96}
      cpu: {partition: general, cpus_per_node: 64}
      long: {partition: general, cpus_per_node: 64, nodes_max: 1, qos: long}
      long-h100:
        {partition: general, gpu_type: h100, gpus_per_node: 8, cpus_per_node: 96, qos: long}
    gpu_types: {a100: {}, h100: {}}
    scratch: {path: /scratch}
    """
)


@pytest.mark.parametrize(
    ("resources", "partition"),
    [
        ({"gpus_per_node": 4}, "a100"),
        ({"gpus_per_node": 5}, "h100"),
        ({"gpus_per_node": 1, "gpu_type": "h100"}, "h100"),
        ({}, "cpu"),
        ({"cpus_per_task": 90}, "h100"),
        ({"qos": "long"}, "long"),
        ({"qos": "long", "gpus_per_node": 8}, "long-h100"),
    ],
)
def test_a_partition_of_slurm_means_the_first_kind_of_its_nodes_that_fits(
    resources: dict[str, Any], partition: str
) -> None:
    placement = place(spec(partition="general", **resources), KINDS)
    assert (placement.partition, placement.slurm_partition) == (partition, "general")


def test_what_fits_no_kind_of_node_is_refused_with_all_reasons() -> None:
    error = refused(KINDS, partition="general", gpus_per_node=9)
    assert [line.partition(":")[0].strip() for line in str(error).splitlines()[1:4]] == [
        *("a100", "h100", "cpu")
    ]


def test_auto_goes_on_until_everything_fits() -> None:
    assert place(spec(nodes=8, gpus_per_node=4), CLUSTER).partition == "gpu"
    assert place(spec(nodes=9, gpus_per_node=4), CLUSTER).partition == "big"
    assert place(spec(nodes=2, gpus_per_node=8), CLUSTER).partition == "big"
    assert place(spec(gpu_type="h100", gpus_per_node=1, nodes=2), CLUSTER).partition == "big"
    assert place(spec(nodes=65, time_limit="48h"), CLUSTER).partition == "cpu"


def test_a_run_without_gpus_leaves_the_gpus_to_others_where_it_can() -> None:
    assert place(spec(), CLUSTER).partition == "cpu"
    assert place(spec(partition="gpu"), CLUSTER).partition == "gpu", "unless it asks for them"
    small = site(
        """
        name: small
        partitions:
          gpu: {gpus_per_node: 4, cpus_per_node: 64}
          cpu: {cpus_per_node: 8}
        scratch: {path: /scratch}
        """
    )
    assert place(spec(cpus_per_task=8), small).partition == "cpu"
    assert place(spec(cpus_per_task=9), small).partition == "gpu", "where it fits nowhere else"


def test_a_partition_may_be_named_as_slurm_names_it_with_its_qos() -> None:
    named = site(
        """
        name: leo
        partitions:
          production: {partition: prod, cpus_per_node: 1, nodes_max: 4}
          large: {partition: prod, qos: big, cpus_per_node: 1, nodes_min: 5}
        scratch: {path: /scratch}
        """
    )
    assert place(spec(partition="prod"), named).partition == "production"
    assert place(spec(partition="prod", qos="big", nodes=5), named).partition == "large"
    assert place(spec(partition="auto", qos="big", nodes=5), named).partition == "large"
    placement = place(spec(partition="production", qos="odd"), named)
    assert (placement.partition, placement.slurm_partition, placement.qos) == (
        "production",
        "prod",
        "odd",
    )


def test_where_the_qos_decides_no_partition_is_named() -> None:
    by_qos = site(
        """
        name: perl
        partitions: {regular: {partition: null, qos: regular, constraint: gpu, cpus_per_node: 128}}
        scratch: {path: /scratch}
        """
    )
    placement = place(spec(), by_qos)
    assert (placement.slurm_partition, placement.qos, placement.constraint) == (
        None,
        "regular",
        "gpu",
    )


@pytest.mark.parametrize(
    ("resources", "cpus"),
    [
        ({"gpus_per_node": 1}, 8),
        ({"gpus_per_node": 3}, 8),
        ({"gpus_per_node": 4, "tasks_per_node": 1}, 32),
        ({"gpus_per_node": 1, "tasks_per_node": 16}, 1),
        ({}, 1),
        ({"tasks_per_node": 8}, 1),
        ({"gpus_per_node": 2, "cpus_per_task": 3}, 3),
        ({"partition": "big", "nodes": 2}, 96),
        ({"partition": "big", "nodes": 2, "gpus_per_node": 8}, 12),
        ({"partition": "big", "nodes": 2, "gpus_per_node": 2}, 48),
    ],
)
def test_ranks_share_the_cores_that_the_run_gets(resources: dict[str, Any], cpus: int) -> None:
    assert place(spec(**resources), CLUSTER).cpus_per_task == cpus


def test_the_type_of_gpu_goes_into_the_request_as_slurm_calls_it() -> None:
    placement = place(spec(gpus_per_node=1), CLUSTER)
    assert (placement.gpu_type, placement.gres_name) == ("a100", "nvidia_a100")
    placement = place(spec(gpus_per_node=1, partition="mixed"), CLUSTER)
    assert (placement.gpu_type, placement.gres_name) == (None, None)
    placement = place(spec(gpus_per_node=1, partition="mixed", gpu_type="h100"), CLUSTER)
    assert (placement.gpu_type, placement.gres_name) == ("h100", "h100")
    placement = place(spec(gpus_per_node=4, account="x", time_limit="1h"), STRICT)
    assert (placement.gpu_type, placement.gres_name) == ("gh200", None)


def test_a_gpu_type_without_gpus_asks_for_nothing() -> None:
    assert place(spec(gpu_type="a100"), CLUSTER).gpu_type is None


@pytest.mark.parametrize(
    ("partition", "asked", "limit"),
    [("gpu", None, 60), ("gpu", "24h", 1440), ("big", None, 720), ("mixed", None, None)],
)
def test_the_time_limit_is_the_runs_else_the_default_else_the_longest(
    partition: str, asked: str | None, limit: int | None
) -> None:
    resources: dict[str, Any] = {"time_limit": asked} if asked else {}
    run = spec(partition=partition, nodes=2, **resources)
    assert place(run, CLUSTER).time_limit_min == limit


def test_limits_that_grow_with_the_job_are_known() -> None:
    frontier = site(
        """
        name: front
        partitions:
          batch:
            cpus_per_node: 56
            time_limit_max: 12h
            time_limit_bins:
              - {nodes_max: 91, time_limit_max: 2h}
              - {nodes_max: 183, time_limit_max: 6h}
          debug: {cpus_per_node: 56, time_limit_max: 90m, node_time_max: 90m, auto: false}
        scratch: {path: /scratch}
        """
    )
    limits = {n: place(spec(nodes=n), frontier).time_limit_min for n in (1, 91, 92, 183, 184)}
    assert limits == {1: 120, 91: 120, 92: 360, 183: 360, 184: 720}
    assert place(spec(nodes=4, partition="debug"), frontier).time_limit_min == 22
    error = refused(frontier, nodes=91, time_limit="3h")
    assert "allows to 91 nodes at most 2h 00m" in error.message


@pytest.mark.parametrize(
    ("framework", "launcher"),
    [("pytorch", "torchrun"), ("tensorflow", "srun"), ("jax", "srun"), ("mpi", "srun")],
)
def test_the_framework_decides_who_launches(framework: str, launcher: str) -> None:
    run = spec(launch={"framework": framework}, nodes=2)
    assert place(run, CLUSTER).launcher.value == launcher


def test_the_site_decides_for_pytorch_and_the_run_over_both() -> None:
    resources: dict[str, Any] = {"account": "x", "time_limit": "1h"}
    assert place(spec(**resources), STRICT).launcher is Launcher.SRUN
    run = spec(launch={"launcher": "torchrun"}, **resources)
    assert place(run, STRICT).launcher is Launcher.TORCHRUN


def test_a_plain_command_is_one_process_with_all_the_gpus() -> None:
    placement = place(spec(launch={"framework": "none"}, gpus_per_node=4), CLUSTER)
    assert (placement.launcher, placement.ranks_per_node) == (Launcher.NONE, 1)
    assert placement.cpus_per_task == 32


def test_a_command_of_one_rank_is_a_job_step_and_needs_no_torch() -> None:
    def launcher(**resources: Any) -> Launcher:
        run = spec(**resources).model_copy(update={"script": None, "command": ["./simulate"]})
        return place(run, CLUSTER).launcher

    assert launcher() is Launcher.SRUN
    assert launcher(gpus_per_node=1) is Launcher.SRUN
    assert launcher(gpus_per_node=4, tasks_per_node=1) is Launcher.SRUN
    assert launcher(gpus_per_node=2) is Launcher.TORCHRUN
    assert launcher(tasks_per_node=2) is Launcher.TORCHRUN
    assert launcher(nodes=2) is Launcher.TORCHRUN
    assert place(spec(), CLUSTER).launcher is Launcher.TORCHRUN, "a script is a torch program"


@pytest.mark.parametrize(
    ("asked", "combined"),
    [
        (None, "nvme"),
        ("ib", "nvme&ib"),
        ("ib&nvme", "ib&nvme"),
        ("nvme&(a|b)", "nvme&(a|b)"),
    ],
)
def test_the_runs_constraint_joins_the_partitions(asked: str | None, combined: str) -> None:
    resources: dict[str, Any] = {"constraint": asked} if asked else {}
    run = spec(partition="big", nodes=2, **resources)
    assert place(run, CLUSTER).constraint == combined


def test_on_one_machine_ranks_may_share_a_core() -> None:
    placement = place(spec(tasks_per_node=4, cpus_per_task=2, mem="64G"), LOCAL)
    assert (placement.ranks_per_node, placement.cpus_per_task) == (4, 2)


# --- what does not ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resources", "key", "message", "action"),
    [
        ({"partition": "gpuu"}, "partition", "no partition 'gpuu'", "did you mean gpu?"),
        ({"gpu_type": "h10", "gpus_per_node": 1}, "gpu_type", "no GPU type 'h10'", "h100"),
        ({"account": "phisics"}, "account", "no account 'phisics'", "did you mean physics?"),
        (
            {"partition": "gpu", "gpu_type": "h100", "gpus_per_node": 1},
            "gpu_type",
            "partition gpu has a100, and the run asks for h100",
            "partition big has h100",
        ),
        (
            {"partition": "gpu", "gpus_per_node": 5},
            "gpus_per_node",
            "5 GPUs per node, and a node of partition gpu has 4",
            "4 or fewer",
        ),
        (
            {"partition": "cpu", "gpus_per_node": 1},
            "gpus_per_node",
            "a node of partition cpu has none",
            "hpcflow site show alpha",
        ),
        ({"partition": "gpu", "nodes": 9}, "nodes", "at most 8", "8 or fewer"),
        ({"partition": "big", "nodes": 1}, "nodes", "1 node, .* requires at least 2", "2 or more"),
        (
            {"partition": "gpu", "cpus_per_task": 33},
            "cpus_per_task",
            "1 rank × 33 CPU cores, and a node of partition gpu has 32",
            "resources.cpus_per_task=32",
        ),
        (
            {"partition": "gpu", "tasks_per_node": 33},
            "tasks_per_node",
            "33 ranks × 1 CPU core,",
            "resources.tasks_per_node=32 or less",
        ),
        (
            {"partition": "gpu", "mem": "257G"},
            "mem",
            "257G of memory, and a node of partition gpu has 256G",
            "256G or less",
        ),
        (
            {"partition": "gpu", "time_limit": "25h"},
            "time_limit",
            "1d 1h, and partition gpu allows at most 1d 0h",
            "resources.time_limit=1-00:00:00",
        ),
        (
            {"partition": "big", "nodes": 2, "constraint": "a|b"},
            "constraint",
            "needs the constraint nvme",
            "with nvme in it",
        ),
    ],
)
def test_what_does_not_fit_is_named_with_what_would(
    resources: dict[str, Any], key: str, message: str, action: str
) -> None:
    error = refused(CLUSTER, **resources)
    assert error.where is not None
    assert error.where.key == f"resources.{key}"
    assert re.search(message, error.message)
    assert action in (error.next_action or "")
    assert error.exit_code == 2


def test_when_no_partition_fits_each_says_why() -> None:
    error = refused(CLUSTER, nodes=9, gpus_per_node=4, time_limit="20h")
    assert "no partition of site alpha fits" in error.message
    assert "\n  gpu: 9 nodes, and partition gpu allows at most 8" in error.message
    assert "\n  big: 20h 00m, and partition big allows at most 12h 00m" in error.message
    assert "\n  cpu: 4 GPUs per node, and a node of partition cpu has none" in error.message
    assert "mixed" not in error.message


def test_a_key_that_every_partition_complains_about_is_the_one_to_look_at() -> None:
    error = refused(CLUSTER, nodes=2, time_limit="100h")
    assert error.where is not None
    assert error.where.key == "resources.time_limit"


def test_a_site_without_partitions_for_auto_wants_one_named() -> None:
    picky = site(
        "name: p\nscratch: {path: /s}\npartitions: {debug: {cpus_per_node: 1, auto: false}}"
    )
    error = refused(picky)
    assert "auto" in error.message
    assert "debug" in (error.next_action or "")


@pytest.mark.parametrize(
    ("resources", "key"),
    [
        ({}, "account"),
        ({"account": "x"}, "time_limit"),
        ({"account": "x", "time_limit": "1h", "mem": "1G"}, "mem"),
    ],
)
def test_the_dialect_has_its_musts_and_must_nots(resources: dict[str, Any], key: str) -> None:
    error = refused(STRICT, **resources)
    assert error.where is not None
    assert error.where.key == f"resources.{key}"


def test_one_machine_is_one_node() -> None:
    assert "this machine alone" in refused(LOCAL, nodes=2).message
    assert "has 1" in refused(LOCAL, gpus_per_node=2).message


def test_one_process_cannot_fill_several_nodes_or_ranks() -> None:
    alone = {"launcher": "none"}
    assert "the other 3 would idle" in refused(CLUSTER, alone, nodes=4).message
    assert "not 2 times" in refused(CLUSTER, alone, tasks_per_node=2).message


@pytest.mark.parametrize("framework", ["tensorflow", "jax", "mpi"])
def test_torchrun_is_refused_where_the_ranks_would_not_find_each_other(framework: str) -> None:
    error = refused(CLUSTER, {"launcher": "torchrun", "framework": framework}, nodes=2)
    assert error.where is not None
    assert error.where.key == "launch.launcher"
    assert error.message.startswith(f"torchrun sets up no rendezvous for {framework}")
    assert "launch.launcher=srun" in (error.next_action or "")


def test_the_error_points_into_the_file(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("name: x\nscript: t.py\nresources:\n  nodes: 2\n  partition: gpuu\n")
    (tmp_path / "t.py").touch()
    loaded = load_spec(path)
    with pytest.raises(SpecError) as caught:
        place(loaded.spec, CLUSTER, loaded.document)
    assert str(caught.value).startswith(f"{path}:5, resources.partition: ")
    loaded = load_spec(path, ["resources.partition=auto", "resources.gpus_per_node=9"])
    with pytest.raises(SpecError, match=r"--set resources\.gpus_per_node"):
        place(loaded.spec, CLUSTER, loaded.document)
