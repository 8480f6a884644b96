"""The local site fits whatever machine it is on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpcflow.sites.loader import Machine, fill_in, load_site, search_path, this_machine


def test_the_shipped_local_site_has_the_cpus_of_this_machine(tmp_path: Path) -> None:
    local = load_site("local", search=search_path(tmp_path))
    (partition,) = local.partitions.values()
    assert partition.cpus_per_node == len(os.sched_getaffinity(0))
    assert partition.mem_per_node_mb is not None
    assert partition.mem_per_node_mb > 100


def test_gpus_are_counted_by_their_devices(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert this_machine({}, tmp_path).gpus == 2


def test_amd_gpus_are_counted_only_where_they_can_compute(tmp_path: Path) -> None:
    (tmp_path / "dri").mkdir()
    (tmp_path / "dri" / "renderD128").touch()
    assert this_machine({}, tmp_path).gpus == 0
    (tmp_path / "kfd").touch()
    assert this_machine({}, tmp_path).gpus == 1


@pytest.mark.parametrize(("visible", "gpus"), [("", 0), ("-1", 0), ("1", 1), ("0,1,2", 2)])
def test_hidden_gpus_are_not_counted(tmp_path: Path, visible: str, gpus: int) -> None:
    for name in ("nvidia0", "nvidia1"):
        (tmp_path / name).touch()
    assert this_machine({"CUDA_VISIBLE_DEVICES": visible}, tmp_path).gpus == gpus


def test_only_the_word_machine_is_replaced() -> None:
    data = {
        "partitions": {
            "a": {"cpus_per_node": "machine", "mem_per_node": "machine", "gpus_per_node": 3},
            "b": "nonsense",
        }
    }
    fill_in(data, Machine(cpus=2, mem_mb=512, gpus=1))
    assert data["partitions"]["a"] == {
        "cpus_per_node": 2,
        "mem_per_node": "512M",
        "gpus_per_node": 3,
    }
    assert data["partitions"]["b"] == "nonsense"
    fill_in({"partitions": "nonsense"}, Machine(1, 1, 0))
