"""`hpcflow site show` tells a person all that decides where their run goes and what it costs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcflow.cli.main import main
from hpcflow.resources import resource_dir

#: Every key that a site file can have.
EVERYTHING = """\
name: alpha
description: "A cluster\\e[2J with all there is"
source: docs.alpha.org (2026)
scheduler: slurm
cluster_name: alps
hosts: ["login*.alpha.org"]
has_accounting: false
dialect:
  gpus: gpus-per-node
  gpu_type_in_request: false
  mem: false
  export: false
  required: [account, time_limit]
  options: ["--hint=nomultithread"]
partitions:
  large:
    partition: batch
    description: Production
    gpu_type: a100
    gpus_per_node: 4
    cpus_per_node: 64
    mem_per_node: 515000M
    nodes_min: 2
    nodes_max: 91
    time_limit_max: 24h
    time_limit_bins: [{nodes_max: 10, time_limit_max: 2h}]
    node_time_max: 90m
    time_limit_default: 30m
    whole_nodes: true
    preemptible: true
    grace: 5m
    qos: regular
    constraint: gpu&hbm80g
    auto: false
    price: {gpu_hour_usd: "1.10", node_hour_usd: "2.20", node_hour_su: "3.30", gpu_hour_su: "4.40"}
gpu_types:
  a100: {mem: 80G, gres_name: nvidia_a100, vendor: nvidia}
default_account: physics
accounts: [physics, biology]
scratch: {path: /scratch/$USER, purge_days: 30, filesystem: Lustre}
fabric: {variables: {NCCL_PROTO: ^LL128, NCCL_NET: AWS Libfabric}, master_port: 3442}
launch: {pytorch: srun, srun_options: ["--cpu-bind=cores"]}
modules: {init: /etc/modules.sh, load: [cuda/12.4, nccl]}
variables: {MIOPEN_CACHE: /tmp}
"""

SHOWN = [
    "with all there is", "docs.alpha.org (2026)", "slurm, cluster alps, no accounting",
    "login*.alpha.org", "/scratch/$USER, purged after 30 days, Lustre", "physics, biology",
    "default account   physics", "account, time_limit", "--gpus-per-node=N", "no --mem",
    "no --export", "--hint=nomultithread", "a100 (80G, nvidia, nvidia_a100 in Slurm)", "srun",
    "--cpu-bind=cores", "/etc/modules.sh", "cuda/12.4, nccl", "NCCL_PROTO=^LL128",
    "NCCL_NET=AWS Libfabric", "3442", "MIOPEN_CACHE=/tmp", "Production",
    "4 × a100, 64 CPUs, 502.9G a node, whole nodes", "2 to 91 nodes",
    "at most 2h up to 10 nodes, else 1d", "at most 90m of node-time",
    "30m if a run names no time limit", "preemptible after 5m", "partition batch in Slurm",
    "QOS regular", "constraint gpu&hbm80g", "1.10 USD a GPU-hour", "2.20 USD a node-hour",
    "3.30 SU a node-hour", "4.40 SU a GPU-hour", "not chosen by auto",
]  # fmt: skip


def test_everything_that_the_file_says_is_shown_in_human_units(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not home.exists()
    path = tmp_path / "alpha.yaml"
    path.write_text(EVERYTHING)
    assert main(["site", "show", str(path)]) == 0
    shown = capsys.readouterr().out
    assert [words for words in (*SHOWN, str(path)) if words not in shown] == []
    assert "\x1b[2J" not in shown
    assert main(["site", "show", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["file"] == str(path)


@pytest.mark.parametrize("path", sorted(resource_dir("site_configs").glob("*.yaml")))
def test_every_shipped_site_can_be_shown(
    path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not home.exists()
    assert main(["site", "show", path.stem]) == 0
    shown = capsys.readouterr().out
    assert str(path) in shown
    assert "None" not in shown
