"""Compare a site file with the live cluster. Pure.

With an error, jobs fail or are refused. A warning is a difference to check.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from hpcflow.model.units import format_duration
from hpcflow.sites.live import ClusterInfo, PartitionInfo, overrun_s
from hpcflow.sites.names import suggestion
from hpcflow.sites.schema import Partition, Site

#: With a shorter MinJobAge, hpcflow may miss the end of a job in squeue.
_SHORT_MEMORY_S = 60
#: The features of a constraint, without the counts ``*4``, and without features negated by ``!``.
_COUNT = re.compile(r"\*\d+")
_FEATURE = re.compile(r"(?<!!)(?<![A-Za-z0-9_.:=+-])[A-Za-z0-9_.:=+-]+")

#: A time as Slurm prints it, such as ``1-00:30:00``, that is not 0.
_SOME_TIME = re.compile(r"[0-9:-]*[1-9][0-9:-]*")


class Level(str, Enum):
    """The severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """The result of comparing one key of the site file."""

    level: Level
    key: str
    message: str


def check(site: Site, info: ClusterInfo) -> list[Finding]:
    """Return all findings, in the order of the site file."""
    return [
        *_identity(site, info),
        *_settings(site, info),
        *(each for name in site.partitions for each in _partition(site, name, info)),
        *_unlisted(site, info),
    ]


def _ok(key: str, message: str) -> Finding:
    return Finding(Level.OK, key, message)


def _warning(key: str, message: str) -> Finding:
    return Finding(Level.WARNING, key, message)


def _error(key: str, message: str) -> Finding:
    return Finding(Level.ERROR, key, message)


def _identity(site: Site, info: ClusterInfo) -> Iterator[Finding]:
    key = "cluster_name"
    if site.cluster_name is None:
        yield _warning(key, f"not given; Slurm says {info.name}")
    elif site.cluster_name.lower() != info.name.lower():
        yield _error(key, f"{site.cluster_name} in the file, and Slurm says {info.name}")
    else:
        yield _ok(key, info.name)


def _settings(site: Site, info: ClusterInfo) -> Iterator[Finding]:
    if site.has_accounting and not info.has_accounting:
        yield _error("has_accounting", "true in the file, and sacct does not work here")
    elif info.has_accounting and not site.has_accounting:
        yield _warning("has_accounting", "false in the file, and sacct works here")
    else:
        yield _ok("has_accounting", str(site.has_accounting).lower())
    memory_s = _seconds(info.settings.get("MinJobAge"))
    if memory_s is not None and memory_s < _SHORT_MEMORY_S and not info.has_accounting:
        yield _warning(
            "MinJobAge", f"Slurm forgets an ended job after {memory_s} s, and sacct does not work"
        )
    yield from _overrun(site, info)
    yield from _requeues(info)
    yield from _exemption(info)
    if size := info.settings.get("MaxArraySize"):
        yield _ok("MaxArraySize", f"the highest index of an array task is below {size}")
    if "ACCRUE_ALWAYS" in info.settings.get("PriorityFlags", "").upper().split(","):
        yield _ok("PriorityFlags", "ACCRUE_ALWAYS: a standby gains age priority while pending")
    else:
        yield _ok(
            "PriorityFlags",
            "no ACCRUE_ALWAYS: a standby gains age priority only after the attempt before it ended",
        )


def _overrun(site: Site, info: ClusterInfo) -> Iterator[Finding]:
    key, said_s, found_s = "time_limit_overrun", site.time_limit_overrun_s, overrun_s(info)
    if info.settings.get("OverTimeLimit", "").upper().startswith("UNLIMITED"):
        yield _warning(key, "OverTimeLimit is UNLIMITED: Slurm ends no job at its time limit")
    elif found_s is not None and found_s > said_s:
        yield _warning(
            key,
            f"{said_s} s; by KillWait and OverTimeLimit a job may run {found_s} s past its time "
            "limit, and exceed a hard budget",
        )
    elif found_s is not None:
        yield _ok(key, f"{said_s} s")


