"""Recommend what to request instead, or say why there is no advice. Pure.

Advice needs evidence: attempts that were measured long enough, or to their end. The margins are
also in docs/efficiency.md. There is no advice that would save less than a quarter.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hpcflow.model.measured import Measured
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
#: An idle GPU counts as not needed if it was measured for this long.
_ENOUGH_S: Final = 300.0
#: Percent of the time; a lower utilization gets advice.
_RARELY_BUSY: Final = 50.0
#: Share of the training's time; a longer wait for data gets advice.
_WAITS: Final = 0.2
_MOSTLY_EMPTY: Final = 0.25
#: More than the driver and an idle process take: the GPU is used, even without observed activity.
_HELD_MB: Final = 1024
#: GPU memory / measured peak that a GPU type needs to be advised.
_ROOM: Final = 1.2


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


def advise_gpus(
    uses: Sequence[Use], gpu_mem_mb: Mapping[str, int], gpu_partitions: Mapping[str, str]
) -> list[Advice | Nothing]:
    """Return advice about the GPUs of a run; empty if it has none."""
    if not any(use.gpus for use in uses):
        return []
    seen = [(use, use.measured) for use in uses if use.measured is not None and use.gpus]
    found: list[Advice | Nothing] = [*_waiting(uses)]
    if not any(each.gpus for _, each in seen):
        why = "they were not measured: the nodes' NVIDIA driver did not answer"
        return [*found, Nothing("GPUs", why if seen else "it was not measured")]
    proven = [each for each in seen if is_proven(each[0])]
    if not proven:
        return [*found, unproven(uses, "GPUs")]
    use, longest = max(proven, key=lambda each: each[1].seconds if each[1].gpus else 0.0)
    if longest.seconds < _ENOUGH_S:
        return [*found, Nothing("GPUs", "no attempt has run for five minutes")]
    found.append(_count(use, longest))
    if not any(isinstance(each, Advice) for each in found):
        found.append(_busy(longest))
    found.append(_gpu_memory(seen, gpu_mem_mb, gpu_partitions))
    return found


def _waiting(uses: Sequence[Use]) -> list[Advice | Nothing]:
    """Return advice if training waits for its data, by the reports of its loop."""
    reported = [use for use in uses if use.data_wait is not None]
    if not reported:
        return []
    use = next((each for each in reversed(reported) if has_trained(each)), reported[-1])
    busy = use.measured.gpu_busy_mean if use.measured else None
    if (use.data_wait or 0.0) < _WAITS or (busy is not None and busy >= 80):
        return []
    if not has_trained(use):
        return [Nothing("loader", "no attempt has trained for ten minutes")]
    waits = f"training waited {100 * (use.data_wait or 0):.0f} % of its time for data"
    workers, cpus = use.loader_workers, use.cpus
    if workers is None:
        return [Advice("loader", None, None, waits)]
    text = f"{workers} loader workers starve the GPU: {waits}"
    if cpus is not None and workers * use.tasks >= cpus:
        better = 2 * max(1, cpus // use.tasks)
        text += f", and the job has {cpus} cores on a node; ask for {better} for each rank"
        return [Advice("loader", "resources.cpus_per_task", str(better), text)]
    room = "" if cpus is None else f" (the job has {cpus} cores on a node)"
    return [Advice("loader", None, None, f"{text}; try num_workers={max(2, workers * 2)}{room}")]


def _count(use: Use, seen: Measured) -> Advice | Nothing:
    what = "GPUs"
    unused, all_of_them = seen.gpus_unused, seen.gpus or 0
    names = ", ".join(seen.gpus_unused_names)
    if all_of_them < use.gpus:
        never = f"; of those never used: {names}" if unused else ""
        return Nothing(what, f"only {all_of_them} of {use.gpus} were measured{never}")
    if not unused:
        return Nothing(what, f"each of {all_of_them} was used")
    if unused >= all_of_them:
        return _none(use, seen, names)
    is_one = unused == 1 and len(seen.gpus_unused_names) == 1
    which = f"GPU {names} was never used" if is_one else f"{unused} GPUs were never used: {names}"
    per_node = Counter(name.rpartition(":")[0] for name in seen.gpus_unused_names)
    has_all_names = unused == len(seen.gpus_unused_names)
    whole = [node for node, count in per_node.items() if count == use.gpus_per_node]
    if has_all_names and len(whole) * use.gpus_per_node == unused and whole and use.nodes > 1:
        better = use.nodes - len(whole)
        nodes = "1 node" if better == 1 else f"{better} nodes"
        text = f"{which}; ask for {nodes}, not {use.nodes}"
        return Advice(what, "resources.nodes", str(better), text)
    least = min(per_node.values()) if len(per_node) == use.nodes and has_all_names else 0
    if least:
        better = use.gpus_per_node - least
        text = f"{which}; ask for {better} on a node, not {use.gpus_per_node}"
        return Advice(what, "resources.gpus_per_node", str(better), text)
    return Advice(what, None, None, f"{which}; check what the ranks of that node do")


def _none(use: Use, seen: Measured, names: str) -> Advice | Nothing:
    """Return whether a run without activity on any GPU needs GPUs. Without any, a program that uses
    them fails at once."""
    what = "GPUs"
    if use.trained_s is None and use.is_running:
        return Nothing(what, "none was used so far: the program may still be preparing")
    if use.trained_s is None and use.cause != Cause.COMPLETED.value:
        return Nothing(what, "none was used before it ended: it may have ended before its training")
    held_mb = seen.gpu_mem_peak_mb or 0
    if held_mb > _HELD_MB:
        held = f"{held_mb / 1024:.1f} GiB of a GPU were in use"
        return Nothing(what, f"no activity was measured, but {held}")
    text = f"no GPU was ever used ({names}): ask for none"
    return Advice(what, "resources.gpus_per_node", "0", text)


def _busy(seen: Measured) -> Advice | Nothing:
    what = "GPU time"
    busy = seen.gpu_busy_mean
    if busy is None:
        return Nothing(what, "the driver does not report their utilization")
    if busy >= _RARELY_BUSY:
        return Nothing(what, f"busy {busy:.0f} % of the time")
    text = (
        f"the GPUs are busy {busy:.0f} % of the time: fewer of them, larger batches, or more "
        "loader workers"
    )
    return Advice(what, None, None, text)


def _gpu_memory(
    seen: Sequence[tuple[Use, Measured]],
    gpu_mem_mb: Mapping[str, int],
    gpu_partitions: Mapping[str, str],
) -> Advice | Nothing:
    what = "GPU memory"
    known = [each for _, each in seen if each.gpu_mem_peak_mb and each.gpu_mem_total_mb]
    if not known:
        return Nothing(what, "the driver does not report it")
    if not any(is_proven(use) and is_covered(use) for use, _ in seen):
        return uncovered(what)
    partly = [(each.gpus or 0, use.gpus) for use, each in seen if is_proven(use)]
    if all(number < gpus for number, gpus in partly):
        number, gpus = max(partly)
        return Nothing(what, f"only {number} of {gpus} GPUs were measured")
    most = max(known, key=lambda each: each.gpu_mem_peak_mb or 0)
    peak, total = most.gpu_mem_peak_mb or 0, most.gpu_mem_total_mb or 1
    share = f"{peak / 1024:.1f} of {total / 1024:.0f} GiB"
    if peak >= _NEARLY_FULL * total:
        return Nothing(what, f"nearly full, {share}: a larger batch may not fit")
    if peak > _MOSTLY_EMPTY * total or (most.gpus_unused or 0) >= (most.gpus or 1):
        return Nothing(what, share)
    would_do = {
        name: mem
        for name, mem in gpu_mem_mb.items()
        if peak * _ROOM <= mem < _MOSTLY_EMPTY * 2 * total
    }
    if would_do:
        name = min(would_do, key=lambda each: (would_do[each], each))
        text = f"{share} were used: a {name} with {would_do[name] / 1024:.0f} GiB is enough"
        if name in gpu_partitions:
            partition = gpu_partitions[name]
            return Advice(
                what, "resources.partition", partition, f"{text}, in partition {partition}"
            )
        return Advice(what, "resources.gpu_type", name, text)
    text = f"{share} were used: a batch twice as large would fit"
    return Advice(what, None, None, text)
