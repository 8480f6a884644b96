"""Writes the site file of a live cluster, as far as the cluster knows itself.

What it cannot know (prices, fabric, purge) is left as comments to be filled in by hand. The text
loads as it is, and :func:`hpcflow.sites.check.check` finds no error in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

from hpcflow.model.ids import check_name
from hpcflow.sites.live import ClusterInfo, PartitionInfo, overrun_s

#: What Slurm may call things and a site file can repeat.
_WORD: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:+-]{0,127}", re.ASCII)
#: Words that mean the same quoted and plain, to every reader of YAML.
_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*", re.ASCII)
_NOT_PLAIN: Final = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})

#: Memory of one GPU in GB, where Slurm's word for it leaves no doubt (an A100 has 40 or 80).
_GPU_MEM_GB: Final = {
    "t4": 16,
    "l4": 24,
    "a10": 24,
    "a30": 24,
    "l40": 48,
    "l40s": 48,
    "a40": 48,
    "a6000": 48,
    "h100": 80,
    "h200": 141,
    "mi250x": 64,
    "mi300a": 128,
    "mi300x": 192,
}
_AMD: Final = re.compile(r"^(amd|mi\d)", re.IGNORECASE)
_SCRATCH_VARIABLES: Final = ("SCRATCH", "PSCRATCH", "SCRATCHDIR")


def detect(info: ClusterInfo, *, host: str | None = None, environ: Mapping[str, str]) -> str:
    """The text of a site file for ``info``.

    Args:
        host: this login host's full name, to know the site by.
        environ: the user's environment; tells where scratch is.
    """
    return "\n".join(
        [
            f"# {_printable(info.name)}, Slurm {_printable(info.version)}; "
            "written by `hpcflow site detect`.",
            "# Go through the comments, fill in what Slurm does not know, then: hpcflow site check",
            f"name: {_text(site_name(info))}",
            f"description: {_text(info.name)}",
            *([f"cluster_name: {_text(info.name)}"] if _WORD.fullmatch(info.name) else []),
            *_hosts(host),
            f"has_accounting: {str(info.has_accounting).lower()}",
            *_overrun(info),
            "",
            *_dialect(info),
            "",
            "partitions: # the preferred first",
            *_partitions(info),
            "",
            *_gpu_types(info),
            *_scratch(environ),
            "",
            *_BY_HAND,
            "",
        ]
    )


def site_name(info: ClusterInfo) -> str:
    """The name of the site, and so of its file: the cluster's, as far as it can be a name."""
    cleaned = re.sub(r"[^a-z0-9_-]+", "-", info.name.lower()).strip("-_")[:63]
    try:
        return check_name(cleaned)
    except ValueError:
        return "cluster"


_BY_HAND: Final = (
    "# default_account: NAME      # of runs that name none",
    "# accounts: [NAME, NAME]     # only if these are all there are",
    "",
    "# fabric:                    # what the site recommends for NCCL, RCCL, libfabric, UCX",
    "#   variables: {NCCL_SOCKET_IFNAME: hsn}",
    "# modules:",
    "#   load: [NAME]             # modules that every job needs",
)


def _hosts(host: str | None) -> list[str]:
    """A pattern from this login host: its numbers may be other ones on the next host."""
    pattern = re.sub(r"\d+", "*", host or "", count=1)
    if not re.fullmatch(r"[A-Za-z0-9.*?-]+", pattern) or pattern in ("localhost", "*"):
        return []
    return [f"hosts: [{_text(pattern)}] # does it fit all login hosts, and no other cluster's?"]


def _overrun(info: ClusterInfo) -> list[str]:
    found_s = overrun_s(info)
    if found_s in (None, 60):  # unknown, or what it is without a line
        return []
    return [f"time_limit_overrun: {found_s}s # KillWait, OverTimeLimit and 30 s between checks"]


def _dialect(info: ClusterInfo) -> list[str]:
    typed = any(partition.gpu_types for partition in info.partitions)
    return [
        "dialect:",
        "  gpus: gres # or gpus-per-node, or implied where nodes come whole",
        f"  gpu_type_in_request: {str(typed).lower()}",
        "  # mem: false             # if sbatch refuses --mem",
        "  # export: false          # if sbatch refuses --export",
        "  # required: [account]    # what a job must say",
    ]


