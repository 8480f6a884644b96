"""What attempts had and used, for right-sizing. Reads only."""

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
    """An attempt that was a job, and what of its run is needed to judge it.

    Attributes:
        resources: what the run asks for now.
        journal, report: what the two sides said of the attempt.
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
    *("run_id", "attempt", "state", "cause", "started_at", "ended_at"),
    *("elapsed_s", "journal", "report"),
)


def used(
    connection: Connection,
    *,
    run_id: str | None = None,
    since: datetime | None = None,
    filters: Mapping[str, str] | None = None,
    everyone: bool = False,
) -> list[UsedRow]:
    """Attempts that were jobs and have begun, by run and number.

    Args:
        run_id: of this run alone.
        since: only those that run, or have ended since.
        filters: column of a run -> the value that it must have.
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
    chosen = partial(selected, connection.url.kind, everyone=everyone)
    left_out = connection.left_out
    names = chosen(AttemptRow, _OF_ATTEMPT)
    of_attempt = f"SELECT {names} FROM attempt WHERE {where} "  # noqa: S608 - our names, and marks
    with connection.transaction(write=False, everyone=everyone):
        found = connection.rows(f"{of_attempt} ORDER BY run_id, attempt", values)
        runs = connection.rows(
            f"SELECT {chosen(RunRow, _OF_RUN)} FROM run WHERE {of_run}",  # noqa: S608 - as above
            run_values,
        )
    sound = decode_sound(RunRow, _OF_RUN, runs, lambda *said: said, left_out)
    by_id = {said[0]: said for said in sound}
    attempts = decode_sound(AttemptRow, _OF_ATTEMPT, found, lambda *said: said, left_out)
    return [UsedRow(*by_id[said[0]], *said[1:]) for said in attempts if said[0] in by_id]
