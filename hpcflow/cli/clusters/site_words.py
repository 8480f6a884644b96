"""Print a site as ``hpcflow site show`` does: every value of its file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hpcflow.model.units import counted, write_duration, write_memory
from hpcflow.sites.schema import GpuDialect, Partition, SchedulerKind, Site
from hpcflow.terminal import safe

_ASKING_FOR_GPUS = {
    GpuDialect.GRES: "--gres=gpu:{}N",
    GpuDialect.GPUS_PER_NODE: "--gpus-per-node={}N",
    GpuDialect.IMPLIED: "GPUs are not requested, nodes come with theirs",
}


def site_lines(site: Site) -> Iterator[tuple[str, str]]:
    """Yield name and value of what holds for the whole site; only what the file says."""
    yield "file", site.file or ""
    yield "source", site.source or ""
    yield "scheduler", _scheduler(site)
    yield "login hosts", ", ".join(site.hosts)
    yield "scratch", _scratch(site)
    yield "accounts", ", ".join(site.accounts or ())
    yield "default account", site.default_account or ""
    yield "runs must set", ", ".join(site.dialect.required)
    if site.scheduler is SchedulerKind.SLURM:
        yield "dialect", "; ".join(_dialect(site))
    yield "GPU types", "; ".join(_gpu_types(site))
    yield "pytorch launcher", site.launch.pytorch.value
    yield "srun options", " ".join(site.launch.srun_options)
    yield "modules init", site.modules.init or ""
    yield "modules", ", ".join(site.modules.load)
    yield from (("fabric", each) for each in _variables(site.fabric.variables))
    yield "master port", str(site.fabric.master_port or "")
    yield from (("variable", each) for each in _variables(site.variables))


def partition_words(site: Site, name: str) -> str:
    """Return a partition in words: its nodes, limits of jobs, options for Slurm, and prices."""
    options = site.partitions[name]
    words = [
        _node(options),
        *_nodes(options),
        *_times(options),
        *_preemption(options),
        *_for_slurm(site, name),
        *_price(options),
        *([] if options.auto else ["not chosen by auto"]),
    ]
    return "; ".join(words)


def one_line(text: str) -> str:
    """Return ``text`` from a file on one line, safe for a terminal."""
    return safe(" ".join(text.split()))


def _scheduler(site: Site) -> str:
    words = [site.scheduler.value]
    if site.cluster_name:
        words.append(f"cluster {site.cluster_name}")
    return ", ".join([*words, *([] if site.has_accounting else ["no accounting"])])


def _scratch(site: Site) -> str:
    scratch, words = site.scratch, [site.scratch.path]
    if scratch.purge_days:
        words.append(f"purged after {counted(scratch.purge_days, 'day')}")
    return ", ".join([*words, *([scratch.filesystem] if scratch.filesystem else [])])


def _dialect(site: Site) -> Iterator[str]:
    dialect = site.dialect
    yield _ASKING_FOR_GPUS[dialect.gpus].format("TYPE:" if dialect.gpu_type_in_request else "")
    if not dialect.mem:
        yield "no --mem"
    if not dialect.export:
        yield "no --export"
    yield from dialect.options


def _gpu_types(site: Site) -> Iterator[str]:
    for name, kind in site.gpu_types.items():
        words: list[str] = [kind.vendor]
        if kind.mem_mb:
            words.insert(0, _memory(kind.mem_mb))
        if kind.gres_name:
            words.append(f"{kind.gres_name} in Slurm")
        yield f"{name} ({', '.join(words)})"


def _variables(variables: dict[str, str]) -> Iterator[str]:
    return (f"{name}={value}" for name, value in variables.items())


def _node(options: Partition) -> str:
    words = [f"{options.cpus_per_node} CPUs"]
    if options.gpus_per_node:
        words.insert(0, f"{options.gpus_per_node} × {options.gpu_type or 'GPU'}")
    if options.mem_per_node_mb:
        words.append(_memory(options.mem_per_node_mb))
    return f"{', '.join(words)} a node{', whole nodes' if options.whole_nodes else ''}"


def _nodes(options: Partition) -> Iterator[str]:
    if options.nodes_max == 1:
        yield "1 node"
    elif options.nodes_max:
        yield f"{options.nodes_min} to {options.nodes_max} nodes"
    elif options.nodes_min > 1:
        yield f"at least {counted(options.nodes_min, 'node')}"


def _times(options: Partition) -> Iterator[str]:
    limits = [
        f"{_duration(each.time_limit_max_min)} up to {counted(each.nodes_max, 'node')}"
        for each in options.time_limit_bins
    ]
    if options.time_limit_max_min:
        limits.append(f"{'else ' if limits else ''}{_duration(options.time_limit_max_min)}")
    if limits:
        yield f"at most {', '.join(limits)}"
    if options.node_time_max_min:
        yield f"at most {_duration(options.node_time_max_min)} of node-time"
    if options.time_limit_default_min:
        yield f"{_duration(options.time_limit_default_min)} if a run names no time limit"


def _preemption(options: Partition) -> Iterator[str]:
    if options.preemptible:
        grace = f" after {write_duration(options.grace_s)}" if options.grace_s else ""
        yield f"preemptible{grace}"


def _for_slurm(site: Site, name: str) -> Iterator[str]:
    slurm_name, options = site.slurm_partition(name), site.partitions[name]
    if slurm_name is None:
        yield "no partition in Slurm"
    elif slurm_name != name:
        yield f"partition {slurm_name} in Slurm"
    if options.qos:
        yield f"QOS {options.qos}"
    if options.constraint:
        yield f"constraint {options.constraint}"


_UNITS: Final = {
    "gpu_hour_usd": "USD a GPU-hour",
    "node_hour_usd": "USD a node-hour",
    "cpu_hour_usd": "USD a core-hour",
    "mem_gb_hour_usd": "USD an hour of a GiB",
    "gpu_hour_su": "SU a GPU-hour",
    "node_hour_su": "SU a node-hour",
    "cpu_hour_su": "SU a core-hour",
    "mem_gb_hour_su": "SU an hour of a GiB",
}


def _price(options: Partition) -> Iterator[str]:
    price = options.price
    if price is None:
        return
    for name, unit in _UNITS.items():
        if (amount := getattr(price, name)) is not None:
            yield f"{amount} {unit}"
    for by_type, unit in ((price.gpu_type_hour_usd, "USD"), (price.gpu_type_hour_su, "SU")):
        for gpu_type, amount in by_type.items():
            yield f"{amount} {unit} an hour of {gpu_type}"


def _duration(minutes: int) -> str:
    return write_duration(minutes * 60)


def _memory(size_mb: int) -> str:
    """Return a size in whole or tenths of gigabytes: what nodes report is rarely round."""
    return write_memory(size_mb) if size_mb % 1024 == 0 else f"{size_mb / 1024:.1f}G"
