"""Query what attempts requested and used, for rightsizing. Read-only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

from hpcflow.clock import to_text
from hpcflow.ledger.clauses import without_spoofed
from hpcflow.ledger.codec import decode_sound, selected
from hpcflow.ledger.connection import Connection
from hpcflow.ledger.rows import AttemptRow, RunRow


@dataclass(frozen=True, slots=True)
class UsedRow:
    """An attempt that was a job, with the columns of its run for rightsizing.

    Attributes:
        resources: the run's current request.
        journal, report: the needed parts of the attempt's accumulators.
    """

    run_id: str
    project: str
    user: str
    site: str
    partition: str
    nodes: int
    gpus: int
    gpu_type: str | None
    resources: dict[str, Any]
    attempt: int
    account: str | None
    state: str
    cause: str | None
    started_at: datetime | None
    ended_at: datetime | None
    elapsed_s: float | None
    journal: dict[str, Any]
    report: dict[str, Any]


_OF_RUN: Final = (
    *("run_id", "project", "user_name", "site", "partition"),
    *("nodes", "gpus", "gpu_type", "resources"),
)
_OF_ATTEMPT: Final = (
    *("run_id", "attempt", "account", "state", "cause", "started_at", "ended_at"),
    *("elapsed_s", "journal", "report"),
)
#: The needed keys of the JSON columns.
_NEEDED: Final = {
    "resources": ("tasks_per_node", "cpus_per_task", "time_limit_min", "mem_mb"),
    "journal": ("accounted",),
    "report": (
        *("usage", "loader_workers", "trained_at", "progress_at"),
        *("train_step", "began_at", "data_wait_s"),
    ),
}
_OF_BILL: Final = ("source", "nodes", "gpus", "cpus", "mem_mb")
#: hpcflow writes fewer values than these.
_MOST_VALUES: Final = 500


def used(
    connection: Connection,
    *,
    run_id: str | None = None,
    since: datetime | None = None,
    filters: Mapping[str, str] | None = None,
    everyone: bool = False,
) -> list[UsedRow]:
    """Return attempts that were jobs and have started, by run and number.

    Args:
        run_id: only this run.
        since: only attempts that run, or have ended since.
        filters: column of a run -> its required value.
    """
    where, values = "started_at IS NOT NULL AND job_id IS NOT NULL", list[object]()
    of_run, run_values = "1 = 1", list[object]()
    if run_id is not None:
        where, values = f"{where} AND run_id = ?", [run_id]
        of_run, run_values = "run_id = ?", [run_id]
    if since is not None:
        where += " AND (ended_at IS NULL OR ended_at >= ?)"
        values.append(to_text(since))
    for name, value in (filters or {}).items():
        of_run += f" AND {name} = ?"
        run_values.append(value)
    where += without_spoofed(connection, "attempt", everyone=everyone)
    of_run += without_spoofed(connection, "run", everyone=everyone)
    chosen = partial(selected, connection.url.kind, everyone=everyone, any_number=True)
    left_out = connection.left_out
    names = chosen(AttemptRow, _OF_ATTEMPT)
    of_attempt = f"SELECT {names} FROM attempt WHERE {where} "  # noqa: S608 - our names, and marks
    with connection.transaction(write=False, everyone=everyone):
        found = connection.rows(f"{of_attempt} ORDER BY run_id, attempt", values)
        runs = connection.rows(
            f"SELECT {chosen(RunRow, _OF_RUN)} FROM run WHERE {of_run}",  # noqa: S608 - as above
            run_values,
        )
    sound = decode_sound(RunRow, _OF_RUN, runs, partial(_needed, _OF_RUN), left_out)
    by_id = {said[0]: said for said in sound}
    some = partial(_needed, _OF_ATTEMPT)
    attempts = decode_sound(AttemptRow, _OF_ATTEMPT, found, some, left_out)
    return [UsedRow(*by_id[said[0]], *said[1:]) for said in attempts if said[0] in by_id]


def _needed(names: tuple[str, ...], *said: Any) -> tuple[Any, ...]:
    """Return a row with only the needed keys of its JSON; ValueError if they are too many."""
    return tuple(
        _some(value, _NEEDED[name]) if name in _NEEDED else value
        for name, value in zip(names, said, strict=True)
    )


def _some(value: dict[str, Any], wanted: tuple[str, ...]) -> dict[str, Any]:
    some = {name: value[name] for name in wanted if name in value}
    if isinstance(bill := some.get("accounted"), dict):
        some["accounted"] = {name: bill[name] for name in _OF_BILL if name in bill}
    todo: list[Any] = [some]
    count = 0
    while todo:
        each = todo.pop()
        if isinstance(each, dict | list):
            count += len(each)
            todo += each.values() if isinstance(each, dict) else each
        if count > _MOST_VALUES:
            raise ValueError(f"more than {_MOST_VALUES} values in {', '.join(wanted)}")
    return some
