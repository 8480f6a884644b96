"""The measured usage of an attempt, beside its request: the event ``usage``.

:mod:`hpcflow.runtime.sampling` writes it and documents each number. Each event covers the whole
attempt so far; the last one counts. Unknown values are None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from hpcflow.model.events import finite

_MOST_NAMES: Final = 16
_MOST_CHARS: Final = 200
#: A host name has at most 64 characters.
_NAME_CHARS: Final = 80
#: Bounds that no attempt reaches, in seconds, nodes, cores or GPUs.
MOST_S: Final = 10 * 366 * 24 * 3600
MOST_COUNT: Final = 1_000_000
MOST_MB: Final = 1 << 30
#: End of a field's name -> its largest plausible value. All other fields are counts.
_MOST: Final[dict[str, float]] = {
    "seconds": MOST_S,
    "time_limit_min": MOST_S / 60,
    "cpu_s": 2**53,
    "samples": 2**53,
    "_mb": MOST_MB,
    **dict.fromkeys(("busy_mean", "busy_p50", "busy_p95", "busy_least"), 100.0),
}
#: Allocation per node: key in the event -> field here.
_ASKED: Final = {
    "cpus": "cpus",
    "gpus": "gpus_per_node",
    "mem_mb": "mem_mb",
    "time_limit_min": "time_limit_min",
}


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurements of one attempt.

    Attributes:
        seconds: from the beginning of the program to the last sample.
        nodes: number of nodes that reported.
        cpus, gpus_per_node, mem_mb, time_limit_min: the allocation per node.
        cores_mean, cores_p50, cores_p95: busy CPU cores per node; the mean over the nodes, the
            quantiles of the busiest node.
        mem_peak_mb: the maximum over the nodes.
        mem_by: how memory was counted: ``cgroup`` or ``processes``.
        gpus: number of sampled GPUs, on all nodes.
        gpu_busy_mean: percent of the time with a kernel running; the mean over GPUs, as are the
            quantiles. ``gpu_busy_least``: of the least busy GPU.
        gpu_mem_peak_mb, gpu_mem_total_mb: the maximum over the GPUs, and the smallest size.
        gpus_unused: GPUs that never executed anything. ``_names``: node and index of some.
        gpus_idle: GPUs that have executed nothing for ten minutes or more.
    """

    seconds: float
    samples: int = 0
    nodes: int = 1
    cpus: int | None = None
    gpus_per_node: int | None = None
    mem_mb: int | None = None
    time_limit_min: int | None = None
    cpu_s: float | None = None
    cores_mean: float | None = None
    cores_p50: float | None = None
    cores_p95: float | None = None
    mem_peak_mb: int | None = None
    mem_mean_mb: int | None = None
    mem_peak_node: str | None = None
    mem_by: str | None = None
    gpus: int | None = None
    gpu_busy_mean: float | None = None
    gpu_busy_p50: float | None = None
    gpu_busy_p95: float | None = None
    gpu_busy_least: float | None = None
    gpu_mem_peak_mb: int | None = None
    gpu_mem_total_mb: int | None = None
    gpus_unused: int = 0
    gpus_idle: int = 0
    gpus_unused_names: tuple[str, ...] = ()
    gpus_idle_names: tuple[str, ...] = ()


_FIELDS: Final = {field.name: str(field.type) for field in fields(Measured)}
_LIMITS: Final = {
    name: next((most for end, most in _MOST.items() if name.endswith(end)), MOST_COUNT)
    for name in _FIELDS
}


def measured(said: object) -> Measured | None:
    """Return the measurements in an event, or in stored data of one; None if there are none."""
    kept = kept_of(said)
    if kept is None:
        return None
    names = {name: tuple(kept[name]) for name in _FIELDS if name.endswith("_names") if name in kept}
    return Measured(**{**kept, **names})


def kept_of(said: object) -> dict[str, Any] | None:
    """Return the plausible values of an event as JSON values, bounded in size; None without any."""
    if not isinstance(said, Mapping):
        return None
    if not _value("seconds", said.get("seconds")):
        return None  # the period is unknown
    asked = said.get("asked")
    if isinstance(asked, Mapping):
        said = {**said, **{_ASKED[name]: asked[name] for name in _ASKED if name in asked}}
    kept: dict[str, Any] = {}
    for name in _FIELDS:
        value = _value(name, said.get(name))
        if value is not None:
            kept[name] = value
    for name in ("gpus_unused", "gpus_idle"):
        if kept.get(name, 0) > kept.get("gpus", 0):
            del kept[name]
    return kept


def _value(name: str, value: object) -> Any:
    kind = _FIELDS[name]
    if kind.startswith("tuple"):
        if not isinstance(value, (list, tuple)):
            return None
        return [_text(each)[:_NAME_CHARS] for each in value[:_MOST_NAMES] if isinstance(each, str)]
    if kind.startswith("str"):
        return _text(value) if isinstance(value, str) else None
    number = finite(value)
    if number is None or not 0 <= number <= _LIMITS[name]:
        return None
    return int(number) if kind.startswith("int") else number


def _text(value: str) -> str:
    return (
        value[:_MOST_CHARS]
        .replace("\0", "\N{REPLACEMENT CHARACTER}")
        .encode("utf-8", "replace")
        .decode()
    )
