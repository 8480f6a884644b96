"""Recommend what to request instead, or say why there is no advice. Pure.

Advice needs evidence: attempts that were measured long enough, or to their end. The margins are
also in docs/efficiency.md. There is no advice that would save less than a quarter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hpcflow.model.state import Cause
from hpcflow.model.units import format_bytes, format_duration, write_duration, write_memory
from hpcflow.rightsizing.evidence import (
    Advice,
    Nothing,
    has_trained,
    is_covered,
    is_proven,
    some_nodes,
    uncovered,
    unproven,
)
from hpcflow.rightsizing.gpu_advice import advise_gpus
from hpcflow.rightsizing.use import Use

#: Advised request / measured use.
MARGIN: Final = 1.25
#: Advice above this share of the current request is not worth a change.
_WORTH: Final = 0.75
#: Slurm may send the notice this early; see ``--signal`` in sbatch(1).
_EARLY_S: Final = 60.0
#: A higher share of the memory is a risk.
_NEARLY_FULL: Final = 0.95
#: All cores count as busy if this share is, half of the time.
_ALL_CORES: Final = 0.9
_GIB_MB: Final = 1024


@dataclass(frozen=True)
class Advised:
    """The advice, and in ``nothing`` why there is no other."""

    advice: list[Advice]
    nothing: list[Nothing]


def advise(
    uses: Sequence[Use],
    *,
    whole_nodes: bool = False,
    gpu_mem_mb: Mapping[str, int] | None = None,
    gpu_partitions: Mapping[str, str] | None = None,
    notice_s: int | None = None,
) -> Advised:
    """Return advice for the next runs like this one.

    Args:
        uses: the attempts of a run, in order.
        whole_nodes: whether the partition allocates only whole nodes.
        gpu_mem_mb: GPU type at the site -> memory of one GPU.
        gpu_partitions: GPU type that the run's partition lacks -> a partition that has it.
        notice_s: ``checkpoint.notice`` of the run; None if unknown.
    """
    found: list[Advice | Nothing] = [_time_limit(uses, notice_s)]
    if whole_nodes:
        why = "this partition gives whole nodes only"
        found += [Nothing("memory", why), Nothing("CPU cores", why)]
    else:
        found = [_memory(uses), *found, _cpus(uses)]
    found += advise_gpus(uses, gpu_mem_mb or {}, gpu_partitions or {})
    return Advised(
        [each for each in found if isinstance(each, Advice)],
        [each for each in found if isinstance(each, Nothing)],
    )


def _memory(uses: Sequence[Use]) -> Advice | Nothing:
    what = "memory"
    asked = uses[-1].mem_mb if uses else None
    if asked is None:
        return Nothing(what, "no amount was asked for")
    ran_out = [use.mem_mb or 0 for use in uses if use.cause == Cause.OUT_OF_MEMORY.value]
    too_little = max(ran_out, default=0)
    # A peak of any attempt is a lower bound of the need.
    most = max((use.measured.mem_peak_mb or 0 for use in uses if use.measured), default=0)
    better = _round_memory_mb(max(most * MARGIN, too_little * 1.5))
    if too_little >= asked:
        return Advice(
            what,
            "resources.mem",
            write_memory(better),
            f"ask for {write_memory(better)}, not {write_memory(asked)}: an attempt ran out of "
            f"{write_memory(too_little)} (half as much again)",
        )
    if not most:
        return Nothing(what, "it was not measured")
    proven = [use for use in uses if is_proven(use)]
    if not proven:
        return unproven(uses, what)
    if not any(map(is_covered, proven)):
        return uncovered(what)
    peak = f"the most on a node was {format_bytes(most << 20)}"
    if most >= _NEARLY_FULL * asked:
        text = (
            f"ask for {write_memory(better)}, not {write_memory(asked)}: {peak}, nearly all of it"
        )
        return Advice(what, "resources.mem", write_memory(better), text)
    if partly := some_nodes(uses, what):
        return partly
    if better > _WORTH * asked:
        return Nothing(what, f"{write_memory(asked)} fits: {peak}")
    why = "and a quarter more"
    if too_little * 1.5 > most * MARGIN:
        why = f"but an attempt ran out of {write_memory(too_little)}"
    text = f"ask for {write_memory(better)}, not {write_memory(asked)}: {peak} ({why})"
    return Advice(what, "resources.mem", write_memory(better), text)


def _time_limit(uses: Sequence[Use], notice_s: int | None) -> Advice | Nothing:
    what = "time limit"
    asked = uses[-1].time_limit_min if uses else None
    if asked is None:
        return Nothing(what, "none was asked for")
    if not any(use.cause == Cause.COMPLETED.value for use in uses):
        if any(use.cause == Cause.TIMEOUT.value for use in uses):
            return Nothing(what, "it was reached, and the run continued from its checkpoint")
        return Nothing(what, "the run has not completed")
    # The sum of all attempts: an interrupted attempt has done a part of the run.
    known_s = [use.elapsed_s for use in uses if use.elapsed_s is not None]
    took_s = sum(known_s)
    if took_s <= 0 or len(known_s) < len(uses):
        return Nothing(what, "its duration is not known")
    if len({(use.nodes, use.gpus) for use in uses if use.elapsed_s}) > 1:
        return Nothing(what, "its attempts had different numbers of nodes or GPUs")
    better = _round_minutes(_limit_s(took_s * MARGIN, notice_s) / 60)
    if better > _WORTH * asked:
        return Nothing(
            what, f"{write_duration(asked * 60)} fits: it took {format_duration(took_s)}"
        )
    attempts = "" if len(uses) == 1 else f" in {len(uses)} attempts"
    return Advice(
        what,
        "resources.time_limit",
        write_duration(better * 60),
        f"ask for {write_duration(better * 60)}, not {write_duration(asked * 60)}: it took "
        f"{format_duration(took_s)}{attempts} (and a quarter more, and time for the notice); "
        "shorter jobs start sooner",
    )


def _limit_s(needed_s: float, notice_s: int | None) -> float:
    """Return the shortest time limit that gives a program this long until its notice, which comes
    at most a quarter of the limit early (:func:`hpcflow.rendering.directives.notice_before_s`)."""
    until_s = needed_s + _EARLY_S
    of_quarter_s = until_s / 0.75
    return of_quarter_s if notice_s is None else min(until_s + notice_s, of_quarter_s)


def _cpus(uses: Sequence[Use]) -> Advice | Nothing:
    what = "CPU cores"
    if not any(map(is_proven, uses)):
        return unproven(uses, what)
    # Busy cores of any attempt are a lower bound of the need.
    use = max(uses, key=lambda each: each.measured.cores_p95 or 0.0 if each.measured else 0.0)
    seen, cpus = use.measured, use.cpus
    if seen is None or seen.cores_p95 is None or not cpus:
        return Nothing(what, "it was not measured")
    per_task = max(1, cpus // use.tasks)
    if (seen.cores_p50 or 0.0) >= _ALL_CORES * cpus:
        if not is_proven(use):
            return Nothing(what, f"all {cpus} cores of a node were at work, in a short attempt")
        return _all_cores(use, per_task)
    if partly := some_nodes(uses, what):
        return partly
    better = max(1, math.ceil(seen.cores_p95 * MARGIN / use.tasks))
    used = (
        f"95 % of the time no more than {seen.cores_p95:.1f} of {cpus} cores of a node were at work"
    )
    if use.data_wait is not None and use.data_wait > 0.1:
        return Nothing(what, f"{used}; but training waits for data, and more loader workers help")
    if better > _WORTH * per_task:
        return Nothing(what, f"{per_task} for a rank fit: {used}")
    text = f"ask for {better} for each rank, not {per_task}: {used} (and a quarter more)"
    return Advice(what, "resources.cpus_per_task", str(better), text)


def _all_cores(use: Use, per_task: int) -> Advice | Nothing:
    seen = use.measured
    busy = seen.gpu_busy_mean if seen else None
    if not use.gpus or (busy is not None and busy >= 80):
        return Nothing("CPU cores", f"all {use.cpus} cores of a node are at work")
    workers = ""
    if use.loader_workers is not None and has_trained(use):
        workers = f"; {use.loader_workers} loader workers starve the GPU"
    idle = "" if busy is None else f", and the GPUs {busy:.0f} % of the time"
    return Advice(
        "CPU cores",
        "resources.cpus_per_task",
        str(per_task * 2),
        f"ask for {per_task * 2} for each rank, not {per_task}: all cores are at work"
        f"{idle}{workers}",
    )


def _round_memory_mb(mb: float) -> int:
    """Round up to quarters of a GiB below 1 GiB, to whole GiB below 64, then to multiples of 8."""
    step = _GIB_MB // 4 if mb <= _GIB_MB else _GIB_MB if mb <= 64 * _GIB_MB else 8 * _GIB_MB
    return max(step, math.ceil(mb / step) * step)


def _round_minutes(number: float) -> int:
    """Round up to 5 minutes below one hour, to quarters of an hour below 6, then to whole hours."""
    step = 5 if number <= 60 else 15 if number <= 360 else 60
    return max(step, math.ceil(number / step) * step)
