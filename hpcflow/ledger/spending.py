"""Queries for budgets: the cost of attempts of a scope, or of some runs. Read-only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from hpcflow.ledger.clauses import LIVE, among, marks, without_spoofed
from hpcflow.ledger.codec import decode_sound, selected
from hpcflow.ledger.connection import Connection
from hpcflow.ledger.rows import AttemptRow, RunRow, SpendingRow
from hpcflow.model.state import RunState

_FINAL: Final = (RunState.COMPLETED.value, RunState.CANCELLED.value)
_UNSETTLED: Final = (
    "user_name = ? AND (state NOT IN (?, ?) OR run_id IN "  # noqa: S608 - our words
    f"(SELECT run_id FROM attempt WHERE state IN ({marks(LIVE)}) OR bill_due_at IS NOT NULL))"
)
_UNDER_WAY: Final = (
    "user_name = ? AND run_id IN "  # noqa: S608 - our words
    f"(SELECT run_id FROM attempt WHERE state IN ({marks(LIVE)}) AND started_at IS NOT NULL)"
)
_ATTEMPT: Final = (
    *("run_id", "attempt", "state", "job_id", "submitted_at", "started_at", "ended_at"),
    *("billed_by", "elapsed_s", "gpu_hours", "cost_usd", "cost_su", "bill_due_at", "account"),
)
_RUN: Final = (
    *("run_id", "project", "user_name", "site", "run_dir", "parent_sweep", "gpus", "next_action"),
)


def of_runs_with(
    connection: Connection, filters: Mapping[str, str], *, everyone: bool
) -> list[SpendingRow]:
    """Return all attempts of the runs with these values of columns."""
    where = " AND ".join(f"{name} = ?" for name in filters) or "1 = 1"
    return _found(connection, where, list(filters.values()), everyone=everyone)


def of_runs(connection: Connection, run_ids: Sequence[str]) -> list[SpendingRow]:
    return [
        row
        for is_one, ids in among(connection, run_ids)
        for row in _found(connection, f"run_id {is_one}", ids)
    ]


def sites_unsettled(connection: Connection, user: str) -> list[str]:
    """Return the sites of the runs of :func:`unsettled`."""
    site = selected(connection.url.kind, RunRow, ("site",))
    sql = f"SELECT DISTINCT {site} FROM run WHERE {_UNSETTLED} ORDER BY 1"  # noqa: S608 - our words
    return [site for (site,) in connection.rows(sql, [user, *_FINAL, *LIVE])]


def projects(connection: Connection, user: str) -> list[str]:
    project = selected(connection.url.kind, RunRow, ("project",))
    sql = f"SELECT DISTINCT {project} FROM run WHERE user_name = ? ORDER BY 1"  # noqa: S608 - our words
    return [project for (project,) in connection.rows(sql, [user])]


def unsettled(connection: Connection, user: str) -> list[SpendingRow]:
    """Return all attempts of a user's runs that may continue, are active, or lack a bill."""
    return _found(connection, _UNSETTLED, [user, *_FINAL, *LIVE])


def under_way(connection: Connection, user: str) -> list[SpendingRow]:
    """Return all attempts of a user's runs with a started attempt that has not ended."""
    return _found(connection, _UNDER_WAY, [user, *LIVE])


def _found(
    connection: Connection, where: str, values: Sequence[object], *, everyone: bool = False
) -> list[SpendingRow]:
    chosen = partial(selected, connection.url.kind, everyone=everyone)
    where += without_spoofed(connection, "run", everyone=everyone)
    runs = f"SELECT run_id FROM run WHERE {where}"  # noqa: S608 - our names, and marks
    of_attempt = without_spoofed(connection, "attempt", everyone=everyone)
    with connection.transaction(write=False, everyone=everyone):
        attempts = connection.rows(
            f"SELECT {chosen(AttemptRow, _ATTEMPT)} FROM attempt WHERE run_id IN ({runs})"  # noqa: S608 - ours
            f"{of_attempt} ORDER BY run_id, attempt",
            list(values),
        )
        found = connection.rows(
            f"SELECT {chosen(RunRow, _RUN)} FROM run WHERE {where}",  # noqa: S608 - our names, and marks
            list(values),
        )
    left_out = connection.left_out
    by_id: dict[str, Sequence[Any]] = {
        run[0]: run[1:] for run in decode_sound(RunRow, _RUN, found, lambda *run: run, left_out)
    }
    rows = decode_sound(AttemptRow, _ATTEMPT, attempts, lambda *row: row, left_out)
    return [SpendingRow(*row, *by_id[row[0]]) for row in rows if row[0] in by_id]
