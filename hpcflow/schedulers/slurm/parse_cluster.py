"""Parse scontrol, sinfo and sacctmgr into :class:`ClusterInfo`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from hpcflow.schedulers.slurm.hostlist import expand
from hpcflow.schedulers.slurm.units import parse_count, parse_minutes, parse_time, parse_tres
from hpcflow.sites.live import ClusterInfo, NodeKind, PartitionInfo

if TYPE_CHECKING:
    from hpcflow.sites.standing import QosLimits

#: For ``sinfo --format``: a line for each kind of node in each partition. Features, which are free
#: text, come last.
NODES_FORMAT: Final = "%R|%D|%c|%m|%G|%f"

_SETTING: Final = re.compile(r"^(\w+)\s*= ?(.*)$")
_ANSWERED_AT: Final = re.compile(r"Configuration data as of (\S+)")
_WORD: Final = re.compile(r"(?:^|\s)([A-Za-z]\w*)=(\S*)")


def parse_settings(text: str) -> dict[str, str]:
    """Parse ``scontrol show config`` into setting -> text, which is empty for ``(null)``."""
    matches = (_SETTING.match(line) for line in text.splitlines())
    return {
        match[1]: "" if match[2].strip() == "(null)" else match[2].strip()
        for match in matches
        if match
    }


def told_at(text: str) -> datetime | None:
    """Return the controller's time in the output of ``scontrol show config``; None without one."""
    match = _ANSWERED_AT.match(text)
    return parse_time(match[1]) if match else None


def seconds(setting: str | None) -> int | None:
    """Return 300 for ``300 sec``; None if it is not a number of seconds."""
    match = re.match(r"(\d+)(?: sec)?$", setting or "")
    return int(match[1]) if match else None


def restart_delay_s(settings: dict[str, str]) -> int:
    """Return how long after a requeue Slurm sets the begin time of the job.

    ``requeue_delay`` (Slurm 25.11) replaces the lifetime of job credentials, by default 120 s.
    Slurm adds a second: ``batch_requeue_fini()`` in job_mgr.c.
    """
    options = (("SchedulerParameters", "requeue_delay"), ("AuthInfo", "cred_expire"))
    found = (re.search(rf"\b{name}=(\d+)", settings.get(key, "")) for key, name in options)
    return 1 + next((int(match[1]) for match in found if match), 120)


def cluster_info(
    settings: dict[str, str], partitions: str, nodes: str | None, qos: str | None = None
) -> ClusterInfo:
    """Return the cluster as ``show config``, ``show partition -o``, ``sinfo`` and ``show qos`` do.

    Args:
        nodes: output of sinfo or ``show node -o``; None if this user may not see nodes.
        qos: None if accounting was not asked or did not answer.
    """
    # Imported late: a submission needs neither.
    from hpcflow.schedulers.slurm import parse_standing
    from hpcflow.sites.standing import are_enforced

    kinds = _parse_nodes(nodes or "")
    bind = parse_standing.parse_qos(qos) if qos and are_enforced(settings) else []
    limits = {each.name: each for each in bind}
    whole = settings.get("SelectType", "").endswith("linear")
    return ClusterInfo(
        name=settings.get("ClusterName", ""),
        version=settings.get("SLURM_VERSION", ""),
        partitions=tuple(
            _with_limits(
                _partition(
                    {**settings, **words}, kinds.get(words["PartitionName"], ()), whole=whole
                ),
                limits.get(words.get("QoS", "")),
            )
            for words in map(_words, partitions.splitlines())
            if "PartitionName" in words
        ),
        settings=settings,
        hides_nodes=nodes is None,
        has_accounting=has_accounting(settings),
        qos=None if qos is None else parse_qos(qos),
    )


def keeps_cpus(partitions: str) -> bool:
    """Return whether a node reserves CPUs, so that jobs get fewer; sinfo does not show that."""
    for words in map(_words, partitions.splitlines()):
        total = parse_tres(words.get("TRES", ""))
        if total is not None and total.cpus < _number(words.get("TotalCPUs", "")):
            return True
    return False


