"""Sum the hours requested and used by attempts, by the requested keys. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from hpcflow.ledger.used import UsedRow
from hpcflow.rightsizing.use import Use

#: Key of a report -> its value for a row.
BY: Final[dict[str, Callable[[UsedRow], str]]] = {
    "user": lambda row: row.user,
    "project": lambda row: row.project,
    "partition": lambda row: row.partition,
    "account": lambda row: row.account or "",
}


@dataclass
class Line:
    """One line of a report. Hours had and used count only what was measured.

    Attributes:
        gpu_hours: GPUs × hours of all attempts, measured or not.
        measured: number of attempts with measurements.
        gpu_hours_had, gpu_hours_used: of measured GPUs; used: × utilization.
        cpu_hours_had, cpu_hours_used: CPU cores × hours; used: busy cores.
        mem_gib_hours_had, mem_gib_hours_used: memory × hours; used: the peak.
        limit_hours, limit_hours_used: time limits of completed attempts, and their run time.
    """

    by: str
    attempts: int = 0
    measured: int = 0
    gpu_hours: float = 0.0
    gpu_hours_had: float = 0.0
    gpu_hours_used: float = 0.0
    cpu_hours_had: float = 0.0
    cpu_hours_used: float = 0.0
    mem_gib_hours_had: float = 0.0
    mem_gib_hours_used: float = 0.0
    limit_hours: float = 0.0
    limit_hours_used: float = 0.0
    run_ids: set[str] = field(default_factory=set)

    @property
    def gpu_hours_wasted(self) -> float:
        """Return the measured GPU hours that were not used."""
        return max(0.0, self.gpu_hours_had - self.gpu_hours_used)

    @property
    def cpu_hours_wasted(self) -> float:
        return max(0.0, self.cpu_hours_had - self.cpu_hours_used)


def report(pairs: Iterable[tuple[UsedRow, Use]], key: str) -> tuple[list[Line], Line]:
    """Return the lines, the most wasted GPU hours, then CPU hours, first; and their sum.

    Args:
        key: a key of :data:`BY`.
    """
    lines: dict[str, Line] = {}
    total = Line("")
    for row, use in pairs:
        by = BY[key](row)
        for line in (lines.setdefault(by, Line(by)), total):
            line.run_ids.add(row.run_id)
            _add(line, use)
    return sorted(lines.values(), key=_most_wasted_first), total


def _most_wasted_first(line: Line) -> tuple[float, float, float, str]:
    return (-line.gpu_hours_wasted, -line.cpu_hours_wasted, -line.gpu_hours, line.by)


def _add(line: Line, use: Use) -> None:
    hours = use.used_hours
    line.attempts += 1
    line.gpu_hours += use.gpus * hours
    if use.cause == "completed" and use.time_limit_min:
        line.limit_hours += use.time_limit_min / 60
        line.limit_hours_used += hours
    seen = use.measured
    if seen is None:
        return
    line.measured += 1
    # Nodes and GPUs that were not measured count neither as used nor as wasted.
    node_hours = min(seen.nodes, use.nodes) * hours
    if seen.gpu_busy_mean is not None:
        gpu_hours = min(seen.gpus or 0, use.gpus) * hours
        line.gpu_hours_had += gpu_hours
        line.gpu_hours_used += gpu_hours * seen.gpu_busy_mean / 100
    if seen.cores_mean is not None and use.cpus:
        line.cpu_hours_had += use.cpus * node_hours
        line.cpu_hours_used += seen.cores_mean * node_hours
    if seen.mem_peak_mb is not None and use.mem_mb:
        line.mem_gib_hours_had += use.mem_mb * node_hours / 1024
        line.mem_gib_hours_used += seen.mem_peak_mb * node_hours / 1024
