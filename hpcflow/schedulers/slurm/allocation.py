"""What a batch job can find out about its own allocation."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hpcflow.errors import SchedulerUnavailable
from hpcflow.schedulers.slurm.run_command import ask
from hpcflow.schedulers.slurm.times import parse_minutes

#: The name that slurmstepd gives itself, in which the step stands: ``slurmstepd: [123.batch]``.
_TITLE: Final = re.compile(r"slurmstepd: \[\d+[^\]]*?\.(\w+)[^\]]*\]", re.ASCII)
_PARENT: Final = re.compile(r"^PPid:\s*(\d+)$", re.ASCII | re.MULTILINE)

#: ``2,1`` or ``8(x3),4``: the numbers, without how many nodes have them.
_CPUS: Final = re.compile(r"(\d+)(?:\(x\d+\))?", re.ASCII)
_TIME_LIMIT: Final = re.compile(r"\bTimeLimit=(\S+)")

#: A compute node asks while its allocation is already paid for.
_SCONTROL_TIMEOUT_S: Final = 20.0


@dataclass(frozen=True)
class Allocation:
    """What a job has. None stands for what nobody tells it.

    Attributes:
        gpus_per_node: None also where Slurm does not count GPUs.
        cpus_per_node: on the node that has the fewest.
        time_limit_min: None also where there is no limit.
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
    """The allocation of the job whose environment this is.

    Args:
        query: runs one of Slurm's programs; a real one if None.
    """
    return Allocation(
        nodes=_number(environ, "SLURM_JOB_NUM_NODES"),
        partition=environ.get("SLURM_JOB_PARTITION") or None,
        account=environ.get("SLURM_JOB_ACCOUNT") or None,
        qos=environ.get("SLURM_JOB_QOS") or None,
        gpus_per_node=_number(environ, "SLURM_GPUS_ON_NODE"),
        cpus_per_node=_fewest_cpus(environ),
        time_limit_min=_time_limit_min(environ, query or _ask_briefly),
    )


def enclosing_step(pid: int, proc: Path = Path("/proc")) -> str | None:
    """``batch``, ``interactive`` or a number: the step in which the process ``pid`` is.

    Variables do not tell it: those of an interactive job leak into a batch job that is sent from
    there. None where /proc does not show it, as in a container.
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
    """Nodes may have got different numbers; those of this node alone are not for all."""
    items = environ.get("SLURM_JOB_CPUS_PER_NODE", "").split(",")
    found = [_CPUS.fullmatch(item.strip()) for item in items]
    numbers = [int(match[1]) for match in found if match]
    return min(numbers) if len(numbers) == len(items) else _number(environ, "SLURM_CPUS_ON_NODE")


def _time_limit_min(
    environ: Mapping[str, str], query: Callable[[Sequence[str]], str]
) -> int | None:
    """Of the variables, which Slurm 22.05 does not set yet; else of scontrol, where it is."""
    start, end = (_number(environ, f"SLURM_JOB_{name}_TIME") for name in ("START", "END"))
    if start is not None and end is not None and end > start:
        return -(-(end - start) // 60)
    try:
        shown = query(["scontrol", "show", "job", environ.get("SLURM_JOB_ID", "")])
    except SchedulerUnavailable:
        return None
    limit = _TIME_LIMIT.search(shown)
    return (parse_minutes(limit[1]) or None) if limit else None


def _ask_briefly(argv: Sequence[str]) -> str:
    return ask(argv, timeout_s=_SCONTROL_TIMEOUT_S)
