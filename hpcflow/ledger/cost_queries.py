"""Queries for cost reports and budgets: bills, their jobs, checkpoints, and costs. Read-only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Any, Final

from hpcflow.clock import to_text
from hpcflow.ledger.clauses import LIVE, among, marks, same_run, without_spoofed
from hpcflow.ledger.codec import decode_sound, selected
from hpcflow.ledger.connection import Connection
from hpcflow.ledger.rows import AttemptRow, BilledRow, JobRow, RunRow, SpendingRow, StoringRow
from hpcflow.model.state import AttemptState, RunState

_RUN_AND_ATTEMPT: Final = attrgetter("run_id", "attempt")
_BELONGS: Final = ("run_id", "project", "user_name", "site", "parent_sweep", "gpu_type")
_SITE: Final = ("run_id", "site")
_BILLED: Final = (
    *("run_id", "attempt", "partition", "account", "gpu_type", "cause", "ended_at", "billed_by"),
    *("elapsed_s", "gpu_hours", "cost_usd", "cost_su", "on_demand_usd", "wasted_s", "parts"),
)
_JOB: Final = ("run_id", "attempt", "job_id", "job_name", "submitted_at")
_STORING: Final = (
    *("run_id", "project", "user_name", "site", "parent_sweep", "run_dir", "mirror_url"),
)
_FINAL: Final = (RunState.COMPLETED.value, RunState.CANCELLED.value)
_UNSETTLED: Final = (
    "user_name = ? AND (state NOT IN (?, ?) OR run_id IN "  # noqa: S608 - our words
    f"(SELECT run_id FROM attempt WHERE state IN ({marks(LIVE)}) OR bill_due_at IS NOT NULL))"
)
_UNDER_WAY: Final = (
    "user_name = ? AND run_id IN "  # noqa: S608 - our words
    f"(SELECT run_id FROM attempt WHERE state IN ({marks(LIVE)}) AND started_at IS NOT NULL)"
)
_SPENT: Final = (
    *("run_id", "attempt", "state", "job_id", "submitted_at", "started_at", "ended_at"),
    *("billed_by", "elapsed_s", "gpu_hours", "cost_usd", "cost_su", "bill_due_at", "account"),
)
_SPENDING: Final = (
    *("run_id", "project", "user_name", "site", "run_dir", "parent_sweep", "gpus", "next_action"),
)


def bills(
    connection: Connection,
    *,
    since: datetime,
    until: datetime,
    filters: Mapping[str, str],
    everyone: bool = False,
) -> list[BilledRow]:
    """Return ended attempts that were jobs, with bills; filters: column of a run -> value."""
    chosen = partial(selected, connection.url.kind, everyone=everyone)
    # Unordered: ordering by key would make the database look up each row.
    of_attempts = (
        f"SELECT {chosen(AttemptRow, _BILLED)} FROM attempt "  # noqa: S608 - our names
        "WHERE state = ? AND job_id IS NOT NULL AND ended_at >= ? AND ended_at < ?"
        f"{without_spoofed(connection, 'attempt', everyone=everyone)}"
    )
    of_runs = (
        f"SELECT {chosen(RunRow, _BELONGS)} FROM run "  # noqa: S608 - our names
        f"WHERE 1 = 1{_fits(filters)}{without_spoofed(connection, 'run', everyone=everyone)}"
    )
    times = [AttemptState.ENDED.value, to_text(since), to_text(until)]
    with connection.transaction(write=False, everyone=everyone):
        rows = connection.rows(of_attempts, times)
        found = connection.rows(of_runs, [*filters.values()])
    runs = decode_sound(RunRow, _BELONGS, found, lambda *run: run, connection.left_out)
    by_id = {run[0]: run[1:] for run in runs}

    def billed(
        run_id: str,
        number: int,
        partition: str | None,
        account: str | None,
        gpu_type: str | None,
        *bill: Any,
    ) -> BilledRow | None:
        said = by_id.get(run_id)
        if said is None:
            return None
        project, user, site, sweep, first_type = said
        gpu_type = first_type if gpu_type is None else gpu_type
        where = project, user, site, sweep, partition, account, gpu_type
        return BilledRow(run_id, number, *where, *bill)

    made = decode_sound(AttemptRow, _BILLED, rows, billed, connection.left_out)
    del rows, found  # a hundred thousand can take most of the memory
    kept = [row for row in made if row is not None]
    kept.sort(key=_RUN_AND_ATTEMPT)
    return kept


def jobs(connection: Connection, *, user: str) -> list[JobRow]:
    """Return all attempts of a user that are, or were, jobs."""
    own = "SELECT run_id FROM run WHERE user_name = ?"
    of_attempts = (
        f"SELECT {selected(connection.url.kind, AttemptRow, _JOB)} FROM attempt "  # noqa: S608 - our names
        f"WHERE job_id IS NOT NULL AND run_id IN ({own}) ORDER BY run_id, attempt"
    )
    with connection.transaction(write=False):
        rows = connection.rows(of_attempts, [user])
        of_runs = f"SELECT {selected(connection.url.kind, RunRow, _SITE)} FROM run"  # noqa: S608 - our names
        found = connection.rows(f"{of_runs} WHERE user_name = ?", [user])
    left_out = connection.left_out
    site_of = dict(decode_sound(RunRow, _SITE, found, lambda *run: run, left_out))
    attempts = decode_sound(AttemptRow, _JOB, rows, lambda *attempt: attempt, left_out)
    return [
        JobRow(run_id, number, job_id, job_name, site_of[run_id], at)
        for run_id, number, job_id, job_name, at in attempts
        if run_id in site_of
    ]


def sites(
    connection: Connection, *, filters: Mapping[str, str], everyone: bool = False
) -> list[str]:
    """Return the site names of all matching runs; filters as in :func:`bills`."""
    site = selected(connection.url.kind, RunRow, ("site",), everyone=everyone)
    sql = f"SELECT DISTINCT {site} FROM run WHERE 1 = 1{_fits(filters)} ORDER BY 1"  # noqa: S608 - our names
    with connection.transaction(write=False, everyone=everyone):
        found = connection.rows(sql, [*filters.values()])
    return [site for (site,) in found if site is not None]


def storing(
    connection: Connection,
    sites: Sequence[str],
    *,
    filters: Mapping[str, str],
    everyone: bool = False,
) -> list[StoringRow]:
    """Return the runs of these sites and their checkpoint storage; filters as in :func:`bills`."""
    if not sites:
        return []
    what = selected(connection.url.kind, RunRow, _STORING, everyone=everyone)
    where = f"site IN ({marks(sites)}){_fits(filters)}"
    where += without_spoofed(connection, "run", everyone=everyone)
    sql = f"SELECT {what} FROM run WHERE {where} ORDER BY run_id"  # noqa: S608 - our names, and marks
    with connection.transaction(write=False, everyone=everyone):
        found = connection.rows(sql, [*sites, *filters.values()])
    return decode_sound(RunRow, _STORING, found, StoringRow, connection.left_out)


def left(
    connection: Connection, sites: Sequence[str], since: datetime, *, everyone: bool = False
) -> tuple[set[str], set[str]]:
    """Return the ids of runs of these sites without a checkpoint since: in a store; on scratch.

    Runs that may have fetched a checkpoint since are excluded.
    """
    if not sites:
        return set(), set()
    return (
        _left_stores(connection, sites, since, everyone=everyone),
        _left_scratch(connection, sites, since, everyone=everyone),
    )


def _left_stores(
    connection: Connection, sites: Sequence[str], since: datetime, *, everyone: bool
) -> set[str]:
    """Return the ids of runs of these sites that were over, and removed from the store, by then."""
    had = f"EXISTS (SELECT 1 FROM mirrored WHERE {same_run(connection, 'mirrored')}"  # noqa: S608 - our names
    sql = f" AND {had}) AND NOT {had} AND (mirrored.state <> ? OR mirrored.at >= ?))"
    values = ["removed", to_text(since)]
    return _over(connection, sites, since, sql, values, everyone=everyone)


def _left_scratch(
    connection: Connection, sites: Sequence[str], since: datetime, *, everyone: bool
) -> set[str]:
    """Return the ids of runs of these sites that were over, and removed from scratch, by then.

    Runs that a store ever had a checkpoint of are excluded: no row records a restore from it.
    """
    sql = (
        f" AND NOT EXISTS (SELECT 1 FROM checkpoint WHERE {same_run(connection, 'checkpoint')}"  # noqa: S608 - our names
        " AND (removed IS NULL OR checkpoint.created_at >= ?))"
        f" AND NOT EXISTS (SELECT 1 FROM mirrored WHERE {same_run(connection, 'mirrored')})"
    )
    return _over(connection, sites, since, sql, [to_text(since)], everyone=everyone)


def _over(
    connection: Connection,
    sites: Sequence[str],
    since: datetime,
    further: str,
    values: list[str],
    *,
    everyone: bool,
) -> set[str]:
    """Return the ids of runs that ended before ``since`` and match the SQL ``further``."""
    states = [state.value for state in RunState if state.is_final]
    run_id = selected(connection.url.kind, RunRow, ("run_id",), "run", everyone=everyone)
    sql = (
        f"SELECT {run_id} FROM run "  # noqa: S608 - our names, and marks
        f"WHERE site IN ({marks(sites)}) AND state IN ({marks(states)}) "
        f"AND NOT EXISTS (SELECT 1 FROM attempt WHERE {same_run(connection, 'attempt')} "
        f"AND (attempt.state <> ? OR ended_at IS NULL OR ended_at >= ?)){further}"
        f"{without_spoofed(connection, 'run', everyone=everyone)}"
    )
    wanted = [*sites, *states, AttemptState.ENDED.value, to_text(since), *values]
    with connection.transaction(write=False, everyone=everyone):
        found = connection.rows(sql, wanted)
    return {run_id for (run_id,) in found if run_id is not None}


def spending(
    connection: Connection,
    *,
    filters: Mapping[str, str] | None = None,
    run_ids: Sequence[str] | None = None,
    everyone: bool = False,
) -> list[SpendingRow]:
    """Return all attempts of the runs with these values of columns, or with these ids."""
    if run_ids is not None:
        return [
            row
            for is_one, ids in among(connection, run_ids)
            for row in _spending(connection, f"run_id {is_one}", ids)
        ]
    where = f"1 = 1{_fits(filters or {})}"
    return _spending(connection, where, list((filters or {}).values()), everyone=everyone)


def sites_unsettled(connection: Connection, *, user: str) -> list[str]:
    """Return the sites of a user's runs that can still cost more or get a bill."""
    site = selected(connection.url.kind, RunRow, ("site",))
    sql = f"SELECT DISTINCT {site} FROM run WHERE {_UNSETTLED} ORDER BY 1"  # noqa: S608 - our words
    return [site for (site,) in connection.rows(sql, [user, *_FINAL, *LIVE])]


