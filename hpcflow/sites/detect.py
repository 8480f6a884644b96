"""Write the site file of a live cluster.

Keys that the cluster does not report (prices, fabric, purge) are comments, for the user to fill in.
The file loads unchanged, and :func:`hpcflow.sites.check.check` finds no error in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Final

from hpcflow.model.ids import check_name
from hpcflow.sites.limits import memory_text
from hpcflow.sites.live import ClusterInfo, PartitionInfo, overrun_s
from hpcflow.sites.standing import Association, Standing, default_qos

#: Slurm's names that a site file can contain.
_WORD: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:+-]{0,127}", re.ASCII)
#: Words that need no quotes in YAML.
_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*", re.ASCII)
_NOT_PLAIN: Final = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})

#: Memory of one GPU in GB, if Slurm's name is unambiguous (an A100 has 40 or 80).
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
    "mi100": 32,
    "mi210": 64,
    "mi250": 64,  # of the half that Slurm counts as one GPU
    "mi250x": 64,
    "mi300a": 128,
    "mi300x": 192,
}
#: A slice of a GPU: ``1g.10gb`` has 10 GB.
_SLICE: Final = re.compile(r"[0-9]+g[^a-z0-9]?([1-9][0-9]{0,2})gb")
_AMD: Final = re.compile(r"(?<![a-z0-9])(amd|instinct|radeon|mi\d{2,3}|gfx\d)", re.IGNORECASE)
_INTEL: Final = re.compile(r"(?<![a-z0-9])(intel|pvc|ponte)", re.IGNORECASE)
_SCRATCH_VARIABLES: Final = ("SCRATCH", "PSCRATCH", "SCRATCHDIR")


def detect(
    info: ClusterInfo,
    *,
    host: str | None = None,
    environ: Mapping[str, str],
    standing: Standing | None = None,
    groups: frozenset[str] | None = None,
) -> str:
    """Return the text of a site file for ``info``.

    Args:
        host: this login host's full name, for ``hosts``.
        environ: the user's environment, for the path of scratch.
        standing: the user's; None if unknown.
        groups: the user's Unix groups; None if unknown.
    """
    user = _User(standing, groups)
    entries = _entries(info)
    return "\n".join(
        [
            f"# {_printable(info.name)}, Slurm {_printable(info.version)}; "
            "written by `hpcflow site detect`.",
            "# Read the comments, fill in the missing values, then: hpcflow site check",
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
            *(["  # Slurm hides nodes from you: sizes are averages"] if info.hides_nodes else []),
            *_unusable(entries, info),
            *_partitions(entries, info, user),
            "",
            *_gpu_types(entries),
            *_scratch(environ),
            "",
            *_BY_HAND,
            "",
        ]
    )


@dataclass(frozen=True)
class _Entry:
    """One kind of nodes of a partition, under its key in the site file.

    Attributes:
        partition: only with these nodes, and their GPUs of this type.
        gpu_type: Slurm's name; None without GPUs, or if unknown.
    """

    key: str
    partition: PartitionInfo
    gpu_type: str | None


@dataclass(frozen=True)
class _User:
    """The user that detects the site: some partitions are not open to all users."""

    standing: Standing | None
    groups: frozenset[str] | None

    def refusal(self, partition: PartitionInfo) -> str | None:
        """Return why Slurm refuses this user's jobs without account and reservation, or None."""
        if partition.is_root_only:
            return "only root may submit to it"
        if partition.needs_reservation:
            return "its jobs need a reservation"
        allowed = partition.allowed_groups
        if allowed is not None and self.groups is not None and allowed.isdisjoint(self.groups):
            return f"only for the Unix groups {_list(allowed)}"
        mine = self._association(partition)
        if mine is not None and not partition.admits(mine.account, None):
            accounts = partition.allowed_accounts
            return f"only for accounts {_list(accounts)}" if accounts else f"not for {mine.account}"
        if mine is not None and mine.qos and not self._qos(partition, mine):
            allowed_qos = partition.allowed_qos
            return f"only for the QOS {_list(allowed_qos)}" if allowed_qos else "not for your QOS"
        return None

    def qos(self, partition: PartitionInfo) -> str | None:
        """Return the QOS that a job of this user must name; None if it needs none."""
        mine = self._association(partition)
        default = default_qos(mine)
        if mine is None or default is None or partition.admits(None, default):
            return None
        return next(iter(self._qos(partition, mine)), None)

    def _association(self, partition: PartitionInfo) -> Association | None:
        return self.standing.association(None, partition.name) if self.standing else None

    @staticmethod
    def _qos(partition: PartitionInfo, association: Association) -> list[str]:
        return [
            each
            for each in association.qos
            if partition.admits(None, each) and _WORD.fullmatch(each)
        ]


