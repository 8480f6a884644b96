"""On clusters unlike the development cluster, `site detect` writes a file that Slurm agrees with.

Recorded answers of real clusters are compared in `make test`, as is one real cluster; `make soak`
starts all of them, with every version of Slurm. What they are: hpcflow/testing/cluster/layouts.py.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcflow.clock import SystemClock
from hpcflow.schedulers.slurm.commands import SlurmCommands
from hpcflow.sites.check import Level, check
from hpcflow.sites.detect import detect
from hpcflow.sites.loader import read_site
from hpcflow.sites.schema import GpuDialect
from hpcflow.testing.cluster import Cluster, packages
from hpcflow.testing.cluster.releases import SUITES, version_of
from tests.cluster_fixture import TREE, need
from tests.recorded.layout import answer
from tests.schedulers.as_user import AsUser
from tests.sites.build import site
from tests.sites.unlike import CLOSED, requests
from tests.sites.unlike_recorded import Recorded

FOLDERS = sorted((TREE / "tests/recorded/layouts").glob("*/truth.json"))
recordings = pytest.mark.parametrize(
    "folder", [each.parent for each in FOLDERS], ids=[each.parent.name for each in FOLDERS]
)


def closed(folder: Path) -> set[str]:
    """Partitions of this layout that are closed to the user."""
    return CLOSED[folder.name.partition("-")[0]]


@recordings
def test_a_detected_file_agrees_with_its_cluster(folder: Path) -> None:
    recorded = Recorded(folder)
    findings = check(recorded.site(), recorded.info())
    strange = [each.key for each in findings if each.level is not Level.OK]
    assert set(strange) <= {"partitions.closed", "partitions.drained"}


@recordings
def test_slurm_took_what_a_detected_file_allows(folder: Path) -> None:
    recorded = Recorded(folder)
    said = {
        (each["partition"], each["options"]): (each["is_taken"], each["complaint"])
        for each in recorded.truth["answers"]
    }
    detected = recorded.site()
    for request in requests(detected):
        key = request.partition, request.options
        assert key in said, f"not recorded, record {folder.name} again: {key}"
        is_taken, complaint = said[key]
        is_open = request.partition not in closed(folder)
        assert is_taken is is_open, (key, complaint)
        assert is_open or not detected.partitions[request.partition].auto


@pytest.mark.parametrize("version", ["22.05.8", "24.11.5", "26.05.5"])
def test_what_a_file_says_of_nodes_and_users_unlike_ours(version: str) -> None:
    detected = Recorded(TREE / f"tests/recorded/layouts/unlike-{version}").site()
    found = detected.partitions
    mixed = [name for name, each in found.items() if each.slurm_partition == "all"]
    assert sorted(mixed) == [
        *("all-a100", "all-a100_1g.5gb", "all-a100_3g.20gb", "all-cpu", "all-gpu", "all-h100"),
        "all-mi250x",
    ]
    amd, sockets, narrow = found["standard-g"], found["sockets"], found["narrow-h100"]
    assert (amd.gpu_type, amd.gpus_per_node, amd.cpus_per_node) == ("mi250x", 8, 112)
    assert (amd.whole_nodes, amd.nodes_max) == (True, 2)
    assert (sockets.gpu_type, sockets.gpus_per_node, sockets.cpus_per_node) == ("h100", 4, 16)
    assert (narrow.cpus_per_node, narrow.mem_per_node_mb, narrow.nodes_max) == (4, 2000, 1)
    assert (found["untyped"].gpu_type, found["untyped"].gpus_per_node) == (None, 2)
    assert {name: each.mem_mb for name, each in detected.gpu_types.items()} == {
        "a100": None,
        "a100_1g.5gb": 5120,
        "a100_3g.20gb": 20480,
        "h100": 81920,
        "mi250x": 65536,
    }
    assert detected.gpu_types["mi250x"].vendor == "amd"
    assert found["long"].qos == "long"
    assert {name for name, each in found.items() if not each.auto and not each.preemptible} == {
        *CLOSED["unlike"]
    }


@pytest.mark.parametrize("version", ["22.05.8", "24.11.5", "26.05.5"])
def test_what_a_file_says_where_slurm_says_little(version: str) -> None:
    recorded = Recorded(TREE / f"tests/recorded/layouts/alone-{version}")
    found = recorded.site()
    batch = found.partitions["batch"]
    assert (batch.whole_nodes, batch.nodes_max, batch.cpus_per_node) == (True, 3, 16)
    assert not found.partitions["shared"].whole_nodes
    assert not found.has_accounting
    assert found.dialect.gpus is GpuDialect.IMPLIED
    assert "sizes are averages" in recorded.text()


# --- the real ones ---------------------------------------------------------------------------


@pytest.fixture
def elsewhere(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster of the layout and the version that the test names."""
    need(packages.require)
    layout, suite = request.param
    cluster = Cluster(f"/var/tmp/hpcflow-unlike-{os.getpid()}")
    try:
        cluster.up(layout=layout, version=None if suite is None else version_of(suite))
        yield cluster
    finally:
        cluster.down(purge=True)


RUN = """\
name: small
command: [hostname]
launch: {framework: none}
resources: {time_limit: 5m}
"""


def on(*layouts_and_suites: tuple[str, str | None]) -> pytest.MarkDecorator:
    """Run a test on each of these clusters."""
    return pytest.mark.parametrize("elsewhere", layouts_and_suites, ids=str, indirect=True)


@pytest.mark.cluster
@pytest.mark.xdist_group("own-cluster")
@on(("unlike", None))
def test_slurm_takes_a_job_for_each_partition_that_a_user_detects(elsewhere: Cluster) -> None:
    ada = elsewhere.user("hpcf-ada")
    slurm = AsUser(SlurmCommands(clock=SystemClock()), ada)
    info, standing = slurm.cluster_info(), slurm.standing(ada.name)
    text = detect(info, environ={}, standing=standing, groups=frozenset({ada.name}))
    first = {request.partition: request for request in reversed([*requests(site(text))])}
    assert len(first) > 30
    for request in first.values():
        said = answer(ada, request)
        assert said["is_taken"] is (request.partition not in CLOSED["unlike"]), said


@pytest.mark.soak
@pytest.mark.cluster
@pytest.mark.xdist_group("own-cluster")
@on(*itertools.product(CLOSED, (None, *SUITES)))
def test_every_job_that_a_written_file_allows_is_taken_and_one_runs(elsewhere: Cluster) -> None:
    elsewhere.software(TREE, Path(sys.executable))
    ada = elsewhere.user("hpcf-ada")
    written = json.loads(ada.run(["hpcflow", "site", "detect", "--write", "--json"]).stdout)
    found = ada.run(["hpcflow", "site", "check", written["name"], "--json"], check=False)
    findings = json.loads(found.stdout)["findings"]
    strange = [each["key"] for each in findings if each["level"] != "ok"]
    assert set(strange) <= {"partitions.closed", "partitions.drained"}
    assert found.returncode == 0
    layout = elsewhere.settings.layout_name
    assert layout is not None
    for request in requests(read_site(Path(written["path"]))):
        said = answer(ada, request)
        assert said["is_taken"] is (request.partition not in CLOSED[layout]), said
    (ada.scratch / "config.yaml").write_text(RUN)
    run_id = json.loads(ada.run(["hpcflow", "run", "config.yaml", "--json"]).stdout)["run_id"]
    assert ada.run(["hpcflow", "wait", run_id], timeout=300, check=False).returncode == 0