def has_accounting(settings: dict[str, str]) -> bool:
    """Return whether the cluster stores jobs in a database, so that sacct works."""
    return settings.get("AccountingStorageType", "").endswith("slurmdbd")


def _words(line: str) -> dict[str, str]:
    return dict(_WORD.findall(line))


def _partition(words: dict[str, str], kinds: tuple[NodeKind, ...], *, whole: bool) -> PartitionInfo:
    """Return one partition.

    Args:
        words: of the partition, and settings of the cluster that it does not override.
        whole: whether a job gets whole nodes unless its partition shares them.
    """
    shares = words.get("OverSubscribe", "")
    return PartitionInfo(
        name=words["PartitionName"],
        is_default=words.get("Default") == "YES",
        is_up=words.get("State") == "UP",
        time_limit_max_min=parse_minutes(words.get("MaxTime", "")),
        kinds=tuple(_for_a_job(kind, words) for kind in kinds or _average(words)),
        preempt_mode=words.get("PreemptMode"),
        grace_s=seconds(words.get("GraceTime")),
        time_limit_default_min=parse_minutes(words.get("DefaultTime", "")),
        job_nodes_min=parse_count(words.get("MinNodes", "")),
        job_nodes_max=parse_count(words.get("MaxNodes", "")),
        is_exclusive=shares.startswith(("EXCLUSIVE", "NO") if whole else "EXCLUSIVE")
        or "NODE" in words.get("Exclusive", "").split(","),  # from Slurm 26.05 on
        caps_cpus=any(
            parse_count(words.get(f"MaxCPUsPer{part}", "")) for part in ("Node", "Socket")
        ),
        is_root_only=words.get("RootOnly") == "YES",
        needs_reservation=words.get("ReqResv") == "YES",
        priority_tier=parse_count(words.get("PriorityTier", "")),
        qos=words["QoS"] if words.get("QoS", "N/A") not in ("N/A", "") else None,
        node_names=_names(words.get("Nodes", "")),
        allowed_groups=_allowed(words.get("AllowGroups", "")),
        allowed_accounts=_allowed(words.get("AllowAccounts", "")),
        denied_accounts=_set(words.get("DenyAccounts", "")),
        allowed_qos=_allowed(words.get("AllowQos", "")),
        denied_qos=_set(words.get("DenyQos", "")),
    )


def _with_limits(partition: PartitionInfo, qos: QosLimits | None) -> PartitionInfo:
    """Return the partition with the limits that its QOS sets for one job."""
    if qos is None:
        return partition
    nodes = [each for each in qos.limits if (each.name, each.resource) == ("MaxTRESPerJob", "node")]
    return replace(
        partition,
        time_limit_max_min=_least(partition.time_limit_max_min, qos.max_wall_min),
        job_nodes_max=_least(partition.job_nodes_max, *(each.allowed for each in nodes)),
    )


def _least(*limits: int | None) -> int | None:
    return min((each for each in limits if each is not None), default=None)


def _for_a_job(kind: NodeKind, words: dict[str, str]) -> NodeKind:
    """Return the part of a node that the partition gives to one job at most."""
    cpus = min(kind.cpus, parse_count(words.get("MaxCPUsPerNode", "")) or kind.cpus)
    per_cpu_mb = parse_count(words.get("MaxMemPerCPU", ""))
    mem_mb = min(
        kind.mem_mb,
        parse_count(words.get("MaxMemPerNode", "")) or kind.mem_mb,
        per_cpu_mb * cpus if per_cpu_mb else kind.mem_mb,
    )
    return replace(kind, cpus=cpus, mem_mb=mem_mb)


