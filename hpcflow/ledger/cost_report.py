"""Queries for cost reports: bills, their jobs, and checkpoints. Read-only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Any, Final

from hpcflow.clock import to_text
from hpcflow.ledger.clauses import same_run, without_spoofed
from hpcflow.ledger.codec import decode_sound, selected
from hpcflow.ledger.connection import Connection
from hpcflow.ledger.rows import AttemptRow, BilledRow, JobRow, RunRow, StoringRow
from hpcflow.model.state import AttemptState, RunState


def bills(
    connection: Connection,
    since: datetime,
    until: datetime,
    filters: Mapping[str, str],
    *,
    everyone: bool,
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


def jobs(connection: Connection, user: str) -> list[JobRow]:
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


def sites(connection: Connection, filters: Mapping[str, str], *, everyone: bool) -> list[str]:
    """Return the sites of all matching runs; filters as in :func:`bills`."""
    site = selected(connection.url.kind, RunRow, ("site",), everyone=everyone)
    sql = f"SELECT DISTINCT {site} FROM run WHERE 1 = 1{_fits(filters)} ORDER BY 1"  # noqa: S608 - our names
    with connection.transaction(write=False, everyone=everyone):
        found = connection.rows(sql, [*filters.values()])
    return [site for (site,) in found if site is not None]


def storing(
    connection: Connection, sites: Sequence[str], filters: Mapping[str, str], *, everyone: bool
) -> list[StoringRow]:
    """Return the runs of these sites and their checkpoint storage; filters as in :func:`bills`."""
    marks = ", ".join("?" * len(sites))
    what = selected(connection.url.kind, RunRow, _STORING, everyone=everyone)
    where = (
        f"site IN ({marks}){_fits(filters)}{without_spoofed(connection, 'run', everyone=everyone)}"
    )
    sql = f"SELECT {what} FROM run WHERE {where} ORDER BY run_id"  # noqa: S608 - our names, and marks
    with connection.transaction(write=False, everyone=everyone):
        found = connection.rows(sql, [*sites, *filters.values()])
    return decode_sound(RunRow, _STORING, found, StoringRow, connection.left_out)


def left_stores(
    connection: Connection, sites: Sequence[str], since: datetime, *, everyone: bool
) -> set[str]:
    """Return the ids of runs of these sites that were over, and removed from the store, by then."""
    had = f"EXISTS (SELECT 1 FROM mirrored WHERE {same_run(connection, 'mirrored')}"  # noqa: S608 - our names
    sql = f" AND {had}) AND NOT {had} AND (mirrored.state <> ? OR mirrored.at >= ?))"
    values = ["removed", to_text(since)]
    return _over(connection, sites, since, sql, values, everyone=everyone)


def left_scratch(
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
        f"WHERE site IN ({', '.join('?' * len(sites))}) "
        f"AND state IN ({', '.join('?' * len(states))}) "
        f"AND NOT EXISTS (SELECT 1 FROM attempt WHERE {same_run(connection, 'attempt')} "
        f"AND (attempt.state <> ? OR ended_at IS NULL OR ended_at >= ?)){further}"
        f"{without_spoofed(connection, 'run', everyone=everyone)}"
    )
    wanted = [*sites, *states, AttemptState.ENDED.value, to_text(since), *values]
    with connection.transaction(write=False, everyone=everyone):
        found = connection.rows(sql, wanted)
    return {run_id for (run_id,) in found if run_id is not None}


def _fits(filters: Mapping[str, str]) -> str:
    return "".join(f" AND {name} = ?" for name in filters)