def site_name(info: ClusterInfo) -> str:
    """Return the site's name: the cluster's name with invalid characters replaced."""
    cleaned = re.sub(r"[^a-z0-9_-]+", "-", info.name.lower()).strip("-_")[:63]
    try:
        return check_name(cleaned)
    except ValueError:
        return "cluster"


_BY_HAND: Final = (
    "# default_account: NAME      # of runs that name none",
    "# accounts: [NAME, NAME]     # only if the list is complete",
    "",
    "# fabric:                    # the site's settings for NCCL, RCCL, libfabric, UCX",
    "#   variables: {NCCL_SOCKET_IFNAME: hsn}",
    "# modules:",
    "#   load: [NAME]             # modules that every job needs",
)


def _hosts(host: str | None) -> list[str]:
    """Return a pattern for this login host, with a wildcard for its first number."""
    pattern = re.sub(r"\d+", "*", host or "", count=1)
    if not re.fullmatch(r"[A-Za-z0-9.*?-]+", pattern) or pattern in ("localhost", "*"):
        return []
    return [f"hosts: [{_text(pattern)}] # must match all login hosts, and no other cluster's"]


def _overrun(info: ClusterInfo) -> list[str]:
    found_s = overrun_s(info)
    if found_s in (None, 60):  # unknown, or the default
        return []
    return [f"time_limit_overrun: {found_s}s # KillWait, OverTimeLimit and 30 s between checks"]


def _dialect(info: ClusterInfo) -> Iterator[str]:
    yield "dialect:"
    if any(partition.gpus_per_node for partition in info.partitions):
        yield "  gpus: gres # or gpus-per-node, or implied if jobs get whole nodes"
    else:
        yield "  gpus: implied # Slurm has no GPUs configured: add gpus_per_node if nodes have some"
    typed = any(partition.gpu_types for partition in info.partitions)
    yield f"  gpu_type_in_request: {str(typed).lower()}"
    yield "  # mem: false             # if sbatch refuses --mem"
    yield "  # export: false          # if sbatch refuses --export"
    yield "  # required: [account]    # keys that a job must have"
    if plugins := info.settings.get("JobSubmitPlugins"):
        yield f"  # JobSubmitPlugins also check or change jobs: {_printable(plugins)}"


def _entries(info: ClusterInfo) -> list[_Entry]:
    """Return all entries, those of the default partition first."""
    taken = {partition.name for partition in info.partitions}
    found: list[_Entry] = []
    for partition in sorted(info.partitions, key=lambda each: not each.is_default):
        if not _is_usable(partition):
            continue
        parts = [part for part in _parts(partition) if _is_usable(part.partition)]
        for part in parts:
            key = partition.name if len(parts) == 1 else _free(part.key, taken)
            taken.add(key)
            found.append(replace(part, key=key))
    return found


def _parts(partition: PartitionInfo) -> Iterator[_Entry]:
    """Yield an entry for each type of GPU, because a request names one, and one for CPU nodes."""
    name, types = partition.name, [each for each in partition.gpu_types if _WORD.fullmatch(each)]
    for gpu_type in types:
        yield _Entry(f"{name}-{gpu_type}", partition.with_gpus(gpu_type), gpu_type)
    if unnamed := {each for kind in partition.kinds for each in kind.gpus}.difference(types):
        yield _Entry(f"{name}-gpu", partition.with_gpus(*unnamed), None)
    without = partition.with_gpus()
    if without.kinds:
        yield _Entry(f"{name}-cpu", without, None)


def _free(wanted: str, taken: set[str]) -> str:
    names = chain([wanted[:128]], (f"{wanted[:120]}-{number}" for number in count(2)))
    return next(name for name in names if name not in taken)


def _unusable(entries: list[_Entry], info: ClusterInfo) -> Iterator[str]:
    usable = {entry.partition.name for entry in entries}
    for each in info.partitions:
        if each.name not in usable:
            why = "too few nodes of one kind for a job, or a name that is invalid in a site file"
            yield f"  # {_printable(each.name)}: {why}"


