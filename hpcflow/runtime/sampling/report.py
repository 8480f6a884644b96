"""Combine the measurements of all nodes into one event about the whole attempt. Pure.

Its size is bounded for any number of nodes and GPUs: it has sums, and the names of some.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

#: Names in an event; the others are only counted.
_MOST_NAMES = 16
#: Fewer samples prove nothing: each covers a second at most.
_FEW_SAMPLES = 10
#: A GPU without activity for this long counts as idle.
_IDLE_S = 600.0


def usage_event(nodes: Iterable[dict[str, Any]], asked: dict[str, int]) -> dict[str, Any]:
    """Return the facts of an event ``usage``.

    Args:
        nodes: for each node with a file, its :meth:`Tally.facts` and its name, ``node``.
        asked: the job's resources on every node.
    """
    seen = [node for node in nodes if _number(node.get("seconds"))]
    facts: dict[str, Any] = {
        "seconds": max((_number(node["seconds"]) for node in seen), default=0.0),
        "samples": sum(int(_number(node.get("samples"))) for node in seen),
        "nodes": len(seen),
        "asked": asked,
    }
    cores = [node for node in seen if "cores_mean" in node]
    if cores:
        facts["cpu_s"] = round(sum(_number(node.get("cpu_s")) for node in cores), 1)
        facts["cores_mean"] = _mean(cores, "cores_mean")
        for name in ("cores_p50", "cores_p95"):
            facts[name] = max(_number(node.get(name)) for node in cores)
    memory = [node for node in seen if "mem_peak_mb" in node]
    if memory:
        most = max(memory, key=lambda node: _number(node["mem_peak_mb"]))
        facts["mem_peak_mb"] = int(_number(most["mem_peak_mb"]))
        facts["mem_peak_node"] = most.get("node")
        facts["mem_mean_mb"] = round(_mean(memory, "mem_mean_mb"))
        facts["mem_by"] = most.get("mem_by")
    facts.update(_gpus(seen))
    return facts


def _gpus(nodes: list[dict[str, Any]]) -> dict[str, Any]:
    lists = [(node, node.get("gpus")) for node in nodes]
    gpus = [
        {**gpu, "name": f"{node.get('node')}:{gpu.get('name')}"}
        for node, seen in lists
        for gpu in (seen if isinstance(seen, list) else [])
        if isinstance(gpu, dict)
    ]
    if not gpus:
        return {}
    facts: dict[str, Any] = {"gpus": len(gpus)}
    sizes = [gpu for gpu in gpus if gpu.get("mem_total_mb")]
    if sizes:
        facts["gpu_mem_peak_mb"] = max(int(_number(gpu.get("mem_peak_mb"))) for gpu in sizes)
        facts["gpu_mem_total_mb"] = min(int(_number(gpu["mem_total_mb"])) for gpu in sizes)
    known = [gpu for gpu in gpus if "busy_mean" in gpu]
    if known:
        for name in ("busy_mean", "busy_p50", "busy_p95"):
            facts[f"gpu_{name}"] = _mean(known, name)
        facts["gpu_busy_least"] = min(_number(gpu["busy_mean"]) for gpu in known)
        proven = [gpu for gpu in known if _number(gpu.get("samples")) >= _FEW_SAMPLES]
        facts.update(_named("unused", [gpu for gpu in proven if gpu.get("busy_max") == 0]))
        idle = [gpu for gpu in proven if _number(gpu.get("idle_s")) >= _IDLE_S]
        facts.update(_named("idle", idle))
    return facts


def _named(what: str, gpus: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the number of these GPUs, and their names."""
    if not gpus:
        return {}
    names = [str(gpu["name"])[:80] for gpu in gpus[:_MOST_NAMES]]
    return {f"gpus_{what}": len(gpus), f"gpus_{what}_names": names}


def _mean(nodes: list[dict[str, Any]], name: str) -> float:
    return round(sum(_number(node.get(name)) for node in nodes) / len(nodes), 2)


def _number(value: object) -> float:
    """Return a number from the file of another node; 0 if it is not one."""
    return float(value) if isinstance(value, (int, float)) else 0.0