def _partitions(info: ClusterInfo) -> Iterator[str]:
    usable = [each for each in info.partitions if _is_usable(each)]
    for each in info.partitions:
        if each not in usable:
            yield f"  # {_printable(each.name)}: too few nodes for a job, or a name of odd letters"
    if not usable:
        yield "  none: {cpus_per_node: 1, auto: false} # Slurm showed no partition"
    for each in sorted(usable, key=lambda each: not each.is_default):
        yield f"  {_text(each.name)}:"
        for line in _partition(each, info):
            yield f"    {line}"


def _is_usable(partition: PartitionInfo) -> bool:
    fewest = max(1, partition.job_nodes_min or 1)
    return _WORD.fullmatch(partition.name) is not None and fewest <= _job_nodes_max(partition)


def _job_nodes_max(partition: PartitionInfo) -> int:
    return min(partition.nodes, partition.job_nodes_max or partition.nodes)


def _partition(partition: PartitionInfo, info: ClusterInfo) -> Iterator[str]:
    types = _types(partition)
    if partition.gpus_per_node and len(types) == 1:
        yield f"gpu_type: {_text(types[0])}"
    elif len(types) > 1:
        yield f"# GPU types are mixed: {', '.join(types)}"
    yield f"gpus_per_node: {max(0, partition.gpus_per_node)}"
    yield f"cpus_per_node: {max(1, partition.cpus_per_node)}"
    if partition.mem_mb_per_node > 0:
        yield f"mem_per_node: {_memory(partition.mem_mb_per_node)}"
    if (partition.job_nodes_min or 1) > 1:
        yield f"nodes_min: {partition.job_nodes_min}"
    yield f"nodes_max: {_job_nodes_max(partition)}"
    longest, default = partition.time_limit_max_min, partition.time_limit_default_min
    if longest:
        yield f"time_limit_max: {_duration(longest)}"
    if default and (not longest or default <= longest):
        yield f"time_limit_default: {_duration(default)}"
    if partition.is_exclusive:
        yield "whole_nodes: true"
    if info.is_preemptible(partition):
        yield "preemptible: true"
        if partition.grace_s:
            yield f"grace: {partition.grace_s}s"
        yield "auto: false # jobs are preempted only if their user asked for it"
    elif not partition.is_up:
        yield "auto: false # it was down when this was written"
    yield "# qos: NAME               # if it must be named here"
    yield '# price: {gpu_hour_usd: "3.00"}  # or node_hour_usd, gpu_hour_su, node_hour_su'


def _types(partition: PartitionInfo) -> list[str]:
    return [each for each in partition.gpu_types if _WORD.fullmatch(each)]


def _gpu_types(info: ClusterInfo) -> Iterator[str]:
    names = sorted(
        {name for each in info.partitions if each.gpus_per_node for name in _types(each)}
    )
    if not names:
        return
    yield "gpu_types:"
    for name in names:
        known = _gpu_mem_gb(name)
        vendor = "amd" if _AMD.search(name) else "nvidia"
        mem = f"mem: {known}G, " if known else ""
        todo = "" if known else " # add mem, such as mem: 80G"
        yield f"  {_text(name)}: {{{mem}vendor: {vendor}}}{todo}"
    yield ""


def _gpu_mem_gb(name: str) -> int | None:
    """From ``h100`` or ``nvidia_a100_80gb_pcie``; None when the name does not tell."""
    words = re.split(r"[^a-z0-9]+", name.lower())
    for word in words:
        if said := re.fullmatch(r"([1-9][0-9]{0,2})gb?", word):
            return int(said[1])
    return next((_GPU_MEM_GB[word] for word in words if word in _GPU_MEM_GB), None)


def _scratch(environ: Mapping[str, str]) -> Iterator[str]:
    variable = next((name for name in _SCRATCH_VARIABLES if environ.get(name)), None)
    yield "scratch:"
    if variable:
        yield f"  path: ${variable}"
    else:
        yield "  path: $HOME/hpcflow-runs # name the parallel file system: homes are small and slow"
    yield "  # purge_days: 30         # days without access until a file is purged"


def _duration(minutes: int) -> str:
    return f"{minutes // 60}h" if minutes % 60 == 0 else f"{minutes}m"


def _memory(size_mb: int) -> str:
    return f"{size_mb // 1024}G" if size_mb % 1024 == 0 else f"{size_mb}M"


def _text(text: str) -> str:
    """``text`` so that every reader of YAML reads that text."""
    if _PLAIN.fullmatch(text) and text.lower() not in _NOT_PLAIN:
        return text
    return json.dumps(_printable(text), ensure_ascii=False)


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)
