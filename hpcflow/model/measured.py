"""What an attempt was measured to use, beside what it requested: the event ``usage``.

Written by :mod:`hpcflow.runtime.sampling`, which says how each number comes about. Each event is
about the whole attempt so far; the last one counts. What could not be seen is None.
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
#: No attempt has so many seconds, and no cluster so many nodes, cores or GPUs.
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
#: What the job has on every node, as the event names it -> as it is named here.
_ASKED: Final = {
    "cpus": "cpus",
    "gpus": "gpus_per_node",
    "mem_mb": "mem_mb",
    "time_limit_min": "time_limit_min",
}


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of one attempt.

    Attributes:
        seconds: from the beginning of the program to the last look.
        nodes: that have said anything.
        cpus, gpus_per_node, mem_mb, time_limit_min: what the attempt had, per node.
        cores_mean, cores_p50, cores_p95: CPU cores at work on a node; the mean is over the nodes,
            the others are of the node with most.
        mem_peak_mb: the most on any node.
        mem_by: how memory was counted: ``cgroup`` or ``processes``.
        gpus: that were looked at; on all nodes.
        gpu_busy_mean: percent of the time that anything was executed; the mean over GPUs, as are
            the quantiles. ``gpu_busy_least``: of the GPU with the least.
        gpu_mem_peak_mb, gpu_mem_total_mb: the most on any GPU, and the smallest size.
        gpus_unused: on which nothing was ever executed. ``_names``: node and index of some.
        gpus_idle: on which nothing is executed since ten minutes or more.
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
    """What an event says, or what was kept of one; None where it says nothing."""
    kept = kept_of(said)
    if kept is None:
        return None
    names = {name: tuple(kept[name]) for name in _FIELDS if name.endswith("_names") if name in kept}
    return Measured(**{**kept, **names})


def kept_of(said: object) -> dict[str, Any] | None:
    """What is kept of an event, as JSON values: what can be right, in a bounded size."""
    if not isinstance(said, Mapping):
        return None
    if not _value("seconds", said.get("seconds")):
        return None  # nobody knows of which time it speaks
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
