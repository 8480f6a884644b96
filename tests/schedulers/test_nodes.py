"""What is idle on each node, from ``scontrol show node``."""

from __future__ import annotations

import pytest

from hpcflow.schedulers.slurm.parse_scontrol import parse_nodes
from hpcflow.schedulers.waiting import IdleNode

#: As Slurm 22.05 prints it, shortened.
LINE = (
    "NodeName=n1 Arch=x86_64 CPUAlloc=2 CPUTot=8 Gres=gpu:a100:4 State={state} Partitions=gpu,spot "
    "OS=Linux 6.1 #1 SMP  CfgTRES=cpu=8,mem=8G,billing=8,gres/gpu=4 AllocTRES={used} CapWatts=n/a\n"
)
USED = "cpu=2,mem=1G,gres/gpu=1"


def test_what_is_not_in_use_is_idle() -> None:
    (node,) = parse_nodes(LINE.format(state="MIXED", used=USED))
    assert node == IdleNode(
        "n1",
        ("gpu", "spot"),
        {"cpu": 6, "mem": 7168, "billing": 8, "gres/gpu": 3, "gres/gpu:a100": 3},
        is_empty=False,
    )


def test_a_type_that_slurm_counts_by_itself_is_taken_as_it_counts_it() -> None:
    line = LINE.replace("gres/gpu=4", "gres/gpu=4,gres/gpu:a100=4")
    (node,) = parse_nodes(line.format(state="IDLE", used=USED + ",gres/gpu:a100=2"))
    assert node.idle["gres/gpu:a100"] == 2


def test_of_a_node_whose_gpus_are_shared_none_is_free_as_a_whole() -> None:
    (node,) = parse_nodes(LINE.format(state="MIXED", used="cpu=1,gres/shard=4"))
    assert node.idle["gres/gpu"] == 0


def test_of_several_types_none_is_guessed() -> None:
    line = LINE.replace("gpu:a100:4", "gpu:a100:2(S:0),gpu:h100:2(S:1)")
    (node,) = parse_nodes(line.format(state="IDLE", used=""))
    assert node.is_empty
    assert not [name for name in node.idle if ":" in name]


@pytest.mark.parametrize("state", ["IDLE", "MIXED", "IDLE+PLANNED", "MIXED+CLOUD"])
def test_such_a_node_takes_jobs(state: str) -> None:
    assert len(parse_nodes(LINE.format(state=state, used=USED))) == 1


@pytest.mark.parametrize(
    "state",
    ["ALLOCATED", "DOWN*", "IDLE+DRAIN", "MIXED+DRAIN", "IDLE+MAINTENANCE", "IDLE+RESERVED",
     "IDLE+NOT_RESPONDING", "IDLE+POWERED_DOWN", "COMPLETING", "IDLE+COMPLETING", "IDLE*"],
)  # fmt: skip
def test_such_a_node_takes_none(state: str) -> None:
    assert parse_nodes(LINE.format(state=state, used="")) == []


def test_other_lines_are_passed_over() -> None:
    assert parse_nodes("Welcome!\n\n") == []
