"""What a batch job finds out about itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from hpcflow.errors import SchedulerUnavailable
from hpcflow.schedulers.slurm.allocation import Allocation, enclosing_step, read_allocation

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


def processes(proc: Path, *titles: str) -> int:
    """A chain of processes, the outermost first; the id of the innermost."""
    for number, title in enumerate(titles):
        folder = proc / str(100 + number)
        folder.mkdir(parents=True)
        (folder / "cmdline").write_bytes(title.replace(" ", "\0").encode() + b"\0")
        parent = 1 if number == 0 else 99 + number
        (folder / "status").write_text(f"Name:\tx\nPid:\t{100 + number}\nPPid:\t{parent}\n")
    return 99 + len(titles)


@pytest.mark.parametrize(
    ("titles", "step"),
    [
        (["slurmstepd: [123.batch] "], "batch"),
        (["slurmstepd: [123.batch]", "/bin/bash wrapper.sh"], "batch"),
        (["slurmstepd: [123.0]", "bash"], "0"),
        (["slurmstepd: [123.batch]", "bash", "slurmstepd: [123.4]", "bash"], "4"),
        (["slurmstepd: [123.interactive]", "bash"], "interactive"),
        (["sshd: ada", "bash"], None),
        (["/usr/bin/vi slurmstepd: [123.batch]"], None),
    ],
)
def test_slurmstepd_says_which_step_this_is(
    tmp_path: Path, titles: list[str], step: str | None
) -> None:
    assert enclosing_step(processes(tmp_path, *titles), tmp_path) == step


def test_where_proc_is_hidden_nobody_knows_the_step(tmp_path: Path) -> None:
    assert enclosing_step(7, tmp_path) is None
