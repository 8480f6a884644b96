"""Read the allocation of a batch job, inside it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from hpcflow.errors import SchedulerUnavailable
from hpcflow.schedulers.slurm.run_command import ask
from hpcflow.schedulers.slurm.units import parse_minutes

#: The process title of slurmstepd, which contains the step: ``slurmstepd: [123.batch]``.
_TITLE: Final = re.compile(r"slurmstepd: \[\d+[^\]]*?\.(\w+)[^\]]*\]", re.ASCII)
_PARENT: Final = re.compile(r"^PPid:\s*(\d+)$", re.ASCII | re.MULTILINE)

#: Matches the CPUs in ``2,1`` or ``8(x3),4``, without the number of nodes.
_CPUS: Final = re.compile(r"(\d+)(?:\(x\d+\))?", re.ASCII)
_TIME_LIMIT: Final = re.compile(r"\bTimeLimit=(\S+)")

#: Short, because the allocation is already being charged.
_SCONTROL_TIMEOUT_S: Final = 20.0


@dataclass(frozen=True)
class Allocation:
    """The allocation of a job. None means unknown.

    Attributes:
        gpus_per_node: None also if Slurm does not count GPUs.
        cpus_per_node: of the node with the fewest CPUs.
        time_limit_min: None also if there is no limit.
    """

    nodes: int | None
    partition: str | None
    account: str | None
    qos: str | None
    gpus_per_node: int | None
    cpus_per_node: int | None
    time_limit_min: int | None


def read_allocation(
    environ: Mapping[str, str], *, query: Callable[[Sequence[str]], str] | None = None
) -> Allocation:
    """Return the allocation of the job with this environment.

    Args:
        query: runs one of Slurm's programs, for tests.
    """
    query = query or partial(ask, timeout_s=_SCONTROL_TIMEOUT_S)
    return Allocation(
        nodes=_number(environ, "SLURM_JOB_NUM_NODES"),
        partition=environ.get("SLURM_JOB_PARTITION") or None,
        account=environ.get("SLURM_JOB_ACCOUNT") or None,
        qos=environ.get("SLURM_JOB_QOS") or None,
        gpus_per_node=_number(environ, "SLURM_GPUS_ON_NODE"),
        cpus_per_node=_fewest_cpus(environ),
        time_limit_min=_time_limit_min(environ, query),
    )


def enclosing_step(pid: int, proc: Path = Path("/proc")) -> str | None:
    """Return the job step of the process ``pid``: ``batch``, ``interactive`` or a number.

    Environment variables are no proof: those of an interactive job leak into a batch job that is
    submitted from it. None if /proc does not show the step, as in a container.
    """
    while pid > 1:
        try:
            title = (proc / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ")
            if match := _TITLE.match(title.decode(errors="replace")):
                return match[1]
            parent = _PARENT.search((proc / str(pid) / "status").read_text(errors="replace"))
        except OSError:
            return None
        pid = int(parent[1]) if parent else 0
    return None


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() else None


def _fewest_cpus(environ: Mapping[str, str]) -> int | None:
    """Return the smallest number of CPUs of a node, because nodes may differ."""
    items = environ.get("SLURM_JOB_CPUS_PER_NODE", "").split(",")
    found = [_CPUS.fullmatch(item.strip()) for item in items]
    numbers = [int(match[1]) for match in found if match]
    return min(numbers) if len(numbers) == len(items) else _number(environ, "SLURM_CPUS_ON_NODE")


def _time_limit_min(
    environ: Mapping[str, str], query: Callable[[Sequence[str]], str]
) -> int | None:
    """Read the time limit from variables, which Slurm 22.05 does not set yet, or from scontrol."""
    start, end = (_number(environ, f"SLURM_JOB_{name}_TIME") for name in ("START", "END"))
    if start is not None and end is not None and end > start:
        return -(-(end - start) // 60)
    try:
        shown = query(["scontrol", "show", "job", environ.get("SLURM_JOB_ID", "")])
    except SchedulerUnavailable:
        return None
    limit = _TIME_LIMIT.search(shown)
    return (parse_minutes(limit[1]) or None) if limit else None