def _partitions(entries: list[_Entry], info: ClusterInfo, user: _User) -> Iterator[str]:
    if not entries:
        yield "  none: {cpus_per_node: 1, auto: false} # Slurm showed no partition"
    for entry in entries:
        yield f"  {_text(entry.key)}:"
        for line in _partition(entry, info, user):
            yield f"    {line}"


def _is_usable(partition: PartitionInfo) -> bool:
    fewest = max(1, partition.job_nodes_min or 1)
    return _WORD.fullmatch(partition.name) is not None and fewest <= partition.nodes_per_job


def _partition(entry: _Entry, info: ClusterInfo, user: _User) -> Iterator[str]:
    partition = entry.partition
    if entry.key != partition.name:
        yield f"partition: {_text(partition.name)} # its other nodes have their own entries"
    if entry.gpu_type is not None:
        yield f"gpu_type: {_text(entry.gpu_type)}"
    elif partition.gpus_per_node:
        yield "# Slurm has no type of its GPUs"
    yield f"gpus_per_node: {partition.gpus_per_node}"
    yield from _cpus(partition)
    if partition.mem_mb_per_node > 0:
        yield f"mem_per_node: {memory_text(partition.mem_mb_per_node)}"
    if (partition.job_nodes_min or 1) > 1:
        yield f"nodes_min: {partition.job_nodes_min}"
    yield f"nodes_max: {partition.nodes_per_job}"
    longest, default = partition.time_limit_max_min, partition.time_limit_default_min
    if longest:
        yield f"time_limit_max: {_duration(longest)}"
    if default and (not longest or default <= longest):
        yield f"time_limit_default: {_duration(default)}"
    if partition.is_exclusive:
        yield "whole_nodes: true"
    yield from _auto(partition, info, user)
    if qos := user.qos(partition):
        yield f"qos: {_text(qos)} # the partition does not accept your default QOS"
    else:
        yield "# qos: NAME               # if it must be named here"
    yield '# price: {gpu_hour_usd: "3.00"}  # or node_hour_usd, gpu_hour_su, node_hour_su'


def _cpus(partition: PartitionInfo) -> Iterator[str]:
    """Yield the CPUs of a node; of the smallest one, if jobs get CPUs that they did not request."""
    gpus = partition.gpus_per_node
    equal = [kind.cpus for kind in partition.kinds if sum(kind.gpus.values()) == gpus]
    fewest = min(equal if gpus else [kind.cpus for kind in partition.kinds])
    most = partition.cpus_per_node
    if fewest < most and (gpus or partition.is_exclusive):
        yield f"cpus_per_node: {max(1, fewest)} # other nodes have {most}"
    else:
        yield f"cpus_per_node: {max(1, most)}"


def _auto(partition: PartitionInfo, info: ClusterInfo, user: _User) -> Iterator[str]:
    refusal = user.refusal(partition)
    if info.is_preemptible(partition):
        yield "preemptible: true"
        if partition.grace_s:
            yield f"grace: {partition.grace_s}s"
        refusal = refusal or "preemptible partitions are only used if the user names them"
    elif not partition.is_up:
        refusal = refusal or "it was down when this was written"
    if refusal:
        yield f"auto: false # {_printable(refusal)}"


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "(none)"


def _gpu_types(entries: list[_Entry]) -> Iterator[str]:
    names = sorted({entry.gpu_type for entry in entries if entry.gpu_type is not None})
    if not names:
        return
    yield "gpu_types:"
    for name in names:
        known = _gpu_mem_gb(name)
        mem = f"mem: {known}G, " if known else ""
        todo = "" if known else " # add mem, such as mem: 80G"
        yield f"  {_text(name)}: {{{mem}vendor: {_vendor(name)}}}{todo}"
    yield ""


def _vendor(name: str) -> str:
    if _AMD.search(name):
        return "amd"
    return "intel" if _INTEL.search(name) else "nvidia"


def _gpu_mem_gb(name: str) -> int | None:
    """Return the memory of ``h100`` or ``nvidia_a100_80gb_pcie`` in GB; None if unknown."""
    if part := _SLICE.search(name.lower()):
        return int(part[1])
    words = re.split(r"[^a-z0-9]+", name.lower())
    for word in words:
        if size := re.fullmatch(r"([1-9][0-9]{0,2})gb?", word):
            return int(size[1])
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


def _text(text: str) -> str:
    """Return ``text`` as a YAML scalar."""
    if _PLAIN.fullmatch(text) and text.lower() not in _NOT_PLAIN:
        return text
    return json.dumps(_printable(text), ensure_ascii=False)


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)
