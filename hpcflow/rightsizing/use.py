"""Read what one attempt requested and used from its row in the ledger. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from hpcflow.clock import from_text
from hpcflow.ledger.used import UsedRow
from hpcflow.model.events import finite
from hpcflow.model.measured import MOST_COUNT, MOST_MB, MOST_S, Measured, measured
from hpcflow.model.state import AttemptState

#: More data loader processes on a node are implausible.
_MOST_WORKERS: Final = 100_000
_RUNS: Final = frozenset(
    {AttemptState.RUNNING.value, AttemptState.COMPLETING.value, AttemptState.SUSPENDED.value}
)


@dataclass(frozen=True, slots=True)
class Use:
    """The resources that one attempt had, per node, and its usage; None if unknown.

    Attributes:
        elapsed_s: from accounting; until then from the times of start and end, or until now.
        tasks: ranks on every node.
        trained_s: from the start of the training until the last reported train step; None if it
            reported no start.
        steps_per_s: train steps in that time.
        data_wait: share of that time for which rank 0 waited for its next batch.
        measured: the measurements; None if there are none.
    """

    attempt: int
    cause: str | None
    is_running: bool
    elapsed_s: float | None
    nodes: int
    gpus: int
    tasks: int
    cpus: int | None
    mem_mb: int | None
    time_limit_min: int | None
    trained_s: float | None = None
    steps_per_s: float | None = None
    data_wait: float | None = None
    loader_workers: int | None = None
    measured: Measured | None = None

    @property
    def gpus_per_node(self) -> int:
        return self.gpus // self.nodes

    @property
    def used_hours(self) -> float:
        return (self.elapsed_s or 0.0) / 3600


def uses_of(
    rows: Iterable[UsedRow], now: datetime
) -> tuple[list[tuple[UsedRow, Use]], list[UsedRow]]:
    """Return the valid rows with their usage, and the damaged rows: in a shared ledger, other users
    write their own rows."""
    found: list[tuple[UsedRow, Use]] = []
    damaged: list[UsedRow] = []
    for row in rows:
        try:
            found.append((row, use_of(row, now)))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):  # noqa: PERF203 - per row
            damaged.append(row)
    return found, damaged


def use_of(row: UsedRow, now: datetime) -> Use:
    seen = measured(row.report.get("usage"))
    bill = row.journal.get("accounted", {})
    is_accounted = bill.get("source") == "accounting"
    asked = row.resources
    nodes = (bill.get("nodes") or row.nodes) if is_accounted else row.nodes
    gpus = sum((bill.get("gpus") or {}).values()) if is_accounted else row.gpus
    is_whole = type(nodes) is type(gpus) is int
    if not (is_whole and 0 < nodes <= MOST_COUNT and 0 <= gpus <= MOST_COUNT):
        raise ValueError("no cluster has so many nodes or GPUs")
    tasks = _asked(asked, "tasks_per_node", MOST_COUNT) or max(1, gpus // nodes)
    # The node's own numbers first, because the run's request may have changed since.
    per_task = _asked(asked, "cpus_per_task", MOST_COUNT)
    of_run = per_task and per_task * tasks
    time_limit_min = _asked(asked, "time_limit_min", MOST_S // 60)
    cpus = _first(seen and seen.cpus, is_accounted and _share(bill.get("cpus"), nodes), of_run)
    mem_mb = _first(
        seen and seen.mem_mb,
        is_accounted and _share(bill.get("mem_mb"), nodes),
        _asked(asked, "mem_mb", MOST_MB),
    )
    is_running = row.state in _RUNS
    return Use(
        attempt=row.attempt,
        cause=row.cause,
        is_running=is_running,
        elapsed_s=_elapsed_s(row, now if is_running else None),
        nodes=nodes,
        gpus=gpus,
        tasks=tasks,
        cpus=cpus,
        mem_mb=mem_mb,
        time_limit_min=_first(seen and seen.time_limit_min, time_limit_min),
        measured=seen,
        loader_workers=_count(row.report.get("loader_workers")),
        **_progress(row.report),
    )


def _elapsed_s(row: UsedRow, now: datetime | None) -> float | None:
    if row.elapsed_s is not None and 0 <= row.elapsed_s <= MOST_S:
        return row.elapsed_s
    end = row.ended_at or now
    if row.started_at is None or end is None:
        return None
    return max(0.0, (end - row.started_at).total_seconds())


def _progress(report: dict[str, Any]) -> dict[str, float | None]:
    """Return the rates over the time from the first to the last reported train step."""
    begin, end = _moment(report.get("trained_at")), _moment(report.get("progress_at"))
    if begin is None:
        return {"trained_s": None}
    trained_s = 0.0 if end is None else max(0.0, (end - begin).total_seconds())
    if not trained_s:
        return {"trained_s": 0.0}
    steps = report.get("train_step", 0) - report.get("began_at", 0)
    wait_s = finite(report.get("data_wait_s"))
    return {
        "trained_s": trained_s,
        "steps_per_s": steps / trained_s if steps > 0 else None,
        "data_wait": None if wait_s is None else min(1.0, max(0.0, wait_s / trained_s)),
    }


def _share(of_all: int | None, nodes: int) -> int | None:
    return of_all // nodes if of_all and 0 < of_all < 2**53 else None


def _asked(resources: dict[str, Any], name: str, most: int) -> int | None:
    """Return a number that a run asks for, None if it asks for none; ValueError if implausible."""
    value = resources.get(name)
    if not value:
        return None
    if type(value) is not int or not 0 < value <= most:
        raise ValueError(f"{name} is not a plausible number")
    return value


def _count(value: object) -> int | None:
    """Return a number of processes on a node; None if it is not plausible."""
    number = finite(value)
    return int(number) if number is not None and 0 <= number <= _MOST_WORKERS else None


def _first(*values: Any) -> int | None:
    return next((int(value) for value in values if value), None)


def _moment(text: str | None) -> datetime | None:
    try:
        return from_text(text) if text else None
    except ValueError:
        return None
