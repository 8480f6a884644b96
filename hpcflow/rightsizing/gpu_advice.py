"""Recommend the number and memory of GPUs, and explain why they are idle. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from hpcflow.model.measured import Measured
from hpcflow.model.state import Cause
from hpcflow.rightsizing.evidence import (
    Advice,
    Nothing,
    has_trained,
    is_covered,
    is_proven,
    uncovered,
    unproven,
)
from hpcflow.rightsizing.use import Use

#: An idle GPU counts as not needed if it was measured for this long.
_ENOUGH_S: Final = 300.0
#: Percent of the time; a lower utilization gets advice.
_RARELY_BUSY: Final = 50.0
#: Share of the training's time; a longer wait for data gets advice.
_WAITS: Final = 0.2
_NEARLY_FULL: Final = 0.95
_MOSTLY_EMPTY: Final = 0.25
#: More than the driver and an idle process take: the GPU is used, even without observed activity.
_HELD_MB: Final = 1024
#: GPU memory / measured peak that a GPU type needs to be advised.
_ROOM: Final = 1.2


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
    found.append(_memory(seen, gpu_mem_mb, gpu_partitions))
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


def _memory(
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