#: Settings that requeue jobs despite ``--no-requeue``: key, value, which jobs.
_REQUEUES = (
    ("PrologFlags", "FORCEREQUEUEONFAIL", "whose prolog failed"),
    ("SchedulerParameters", "REQUEUE_ON_RESUME_FAILURE", "whose nodes did not power up"),
)


def _requeues(info: ClusterInfo) -> Iterator[Finding]:
    for key, word, which in _REQUEUES:
        if word in info.settings.get(key, "").upper().split(","):
            yield _warning(
                key,
                f"{word.lower()}: Slurm requeues jobs {which} despite --no-requeue; each requeue "
                "counts as an attempt",
            )


def _exemption(info: ClusterInfo) -> Iterator[Finding]:
    key = "PreemptExemptTime"
    exempt = info.settings.get(key, "")
    if _SOME_TIME.fullmatch(exempt) and any(map(info.is_preemptible, info.partitions)):
        yield _ok(
            key,
            f"Slurm preempts no job in its first {exempt}, unless its QOS sets another time; see "
            "PreemptEligibleTime in: scontrol show job JOB",
        )


def _seconds(text: str | None) -> int | None:
    """Return 300 for ``300 sec``."""
    first = (text or "").split(" ")[0]
    return int(first) if first.isdecimal() else None


def _partition(site: Site, name: str, info: ClusterInfo) -> Iterator[Finding]:
    key, options = f"partitions.{name}", site.partitions[name]
    slurm_name = site.slurm_partition(name)
    if slurm_name is None:
        yield from _qos(key, options, info)
        yield from _constraint(key, options, info.features())
        yield _warning(key, "nodes and limits not compared: it names no Slurm partition")
        return
    live = info.partition(slurm_name)
    if live is None:
        yield _error(key, f"Slurm has no partition {slurm_name}")
        return
    typed = live.with_gpus(_gres_name(site, options.gpu_type)) if options.gpu_type else live
    live = typed if typed.kinds else live
    findings = [
        *_is_up(key, live),
        *_nodes(key, options, live),
        *_sizes(key, options, live),
        *_gpu_types(key, site, options, live),
        *_times(key, options, live),
        *_preemption(key, options, live, info),
        *_qos(key, options, info),
        *_constraint(key, options, frozenset(live.features)),
    ]
    if all(finding.level is Level.OK for finding in findings):
        yield _ok(key, "same as in Slurm")
    yield from findings


def _is_up(key: str, live: PartitionInfo) -> Iterator[Finding]:
    if not live.is_up:
        yield _warning(key, "is down at the moment")


def _nodes(key: str, options: Partition, live: PartitionInfo) -> Iterator[Finding]:
    most = live.nodes_per_job
    if options.nodes_max is not None and options.nodes_max > most:
        yield _error(f"{key}.nodes_max", f"{options.nodes_max}, and a job gets at most {most}")
    elif options.nodes_min > most:
        yield _error(f"{key}.nodes_min", f"{options.nodes_min}, and a job gets at most {most}")
    elif options.nodes_max is None:
        yield _warning(f"{key}.nodes_max", f"not given; a job gets at most {most}")
    if (live.job_nodes_min or 1) > options.nodes_min:
        yield _error(
            f"{key}.nodes_min", f"{options.nodes_min}, and Slurm wants {live.job_nodes_min}"
        )


def _sizes(key: str, options: Partition, live: PartitionInfo) -> Iterator[Finding]:
    """Compare node sizes. Fewer cores or less memory than Slurm shows are fine."""
    if options.cpus_per_node > max(1, live.cpus_per_node):
        yield _error(
            f"{key}.cpus_per_node",
            f"{options.cpus_per_node}, and the largest node has {live.cpus_per_node}",
        )
    if options.mem_per_node_mb is not None and options.mem_per_node_mb > live.mem_mb_per_node:
        yield _error(
            f"{key}.mem_per_node",
            f"{options.mem_per_node_mb}M, and the largest node has {live.mem_mb_per_node}M",
        )
    if options.gpus_per_node > live.gpus_per_node:
        # If jobs get whole nodes, Slurm may have no GPUs configured.
        finding = _warning if options.whole_nodes and not live.gpus_per_node else _error
        yield finding(
            f"{key}.gpus_per_node",
            f"{options.gpus_per_node}, and Slurm has {live.gpus_per_node or 'none'}",
        )
    elif live.kinds and options.gpus_per_node not in {
        sum(kind.gpus.values()) for kind in live.kinds
    }:
        yield _warning(
            f"{key}.gpus_per_node", f"{options.gpus_per_node}, and a node has {live.gpus_per_node}"
        )


