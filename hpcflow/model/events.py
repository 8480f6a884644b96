"""The lines of an attempt's ``events.jsonl``: what the job reports.

Written inside the job, by the job script and by ``hpcflow.runtime``, which may not import this
file; read on the login side. One JSON object on a line with ``at`` (UTC, RFC 3339), ``event`` (its
kind), and what that kind carries:

=============  ====================================================================================
event          carries
=============  ====================================================================================
started        job_id, nodes (list), restarts (times that Slurm itself restarted this job), sluid
               (which life of the job it is, where Slurm tells: 25.11 and later)
train_started  world_size, framework, total_train_steps (optional), resumed_from (a path relative
               to the run directory, or null), train_step (where training begins), loader_workers
               (processes that read data for rank 0; only where the loader says it)
progress       train_step, metrics (name -> number or null), epoch and total_train_steps (optional),
               data_wait_s (seconds so far that rank 0 waited for batches; optional)
checkpoint     train_step, path (relative to the run directory), size_bytes, epoch and metrics
               (optional); written once the checkpoint is visible, which is some train steps after
               its own. If hpcflow.runtime wrote it: held_s, seconds that the train loop was held,
               and write_s, seconds from then until it was visible; with `interval: auto` also
               interval_s, seconds from the next save's end to the begin of the one after
checkpoint_    train_step, path, size_bytes, epoch, metrics, created_at: what a checkpoint says
metrics        now, with what was logged for its train step since it was begun
checkpoint_    train_step, path, size_bytes; written when nobody sees the checkpoint any more, maybe
removed        twice
checkpoint_    train_step, why: there is no checkpoint of it, for the disk is full, for instance;
failed         the training continues, except on notice and at its end
notice         signal: TERM, USR2 or flag
finished       train_step, metrics (final, such as accuracy), model (path, optional)
usage          what the attempt has used so far, seen from beside: seconds, samples, nodes, asked
               (cpus, gpus, mem_mb, time_limit_min of every node); cpu_s, cores_mean, cores_p50,
               cores_p95; mem_peak_mb, mem_peak_node, mem_mean_mb, mem_by (processes or cgroup);
               gpus, gpu_mem_peak_mb, gpu_mem_total_mb, gpu_busy_mean, _p50, _p95, _least, and
               gpus_unused, gpus_idle with _names; what could not be seen is missing. The last one
               counts
exited         exit_code
=============  ====================================================================================

An unknown kind or key is kept out of the way, not an error: jobs outlive upgrades.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

EVENTS: Final = frozenset(
    {
        "started",
        "train_started",
        "progress",
        "checkpoint",
        "checkpoint_metrics",
        "checkpoint_removed",
        "checkpoint_failed",
        "notice",
        "finished",
        "usage",
        "exited",
    }
)

#: A longer line is not one of ours, and is skipped rather than read into memory over and over.
MAX_LINE_BYTES: Final = 1 << 20  # as in hpcflow.runtime.reading
#: Every event and record has a time and a kind, so none is shorter. A hostile file may have
#: hundreds of millions of lines, and this check is far cheaper than parsing.
_MIN_LINE_BYTES: Final = 32
_FIRST: Final = frozenset({"{", " ", "\t", b"{", b" ", b"\t"})


def may_be_record(line: bytes | str) -> bool:
    """Return whether a line can be an event or a record, by its length and first character."""
    return _MIN_LINE_BYTES <= len(line) <= MAX_LINE_BYTES and line[:1] in _FIRST


@cache
def _fast_parser() -> Callable[[bytes], Any]:
    """Return the parser for every line of all runs: it takes a third of the time of ``json.loads``.

    It is imported when there is something to parse: `hpcflow ls` imports this module.
    """
    from pydantic_core import from_json

    return from_json


def parse_event(line: bytes) -> dict[str, Any] | None:
    """One line of an event file; None when it is not one: torn, foreign, too long."""
    if not may_be_record(line):
        return None
    try:
        event = _fast_parser()(line)
    except ValueError:  # it also refuses lone surrogates, which Python's own parser takes
        try:
            event = json.loads(line.decode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError):
            return None
    if not isinstance(event, dict) or not isinstance(event.get("at"), str):
        return None
    kind = event.get("event")
    return event if isinstance(kind, str) and kind in EVENTS else None


def finite_metrics(metrics: object) -> Iterator[tuple[str, float]]:
    """The pairs of ``metrics`` that are a name and a finite number."""
    if isinstance(metrics, dict):
        for name, value in metrics.items():
            number = finite(value)
            if number is not None:
                yield str(name), number


def finite(value: object) -> float | None:
    """``value`` as a finite number; None when it is not one, or too large for one."""
    if type(value) is float:  # as nearly all are
        return value if math.isfinite(value) else None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            return None
        return number if math.isfinite(number) else None
    return None
