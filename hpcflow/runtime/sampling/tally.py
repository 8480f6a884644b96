"""Compute mean, maximum and quantiles of many samples in constant space. Pure."""

from __future__ import annotations

from typing import Any

from hpcflow.runtime.sampling.nvml import GpuUse

_MOST_KEPT = 256


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
