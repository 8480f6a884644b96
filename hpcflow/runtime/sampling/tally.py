"""Combine the samples of a node, and of all nodes, into one event of bounded size. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hpcflow.runtime.sampling.gpus import GpuUse

_MOST_KEPT = 256
#: Names in an event; the others are only counted.
_MOST_NAMES = 16
#: Fewer samples prove nothing: each covers a second at most.
_FEW_SAMPLES = 10
#: A GPU without activity for this long counts as idle.
_IDLE_S = 600.0


class Series:
    """A series of numbers, each weighted with its time.

    Quantiles use at most 256 of them: if there are more, every second one is dropped, and from then
    on only every second one is kept.
    """

    def __init__(self) -> None:
        self.highest = 0.0
        self.count = 0
        self._sum = self._weight = 0.0
        self._kept: list[float] = []
        self._stride = 1

    def add(self, value: float, weight: float = 1.0) -> None:
        """Add a number; ``weight`` is the time that it covers."""
        if self.count % self._stride == 0:
            self._kept.append(value)
            if len(self._kept) > _MOST_KEPT:
                self._kept, self._stride = self._kept[::2], self._stride * 2
        self.count += 1
        self.highest = max(self.highest, value)
        self._sum += value * weight
        self._weight += weight

    @property
    def mean(self) -> float:
        """Return the weighted mean; 0 for none."""
        return self._sum / self._weight if self._weight else 0.0

    def quantile(self, share: float) -> float:
        """Return the value that ``share`` of the kept ones do not exceed; 0 for none."""
        if not self._kept:
            return 0.0
        return sorted(self._kept)[min(len(self._kept) - 1, int(share * len(self._kept)))]


class _Gpu:
    def __init__(self) -> None:
        self.busy = Series()
        self.mem_peak_mb = self.mem_total_mb = 0
        self.busy_at_s = self.seen_at_s = 0.0

    def add(self, seen: GpuUse, elapsed_s: float, weight: float) -> None:
        self.mem_peak_mb = max(self.mem_peak_mb, seen.mem_used_mb or 0)
        self.mem_total_mb = max(self.mem_total_mb, seen.mem_total_mb or 0)
        if seen.busy_percent is not None:
            self.busy.add(seen.busy_percent, weight)
            self.seen_at_s = elapsed_s
            if seen.busy_percent > 0:
                self.busy_at_s = elapsed_s

    def facts(self, name: str) -> dict[str, Any]:
        facts: dict[str, Any] = {"name": name}
        if self.mem_total_mb:
            facts.update(mem_peak_mb=self.mem_peak_mb, mem_total_mb=self.mem_total_mb)
        if self.busy.count:
            facts.update(
                samples=self.busy.count,
                busy_mean=round(self.busy.mean, 1),
                busy_p50=round(self.busy.quantile(0.5), 1),
                busy_p95=round(self.busy.quantile(0.95), 1),
                busy_max=round(self.busy.highest, 1),
                # Until the last answer: a driver that does not answer proves no idleness.
                idle_s=round(self.seen_at_s - self.busy_at_s, 1),
            )
        return facts


class Tally:
    """The usage of one node since the start of the program."""

    def __init__(self) -> None:
        self._cores = Series()
        self._mem_mb = Series()
        self._gpus: dict[str, _Gpu] = {}
        self._elapsed_s = self._cpu_s = 0.0
        self._mem_peak_mb = self._processes = self._samples = 0
        self._cpu_before: float | None = None

    def add(
        self,
        elapsed_s: float,
        *,
        cpu_s: float | None,
        mem_mb: float | None,
        mem_peak_mb: float | None = None,
        processes: int = 0,
        gpus: dict[str, GpuUse] | None = None,
    ) -> None:
        """Add one sample.

        Args:
            elapsed_s: seconds since the program began; grows from call to call.
            cpu_s: CPU seconds so far; may fall when processes end.
            mem_peak_mb: the peak since the last sample, if it is known to exceed ``mem_mb``.
        """
        passed_s = elapsed_s - self._elapsed_s
        self._elapsed_s = elapsed_s
        self._samples += 1
        self._processes = max(self._processes, processes)
        if cpu_s is not None:
            used_s = max(0.0, cpu_s - (self._cpu_before or 0.0))
            self._cpu_before = cpu_s
            self._cpu_s += used_s
            if passed_s > 0:
                self._cores.add(used_s / passed_s, passed_s)
        if mem_mb is not None:
            self._mem_mb.add(mem_mb, max(passed_s, 1e-3))
            self._mem_peak_mb = max(self._mem_peak_mb, round(max(mem_mb, mem_peak_mb or 0.0)))
        for name, seen in (gpus or {}).items():
            self._gpus.setdefault(name, _Gpu()).add(seen, elapsed_s, max(passed_s, 1e-3))

    @property
    def peaks_mb(self) -> tuple[int, ...]:
        """Return the peak of the node's memory, then of each GPU's, in the order first seen."""
        return (self._mem_peak_mb, *[each.mem_peak_mb for each in self._gpus.values()])

    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "seconds": round(self._elapsed_s, 1),
            "samples": self._samples,
            "processes": self._processes,
        }
        if self._cores.count:
            facts.update(
                cpu_s=round(self._cpu_s, 1),
                cores_mean=round(self._cpu_s / self._elapsed_s, 2),
                cores_p50=round(self._cores.quantile(0.5), 2),
                cores_p95=round(self._cores.quantile(0.95), 2),
            )
        if self._mem_mb.count:
            facts.update(mem_peak_mb=self._mem_peak_mb, mem_mean_mb=round(self._mem_mb.mean))
        if self._gpus:
            facts["gpus"] = [each.facts(name) for name, each in self._gpus.items()]
        return facts


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
