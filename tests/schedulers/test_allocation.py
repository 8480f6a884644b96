"""What a batch job finds out about itself."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hpcflow.errors import SchedulerUnavailable
from hpcflow.schedulers.slurm.allocation import Allocation, read_allocation

#: As Slurm 22.05.8 set it for `sbatch --nodes=2 --ntasks=3 --time=2 -p short`.
OLD = {
    "SLURM_CPUS_ON_NODE": "2",
    "SLURM_JOB_ACCOUNT": "physics",
    "SLURM_JOB_CPUS_PER_NODE": "2,1",
    "SLURM_JOB_ID": "1",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_JOB_PARTITION": "short",
    "SLURM_JOB_QOS": "normal",
}

SHOWN = """\
JobId=1 JobName=hpcflow-by-hand
   RunTime=00:00:00 TimeLimit={} TimeMin=N/A
   StartTime=2026-11-21T14:38:21 EndTime=2026-11-21T14:40:21 Deadline=N/A
"""


def no_scontrol(argv: Sequence[str]) -> str:
    raise SchedulerUnavailable(f"no {argv[0]} on this machine")


def test_an_allocation_as_its_own_variables_tell_it() -> None:
    assert read_allocation(OLD, query=lambda _: SHOWN.format("00:02:00")) == Allocation(
        nodes=2,
        partition="short",
        account="physics",
        qos="normal",
        gpus_per_node=None,
        cpus_per_node=1,
        time_limit_min=2,
    )


def test_variables_go_before_scontrol() -> None:
    times = {"SLURM_JOB_START_TIME": "1700000000", "SLURM_JOB_END_TIME": "1700005401"}
    assert read_allocation({**OLD, **times}, query=no_scontrol).time_limit_min == 91


@pytest.mark.parametrize(
    ("shown", "limit"),
    [("1-00:00:00", 1440), ("00:30:00", 30), ("UNLIMITED", None), ("Partition_Limit", None)],
)
def test_the_time_limit_as_scontrol_shows_it(shown: str, limit: int | None) -> None:
    asked: list[Sequence[str]] = []

    def scontrol(argv: Sequence[str]) -> str:
        asked.append(argv)
        return SHOWN.format(shown)

    assert read_allocation(OLD, query=scontrol).time_limit_min == limit
    assert asked == [["scontrol", "show", "job", "1"]]


def test_a_compute_node_need_not_have_scontrol() -> None:
    assert read_allocation(OLD, query=no_scontrol).time_limit_min is None


@pytest.mark.parametrize(
    ("variables", "cpus"),
    [
        ({"SLURM_JOB_CPUS_PER_NODE": "8(x3)"}, 8),
        ({"SLURM_JOB_CPUS_PER_NODE": "8(x3),4,16(x2)"}, 4),
        ({"SLURM_JOB_CPUS_PER_NODE": "64"}, 64),
        ({"SLURM_JOB_CPUS_PER_NODE": "eight"}, 2),
        ({"SLURM_JOB_CPUS_PER_NODE": ""}, 2),
        ({"SLURM_JOB_CPUS_PER_NODE": "", "SLURM_CPUS_ON_NODE": ""}, None),
    ],
)
def test_the_node_with_the_fewest_cores_counts(variables: dict[str, str], cpus: int | None) -> None:
    assert read_allocation({**OLD, **variables}, query=no_scontrol).cpus_per_node == cpus