def _gpu_types(key: str, site: Site, options: Partition, live: PartitionInfo) -> Iterator[Finding]:
    if options.gpu_type is None:
        return
    asked = _gres_name(site, options.gpu_type)
    if asked in live.gpu_types:
        return
    there = f"Slurm has {', '.join(live.gpu_types)}" if live.gpu_types else "Slurm names no type"
    # Without the type in requests, a different name is harmless.
    finding = _error if site.dialect.gpu_type_in_request else _warning
    yield finding(f"{key}.gpu_type", f"{asked} in the file, and {there}")


def _gres_name(site: Site, gpu_type: str) -> str:
    return site.gpu_types[gpu_type].gres_name or gpu_type


def _times(key: str, options: Partition, live: PartitionInfo) -> Iterator[Finding]:
    ours, theirs = options.time_limit_max_min, live.time_limit_max_min
    if theirs is None or ours == theirs:
        return
    shown = format_duration(theirs * 60)
    if ours is None:
        yield _warning(f"{key}.time_limit_max", f"not given; Slurm's is {shown}")
    elif ours > theirs:
        yield _error(
            f"{key}.time_limit_max", f"{format_duration(ours * 60)}, and Slurm's is {shown}"
        )
    elif options.qos is None:
        yield _warning(
            f"{key}.time_limit_max", f"{format_duration(ours * 60)}, and Slurm allows {shown}"
        )


def _preemption(
    key: str, options: Partition, live: PartitionInfo, info: ClusterInfo
) -> Iterator[Finding]:
    if info.is_preemptible(live) and not options.preemptible:
        yield _warning(
            f"{key}.preemptible", f"false, and Slurm may preempt jobs here ({live.preempt_mode})"
        )
    elif options.preemptible and options.qos is None and not info.is_preemptible(live):
        yield _warning(f"{key}.preemptible", "true, and Slurm preempts no job here")
    if options.preemptible and (options.grace_s or 0) != (live.grace_s or 0):
        yield _warning(
            f"{key}.grace", f"{options.grace_s or 0} s, and Slurm's is {live.grace_s or 0} s"
        )


def _qos(key: str, options: Partition, info: ClusterInfo) -> Iterator[Finding]:
    name, key = options.qos, f"{key}.qos"
    if name is None:
        return
    if info.qos is None:
        yield _warning(key, f"{name} not compared: Slurm does not list its QOSes")
    elif name.lower() not in {each.lower() for each in info.qos}:
        yield _error(key, f"Slurm has no QOS {name}; {suggestion(name, sorted(info.qos))}")
    else:
        yield _ok(key, name)


def _constraint(key: str, options: Partition, there: frozenset[str]) -> Iterator[Finding]:
    constraint, key = options.constraint, f"{key}.constraint"
    if constraint is None:
        return
    asked = _FEATURE.findall(_COUNT.sub("", constraint))
    missing = [each for each in asked if each not in there]
    if not missing:
        yield _ok(key, constraint)
        return
    # One of several alternatives is enough.
    finding = _warning if "|" in constraint and len(missing) < len(asked) else _error
    yield finding(
        key,
        f"{constraint}, and no node has {' or '.join(missing)}; "
        f"{suggestion(missing[0], sorted(there))}",
    )


def _unlisted(site: Site, info: ClusterInfo) -> Iterator[Finding]:
    listed = {site.slurm_partition(name) for name in site.partitions}
    for live in info.partitions:
        if live.name not in listed:
            yield _warning(f"partitions.{live.name}", "in Slurm, but not in the file")
