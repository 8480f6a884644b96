"""The lines of an attempt's ``events.jsonl``: what the job reports.

The job script and ``hpcflow.runtime``, which may not import this file, write them inside the job;
the login side reads them. Each line is one JSON object with ``at`` (UTC, RFC 3339), ``event`` (its
kind), and these keys:

=============  ====================================================================================
event          keys
=============  ====================================================================================
started        job_id, nodes (list), restarts (of this job by Slurm itself), sluid (tells the
               restarts of a job apart, where Slurm has it: 25.11 and later)
train_started  world_size, framework, total_train_steps (optional), resumed_from (a path relative
               to the run directory, or null), train_step (where training begins), loader_workers
               (processes that read data for rank 0; only if the loader reports it)
progress       train_step, metrics (name -> number or null), epoch and total_train_steps (optional),
               data_wait_s (seconds so far that rank 0 waited for batches; optional)
checkpoint     train_step, path (relative to the run directory), size_bytes, epoch and metrics
               (optional); written once the checkpoint is visible, some train steps after its own.
               From hpcflow.runtime also held_s, seconds that the train loop was blocked, and
               write_s, seconds from then until it was visible; with `interval: auto` also
               interval_s, seconds from the next save's end to the begin of the one after
checkpoint_    train_step, path, size_bytes, epoch, metrics, created_at: the checkpoint with the
metrics        metrics that were logged for its train step after its save began
checkpoint_    train_step, path, size_bytes; written once the checkpoint is no longer visible,
removed        possibly twice
checkpoint_    train_step, why: the checkpoint was not saved, for example because the disk is full;
failed         the training continues, except on notice and at its end
notice         signal: TERM, USR2 or flag
finished       train_step, metrics (final, such as accuracy), model (path, optional)
usage          what the attempt has used so far, measured beside it: seconds, samples, nodes, asked
               (cpus, gpus, mem_mb, time_limit_min of every node); cpu_s, cores_mean, cores_p50,
               cores_p95; mem_peak_mb, mem_peak_node, mem_mean_mb, mem_by (processes or cgroup);
               gpus, gpu_mem_peak_mb, gpu_mem_total_mb, gpu_busy_mean, _p50, _p95, _least, and
               gpus_unused, gpus_idle with _names; unknown values are missing. The last one counts
exited         exit_code
=============  ====================================================================================

Unknown kinds and keys are ignored: jobs outlive upgrades.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

from hpcflow.runtime.reading import parse_json

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

#: A longer line is foreign, and is skipped rather than read into memory again and again.
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
    """Return the parser for every line of all runs: it is faster than ``json.loads``.

    It is imported when there is something to parse: `hpcflow ls` imports this module.
    """
    from pydantic_core import from_json

    return from_json


def parse_event(line: bytes) -> dict[str, Any] | None:
    """Return the event on one line; None if the line is torn, foreign or too long."""
    if not may_be_record(line):
        return None
    try:
        event = _fast_parser()(line)
    except ValueError:  # it also refuses lone surrogates, which Python's own parser takes
        try:
            event = parse_json(line.decode("utf-8", "surrogatepass"))
        except ValueError:
            return None
    if not isinstance(event, dict) or not isinstance(event.get("at"), str):
        return None
    kind = event.get("event")
    return event if isinstance(kind, str) and kind in EVENTS else None


def finite_metrics(metrics: object) -> Iterator[tuple[str, float]]:
    """Yield the pairs of ``metrics`` that are a name and a finite number."""
    if isinstance(metrics, dict):
        for name, value in metrics.items():
            number = finite(value)
            if number is not None:
                yield str(name), number


def finite(value: object) -> float | None:
    """Return ``value`` as a finite number; None if it is not one, or is too large for one."""
    if type(value) is float:
        return value if math.isfinite(value) else None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            return None
        return number if math.isfinite(number) else None
    return None