def _average(words: dict[str, str]) -> tuple[NodeKind, ...]:
    """Return an average node, from the totals of the partition."""
    total = parse_tres(words.get("TRES", ""))
    nodes = parse_count(words.get("TotalNodes", ""))
    cpus = parse_count(words.get("TotalCPUs", ""))
    if not nodes or not cpus:
        return ()
    mem_mb = total.mem_mb // nodes if total else 0
    gpus = {name: count // nodes for name, count in total.gpus.items()} if total else {}
    return (NodeKind(nodes, cpus // nodes, mem_mb, gpus),)


def _allowed(text: str) -> frozenset[str] | None:
    return None if text in ("", "ALL") else _set(text)


def _set(text: str) -> frozenset[str]:
    return frozenset(filter(None, text.split(",")))


def _names(text: str) -> tuple[str, ...]:
    """Return node names; ``ALL`` can mean nodes that do not exist yet."""
    try:
        return () if text == "ALL" else expand(text)
    except ValueError:
        return ()


def _parse_nodes(text: str) -> dict[str, tuple[NodeKind, ...]]:
    """Return the kinds of nodes of each partition; equal ones of several lines are one kind."""
    kinds: dict[str, dict[object, NodeKind]] = {}
    for partition, kind in _kinds(text):
        alike = (kind.cpus, kind.mem_mb, tuple(kind.gpus.items()), kind.features)
        before = kinds.setdefault(partition, {}).get(alike)
        count = kind.count + (before.count if before else 0)
        kinds[partition][alike] = replace(kind, count=count)
    return {partition: tuple(found.values()) for partition, found in kinds.items()}


def _kinds(text: str) -> Iterator[tuple[str, NodeKind]]:
    for line in text.splitlines():
        fields = line.strip().split("|", 5)
        if line.startswith("NodeName="):
            words = _words(line)
            kind = _kind(
                *("1", words.get("CPUEfctv", words.get("CPUTot", ""))),
                *(words.get("RealMemory", ""), words.get("Gres", "")),
                words.get("AvailableFeatures", ""),
            )
            kept_mb = _number(words.get("MemSpecLimit", ""))
            for partition in _set(words.get("Partitions", "")):
                yield partition, replace(kind, mem_mb=kind.mem_mb - kept_mb)
        elif len(fields) == 6:
            yield fields[0], _kind(*fields[1:])


def _kind(count: str, cpus: str, mem_mb: str, gres: str, features: str) -> NodeKind:
    return NodeKind(
        count=_number(count),
        cpus=_number(cpus),
        mem_mb=_number(mem_mb),
        gpus=_gpus(gres),
        features=tuple(f for f in features.split(",") if f and f != "(null)"),
    )


def _gpus(gres: str) -> dict[str, int]:
    """Parse ``gpu:a100:4(S:0-1),shard:16`` -> ``{"a100": 4}``."""
    found: dict[str, int] = {}
    for item in re.sub(r"\([^)]*\)", "", gres).split(","):
        name, *words = item.split(":")
        *kind, count = [word for word in words if word != "no_consume"] or ["0"]
        if name == "gpu" and _number(count):
            key = ":".join(kind)
            found[key] = found.get(key, 0) + _number(count)
    return found


def _number(text: str) -> int:
    """Parse ``8`` or, if the nodes of a line differ, ``8+``."""
    match = re.match(r"\d+", text)
    return int(match[0]) if match else 0


def parse_accounts(text: str, cluster: str | None) -> frozenset[str]:
    """Return the accounts on ``cluster`` in ``sacctmgr -nP show assoc format=cluster,account``."""
    rows = (line.split("|") for line in text.splitlines())
    return frozenset(
        row[1] for row in rows if len(row) >= 2 and row[1] and cluster in (None, "", row[0])
    )


def parse_qos(text: str) -> frozenset[str]:
    """Return the names in ``sacctmgr -nP show qos``, whose first column must be the name."""
    return frozenset(line.split("|")[0].strip() for line in text.splitlines() if line.strip())