def projects(connection: Connection, *, user: str) -> list[str]:
    project = selected(connection.url.kind, RunRow, ("project",))
    sql = f"SELECT DISTINCT {project} FROM run WHERE user_name = ? ORDER BY 1"  # noqa: S608 - our words
    return [project for (project,) in connection.rows(sql, [user])]


def spending_unsettled(connection: Connection, *, user: str) -> list[SpendingRow]:
    """Return all attempts of a user's runs that may continue, are active, or lack a bill."""
    return _spending(connection, _UNSETTLED, [user, *_FINAL, *LIVE])


def spending_under_way(connection: Connection, *, user: str) -> list[SpendingRow]:
    """Return all attempts of a user's runs with a started attempt that has not ended."""
    return _spending(connection, _UNDER_WAY, [user, *LIVE])


def _spending(
    connection: Connection, where: str, values: Sequence[object], *, everyone: bool = False
) -> list[SpendingRow]:
    chosen = partial(selected, connection.url.kind, everyone=everyone)
    where += without_spoofed(connection, "run", everyone=everyone)
    runs = f"SELECT run_id FROM run WHERE {where}"  # noqa: S608 - our names, and marks
    of_attempt = without_spoofed(connection, "attempt", everyone=everyone)
    with connection.transaction(write=False, everyone=everyone):
        attempts = connection.rows(
            f"SELECT {chosen(AttemptRow, _SPENT)} FROM attempt WHERE run_id IN ({runs})"  # noqa: S608 - ours
            f"{of_attempt} ORDER BY run_id, attempt",
            list(values),
        )
        found = connection.rows(
            f"SELECT {chosen(RunRow, _SPENDING)} FROM run WHERE {where}",  # noqa: S608 - our names, and marks
            list(values),
        )
    left_out = connection.left_out
    sound = decode_sound(RunRow, _SPENDING, found, lambda *run: run, left_out)
    by_id: dict[str, Sequence[Any]] = {run[0]: run[1:] for run in sound}
    rows = decode_sound(AttemptRow, _SPENT, attempts, lambda *row: row, left_out)
    return [SpendingRow(*row, *by_id[row[0]]) for row in rows if row[0] in by_id]


def _fits(filters: Mapping[str, str]) -> str:
    return "".join(f" AND {name} = ?" for name in filters)
