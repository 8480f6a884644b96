"""Every site file that hpcflow ships: it loads, takes the job that its site documents, no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcflow.errors import SpecError
from hpcflow.resources import resource_dir
from hpcflow.sites.loader import list_sites, load_site
from hpcflow.sites.placement import Placement, place
from hpcflow.sites.schema import GpuDialect, SchedulerKind, Site
from tests.sites.build import spec

SHIPPED = [resource_dir("site_configs")]
ENTRIES = list_sites(SHIPPED)
NAMES = [entry.name for entry in ENTRIES]
CLUSTERS = [
    name for name in NAMES if load_site(name, search=SHIPPED).scheduler is SchedulerKind.SLURM
]


def shipped(name: str) -> Site:
    """The shipped site of that name."""
    return load_site(name, search=SHIPPED)


def placed(name: str, **resources: Any) -> Placement:
    """Where a run that asks for ``resources`` goes on a shipped site."""
    return place(spec(**resources), shipped(name))


def test_the_sites_that_hpcflow_knows() -> None:
    assert NAMES == [
        "clariden",
        "devcluster",
        "frontier",
        "jean-zay",
        "leonardo",
        "local",
        "lonestar6",
        "lumi-g",
        "perlmutter",
        "vista",
    ]


@pytest.mark.parametrize("entry", ENTRIES, ids=NAMES)
def test_every_file_loads_and_tells_people_what_it_is(entry: Any) -> None:
    assert entry.problem is None
    assert entry.description
    assert entry.path.name == f"{entry.name}.yaml"


@pytest.mark.parametrize("name", CLUSTERS)
def test_every_cluster_can_be_recognized_and_says_where_its_facts_are_from(name: str) -> None:
    site = shipped(name)
    assert site.cluster_name or site.hosts
    assert site.source


#: The job that each site's own documentation shows, and what must become of it.
DOCUMENTED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "clariden",
        {"account": "g123", "nodes": 2, "gpus_per_node": 4, "time_limit": "1h"},
        {"slurm_partition": "normal", "ranks_per_node": 4, "cpus_per_task": 72},
    ),
    (
        "frontier",
        {"account": "abc123", "nodes": 2, "gpus_per_node": 8, "time_limit": "1h"},
        {"slurm_partition": "batch", "cpus_per_task": 7, "launcher": "srun"},
    ),
    (
        "frontier",
        {"account": "abc123", "nodes": 64, "gpus_per_node": 8, "time_limit": "24h"},
        {"slurm_partition": "extended"},
    ),
    (
        "vista",
        {"nodes": 2, "gpus_per_node": 1, "time_limit": "1h", "partition": "gh-dev"},
        {"slurm_partition": "gh-dev", "cpus_per_task": 72, "gres_name": None},
    ),
    (
        "lonestar6",
        {"nodes": 2, "gpus_per_node": 3, "time_limit": "2h"},
        {"slurm_partition": "gpu-a100", "gres_name": None},
    ),
    (
        "lonestar6",
        {"gpus_per_node": 2, "gpu_type": "h100", "time_limit": "48h"},
        {"slurm_partition": "gpu-h100", "cpus_per_task": 48},
    ),
    ("lonestar6", {"time_limit": "2h"}, {"slurm_partition": "normal", "gpus_per_node": 0}),
    ("vista", {"time_limit": "2h"}, {"slurm_partition": "gg", "gpus_per_node": 0}),
    (
        "lumi-g",
        {"account": "project_465", "nodes": 4, "gpus_per_node": 8, "time_limit": "36h"},
        {"slurm_partition": "standard-g", "cpus_per_task": 7, "gres_name": None},
    ),
    (
        "lumi-g",
        {"account": "project_465", "gpus_per_node": 2, "time_limit": "72h"},
        {"slurm_partition": "small-g", "cpus_per_task": 7},
    ),
    (
        "perlmutter",
        {"account": "m1234_g", "nodes": 4, "gpus_per_node": 4, "time_limit": "6h"},
        {
            "slurm_partition": None,
            "qos": "regular",
            "constraint": "gpu",
            "cpus_per_task": 32,
        },
    ),
    (
        "perlmutter",
        {"account": "m1234_g", "gpus_per_node": 4, "gpu_type": "a100-80g"},
        {"constraint": "gpu&hbm80g", "qos": "regular"},
    ),
    (
        "perlmutter",
        {"account": "m1234_g", "gpus_per_node": 1},
        {"qos": "shared", "cpus_per_task": 32},
    ),
    (
        "leonardo",
        {"account": "iscrb_x", "nodes": 2, "gpus_per_node": 4, "time_limit": "24h"},
        {"slurm_partition": "boost_usr_prod", "qos": None, "cpus_per_task": 8},
    ),
    (
        "leonardo",
        {"account": "iscrb_x", "nodes": 128, "gpus_per_node": 4, "time_limit": "24h"},
        {"slurm_partition": "boost_usr_prod", "qos": "boost_qos_bprod"},
    ),
    (
        "leonardo",
        {"account": "x", "partition": "boost_usr_prod", "qos": "boost_qos_dbg"},
        {"slurm_partition": "boost_usr_prod", "time_limit_min": 30},
    ),
    (
        "jean-zay",
        {"account": "abc@h100", "nodes": 2, "gpus_per_node": 4, "time_limit": "20h"},
        {
            "slurm_partition": "gpu_p6",
            "qos": "qos_gpu_h100-t3",
            "constraint": "h100",
            "cpus_per_task": 24,
        },
    ),
    (
        "jean-zay",
        {"account": "abc@h100", "nodes": 4, "gpus_per_node": 4, "time_limit": "100h"},
        {"qos": "qos_gpu_h100-t4"},
    ),
    (
        "devcluster",
        {"nodes": 2, "gpus_per_node": 2, "account": "physics"},
        {"slurm_partition": "gpu", "gres_name": "a100", "cpus_per_task": 2},
    ),
    ("local", {"tasks_per_node": 2}, {"partition": "local", "nodes": 1}),
]


@pytest.mark.parametrize(
    ("name", "resources", "expected"),
    DOCUMENTED,
    ids=[f"{each[0]}-{index}" for index, each in enumerate(DOCUMENTED)],
)
def test_the_documented_job_fits(
    name: str, resources: dict[str, Any], expected: dict[str, Any]
) -> None:
    placement = placed(name, **resources)
    assert {key: getattr(placement, key) for key in expected} == expected


def test_every_site_has_a_documented_job() -> None:
    assert {each[0] for each in DOCUMENTED} == set(NAMES)


#: What each site would refuse, and the key that it is refused for.
TOO_MUCH: list[tuple[str, dict[str, Any], str]] = [
    ("clariden", {"account": "g", "gpus_per_node": 5}, "gpus_per_node"),
    ("clariden", {"gpus_per_node": 4}, "account"),
    (
        "clariden",
        {"account": "g", "partition": "debug", "nodes": 4, "time_limit": "30m"},
        "time_limit",
    ),
    ("frontier", {"account": "a", "nodes": 70, "time_limit": "3h"}, "partition"),
    ("frontier", {"account": "a", "nodes": 9473}, "nodes"),
    ("vista", {"gpus_per_node": 2}, "gpus_per_node"),
    ("vista", {"gpus_per_node": 1, "mem": "10G"}, "mem"),
    ("lonestar6", {"gpus_per_node": 3, "gpu_type": "h100"}, "partition"),
    ("lumi-g", {"account": "p", "nodes": 1025}, "nodes"),
    ("lumi-g", {"account": "p", "cpus_per_task": 64}, "cpus_per_task"),
    ("perlmutter", {"account": "m", "time_limit": "49h"}, "time_limit"),
    ("leonardo", {"account": "x", "nodes": 257}, "nodes"),
    ("jean-zay", {"account": "x@h100", "nodes": 5, "time_limit": "30h"}, "partition"),
    ("devcluster", {"nodes": 5}, "nodes"),
    ("devcluster", {"partition": "short", "time_limit": "3m"}, "time_limit"),
    ("devcluster", {"account": "chemistry"}, "account"),
    ("local", {"nodes": 2}, "nodes"),
    ("local", {"gpus_per_node": 1000}, "gpus_per_node"),
]


@pytest.mark.parametrize(
    ("name", "resources", "key"),
    TOO_MUCH,
    ids=[f"{each[0]}-{each[2]}-{index}" for index, each in enumerate(TOO_MUCH)],
)
def test_more_than_there_is_is_refused(name: str, resources: dict[str, Any], key: str) -> None:
    with pytest.raises(SpecError) as caught:
        placed(name, **resources)
    assert caught.value.where is not None
    assert caught.value.where.key == f"resources.{key}"


def test_every_site_refuses_something() -> None:
    assert {each[0] for each in TOO_MUCH} == set(NAMES)


@pytest.mark.parametrize("name", CLUSTERS)
def test_nobody_is_preempted_or_sent_to_a_test_partition_unasked(name: str) -> None:
    for key, options in shipped(name).partitions.items():
        if options.preemptible or "dev" in key.split("-") or "debug" in key or "dbg" in key:
            assert not options.auto, key


@pytest.mark.parametrize("name", ["vista", "lonestar6"])
def test_tacc_is_never_spoken_to_in_words_that_it_rejects(name: str) -> None:
    dialect = shipped(name).dialect
    assert (dialect.gpus, dialect.mem, dialect.export) == (GpuDialect.IMPLIED, False, False)


def test_no_site_file_is_hidden_in_a_subfolder() -> None:
    files = {path.relative_to(SHIPPED[0]) for path in SHIPPED[0].rglob("*") if path.is_file()}
    assert {path for path in files if path.suffix not in (".py", ".pyc")} == {
        Path(f"{name}.yaml") for name in NAMES
    }


def test_every_site_is_in_the_documentation() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "sites.md").read_text()
    table = page.split("## Where the shipped facts come from")[1]
    assert [name for name in CLUSTERS if f"`{name}`" not in table] == []
