"""Parse ``scontrol show node --oneliner`` into the idle resources of each node. Pure.

``CfgTRES`` has a node's resources, ``AllocTRES`` the allocated ones. They name a GPU type only if
the site counts it separately.
"""

from __future__ import annotations

import re
from typing import Final

from hpcflow.schedulers.slurm.tres import tres_counts
from hpcflow.schedulers.waiting import IdleNode

_WORD: Final = re.compile(r"(?:^|\s)([A-Za-z]\w*)=(\S*)")
_GPU_TYPE: Final = re.compile(r"(?:^|,)gpu:([^:,(]+):\d")
#: States and flags of a node that accepts a job. PLANNED: a pending job will get the node later.
_TAKES: Final = frozenset({"IDLE", "MIXED"})
_HARMLESS: Final = frozenset({"CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE", "PLANNED"})


def parse_nodes(text: str) -> list[IdleNode]:
    """Return the nodes that accept jobs now, with their idle resources."""
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
