"""Parse ``scontrol show node --oneliner`` and ``scontrol show reservation --oneliner``. Pure."""

from __future__ import annotations

import re
from typing import Final

from hpcflow.schedulers.slurm.hostlist import names_in
from hpcflow.schedulers.slurm.units import parse_time, tres_counts
from hpcflow.schedulers.waiting import IdleNode
from hpcflow.sites.standing import Reservation

_WORD: Final = re.compile(r"(?:^|\s)([A-Za-z]\w*)=(\S*)")
_NO_TEXT: Final = frozenset({"", "(null)", "n/a"})
_GPU_TYPE: Final = re.compile(r"(?:^|,)gpu:([^:,(]+):\d")
#: States and flags of a node that accepts a job. PLANNED: a pending job will get the node later.
_TAKES: Final = frozenset({"IDLE", "MIXED"})
_HARMLESS: Final = frozenset({"CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE", "PLANNED"})


def parse_nodes(text: str) -> list[IdleNode]:
    """Return the nodes that accept jobs now, with their idle resources.

    ``CfgTRES`` has a node's resources, ``AllocTRES`` the allocated ones. They name a GPU type only
    if the site counts it separately.
    """
    found = []
    for line in text.splitlines():
        words = dict(_WORD.findall(line))
        state, *flags = words.get("State", "").split("+")
        if "NodeName" not in words or state not in _TAKES or not _HARMLESS.issuperset(flags):
            continue
        has, used = tres_counts(words.get("CfgTRES", "")), tres_counts(words.get("AllocTRES", ""))
        if used.get("gres/shard") or used.get("gres/mps"):
            has["gres/gpu"] = used["gres/gpu"] = 0  # Slurm does not show which GPUs are shared
        types = set(_GPU_TYPE.findall(words.get("Gres", "")))
        if len(types) == 1 and (name := f"gres/gpu:{types.pop()}") not in has:
            has[name], used[name] = has.get("gres/gpu", 0), used.get("gres/gpu", 0)
        found.append(
            IdleNode(
                words["NodeName"],
                tuple(name for name in words.get("Partitions", "").split(",") if name),
                {name: count - used.get(name, 0) for name, count in has.items()},
                not words.get("AllocTRES"),
            )
        )
    return found


def parse_reservations(text: str) -> list[Reservation]:
    """Return the reservations, sorted by start.

    Other lines, such as "No reservations in the system", are skipped.
    """
    found = []
    for line in text.splitlines():
        words = dict(_WORD.findall(line))
        start, end = (parse_time(words.get(f"{name}Time", "")) for name in ("Start", "End"))
        if "ReservationName" not in words or start is None or end is None:
            continue
        found.append(
            Reservation(
                name=words["ReservationName"],
                start=start,
                end=end,
                nodes=names_in(words.get("Nodes", "")),
                flags=_list(words.get("Flags", "")),
                users=_list(words.get("Users", "")),
                accounts=_list(words.get("Accounts", "")),
                partition=next(iter(_list(words.get("PartitionName", ""))), None),
            )
        )
    return sorted(found, key=lambda each: (each.start, each.name))


def _list(text: str) -> tuple[str, ...]:
    return () if text.lower() in _NO_TEXT else tuple(text.split(","))
