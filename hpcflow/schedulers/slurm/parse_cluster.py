"""What scontrol, sinfo and sacctmgr print about the cluster -> :class:`ClusterInfo`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from hpcflow.schedulers.slurm.hostlist import expand
from hpcflow.schedulers.slurm.times import parse_minutes
from hpcflow.sites.live import ClusterInfo, PartitionInfo

#: For ``sinfo --format``: one line for every kind of node in every partition. Features last: they
#: are free text.
NODES_FORMAT: Final = "%R|%D|%c|%m|%G|%f"

_SETTING: Final = re.compile(r"^(\w+)\s*= ?(.*)$")
_WORD: Final = re.compile(r"(?:^|\s)([A-Za-z]\w*)=(\S*)")
_GRES_GPU: Final = re.compile(r"(?:^|,)gpu(?::(?P<type>[^:,()]+))?:(?P<count>\d+)")


@dataclass(frozen=True)
class _Nodes:
    """Nodes of one kind in one partition."""

    count: int
    cpus: int
    mem_mb: int
    gpus: int
    gpu_types: tuple[str, ...]
    features: tuple[str, ...]


def parse_settings(text: str) -> dict[str, str]:
    """``scontrol show config``: every setting as it is printed; ``(null)`` is an empty text."""
    matches = (_SETTING.match(line) for line in text.splitlines())
    return {
        match[1]: "" if match[2].strip() == "(null)" else match[2].strip()
        for match in matches
        if match
    }


def seconds(setting: str | None) -> int | None:
    """``300 sec`` -> 300; None when it is no number of seconds."""
    match = re.match(r"(\d+)(?: sec)?$", setting or "")
    return int(match[1]) if match else None


def cluster_info(
    settings: dict[str, str], partitions: str, nodes: str, qos: str | None = None
) -> ClusterInfo:
    """Put together what ``show config``, ``show partition -o``, ``sinfo`` and ``show qos`` said.

    Args:
        qos: None when accounting was not asked, or did not answer.
    """
    kinds = _parse_nodes(nodes)
    return ClusterInfo(
        name=settings.get("ClusterName", ""),
        version=settings.get("SLURM_VERSION", ""),
        partitions=tuple(
            _partition(words, kinds.get(words["PartitionName"], []), settings)
            for words in map(_words, partitions.splitlines())
            if "PartitionName" in words
        ),
        settings=settings,
        has_accounting=has_accounting(settings),
        qos=None if qos is None else parse_qos(qos),
    )


def has_accounting(settings: dict[str, str]) -> bool:
    """Whether jobs are kept in a database, so that sacct can tell of them."""
    return settings.get("AccountingStorageType", "").endswith("slurmdbd")


def _words(line: str) -> dict[str, str]:
    return dict(_WORD.findall(line))


def _partition(
    words: dict[str, str], kinds: list[_Nodes], settings: dict[str, str]
) -> PartitionInfo:
    """One partition. Where its nodes differ, the largest: Slurm takes what any node can give."""
    return PartitionInfo(
        name=words["PartitionName"],
        is_default=words.get("Default") == "YES",
        is_up=words.get("State") == "UP",
        time_limit_max_min=parse_minutes(words.get("MaxTime", "")),
        nodes=sum(kind.count for kind in kinds),
        cpus_per_node=max((kind.cpus for kind in kinds), default=0),
        mem_mb_per_node=max((kind.mem_mb for kind in kinds), default=0),
        gpus_per_node=max((kind.gpus for kind in kinds), default=0),
        gpu_types=_union(kind.gpu_types for kind in kinds),
        features=_union(kind.features for kind in kinds),
        preempt_mode=words.get("PreemptMode") or settings.get("PreemptMode"),
        grace_s=seconds(words.get("GraceTime")),
        time_limit_default_min=parse_minutes(words.get("DefaultTime", "")),
        job_nodes_min=_limit(words.get("MinNodes")),
        job_nodes_max=_limit(words.get("MaxNodes")),
        is_exclusive=words.get("OverSubscribe", "").startswith("EXCLUSIVE"),
        priority_tier=_limit(words.get("PriorityTier")),
        qos=words["QoS"] if words.get("QoS", "N/A") not in ("N/A", "") else None,
        node_names=_names(words.get("Nodes", "")),
        allowed_accounts=_allowed(words.get("AllowAccounts", "")),
        denied_accounts=_set(words.get("DenyAccounts", "")),
        allowed_qos=_allowed(words.get("AllowQos", "")),
        denied_qos=_set(words.get("DenyQos", "")),
    )


def _limit(text: str | None) -> int | None:
    """A number that is one; None for ``UNLIMITED`` and for what is not said."""
    return int(text) if text and text.isdecimal() else None


def _allowed(text: str) -> frozenset[str] | None:
    return None if text in ("", "ALL") else _set(text)


def _set(text: str) -> frozenset[str]:
    return frozenset(filter(None, text.split(",")))


def _names(text: str) -> tuple[str, ...]:
    """Of its nodes; it may be "ALL" of nodes that are still to come."""
    try:
        return () if text == "ALL" else expand(text)
    except ValueError:
        return ()


def _union(lists: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item for items in lists for item in items))


def _parse_nodes(text: str) -> dict[str, list[_Nodes]]:
    kinds: dict[str, list[_Nodes]] = {}
    for line in text.splitlines():
        fields = line.strip().split("|", 5)
        if len(fields) != 6:
            continue
        partition, count, cpus, mem_mb, gres, features = fields
        gpus = [(match["type"], int(match["count"])) for match in _GRES_GPU.finditer(gres)]
        kinds.setdefault(partition, []).append(
            _Nodes(
                count=_number(count),
                cpus=_number(cpus),
                mem_mb=_number(mem_mb),
                gpus=sum(number for _, number in gpus),
                gpu_types=tuple(kind for kind, _ in gpus if kind),
                features=tuple(f for f in features.split(",") if f and f != "(null)"),
            )
        )
    return kinds


def _number(text: str) -> int:
    """``8`` or, where nodes of one line differ, ``8+``."""
    match = re.match(r"\d+", text)
    return int(match[0]) if match else 0


def parse_accounts(text: str, cluster: str | None) -> frozenset[str]:
    """``sacctmgr -nP show assoc format=cluster,account``: the accounts on ``cluster``."""
    rows = (line.split("|") for line in text.splitlines())
    return frozenset(
        row[1] for row in rows if len(row) >= 2 and row[1] and cluster in (None, "", row[0])
    )


def parse_qos(text: str) -> frozenset[str]:
    """``sacctmgr -nP show qos format=name``."""
    return frozenset(line.strip() for line in text.splitlines() if line.strip())
