"""Write changes of runs: each wholly or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import chain
from typing import Final

from hpcflow.errors import LedgerValueError
from hpcflow.ledger import queries
from hpcflow.ledger.best import find_best
from hpcflow.ledger.bulk import insert, update, upsert
from hpcflow.ledger.codec import columns, decode_sound, misfit, selected
from hpcflow.ledger.connection import Connection
from hpcflow.ledger.derive import OF_PROGRESS
from hpcflow.ledger.rows import AttemptRow, BestBy, Change, CheckpointRow, RunRow


def write(connection: Connection, changes: Sequence[Change]) -> list[str]:
    """Write changes; see :meth:`hpcflow.ledger.store.Ledger.apply`."""
    with connection.transaction(write=True):
        mine = _claim(connection, changes)
        for change in mine:
            if change.from_zero:
                for table in ("attempt", "checkpoint", "mirrored", "source"):
                    sql = f"DELETE FROM {table} WHERE run_id = ?"  # noqa: S608 - our names, and marks
                    connection.execute(sql, [change.run.run_id])
        of_kind: dict[_Kind, list[Change]] = {kind: [] for kind in _Kind}
        for change in mine:
            of_kind[_kind(change)].append(change)
        for kind, names in _WRITTEN.items():
            update(connection, "run", names, [change.run for change in of_kind[kind]])
        progress = of_kind.pop(_Kind.PROGRESS)
        upsert(connection, "attempt", _attempts(chain.from_iterable(of_kind.values())))
        update(connection, "attempt", ("report",), _attempts(progress))
        upsert(connection, "checkpoint", [row for change in mine for row in change.checkpoints])
        for change in mine:
            if change.best_by is not None:
                _mark_best(connection, change.run.run_id, change.best_by)
        upsert(connection, "mirrored", [row for change in mine for row in change.mirrored])
        upsert(connection, "source", [row for change in mine for row in change.sources])
    written = {id(change) for change in mine}
    return [change.run.run_id for change in changes if id(change) not in written]


def value_error(changes: Sequence[Change], error: Exception) -> LedgerValueError:
    """Return an error that names the run and the column of the value that was not stored."""
    for change in changes:
        tables = (change.attempts, change.checkpoints, change.mirrored, change.sources)
        for row in chain([change.run], *tables):
            if found := misfit(row):
                run_id, kind = change.run.run_id, type(row).__name__.removesuffix("Row").lower()
                return LedgerValueError(
                    f"the ledger cannot store the column {found[0]} of {run_id}, table {kind}: "
                    f"{found[1]}",
                    next_action=f"look at the files of the run: hpcflow history {run_id}",
                )
    ids = ", ".join(change.run.run_id for change in changes[:3])
    return LedgerValueError(f"the ledger cannot store a value of {ids}: {str(error)[:120]}")


def _claim(connection: Connection, changes: Sequence[Change]) -> list[Change]:
    """Lock the runs, and return the changes of those that no process wrote to since the read.

    All writers lock in one order, known runs first, so there is no deadlock.
    """
    is_known = {change.run.run_id: change.bytes_before is not None for change in changes}
    found = queries.bytes_read(connection, [run_id for run_id, known in is_known.items() if known])
    mine = []
    for change in sorted(changes, key=lambda change: change.run.run_id):
        if change.bytes_before is None:
            is_mine = insert(connection, "run", change.run)
        else:
            is_mine = found.get(change.run.run_id) == change.bytes_before
        if is_mine:
            mine.append(change)
    return mine


def _mark_best(connection: Connection, run_id: str, by: BestBy) -> None:
    """Mark only the best checkpoint of a run."""
    names = columns(CheckpointRow)
    what = selected(connection.url.kind, CheckpointRow, names)
    sql = f"SELECT {what} FROM checkpoint WHERE run_id = ? AND removed IS NULL"  # noqa: S608 - our names
    found = connection.rows(sql, [run_id])
    rows = decode_sound(CheckpointRow, names, found, CheckpointRow, connection.left_out)
    best = find_best(rows, by)
    path, value = ("", None) if best is None else (best.path, best.metrics[by.metric])
    sql = "UPDATE checkpoint SET is_best = (path = ?) WHERE run_id = ? AND is_best <> (path = ?)"
    connection.execute(sql, [path, run_id, path])
    connection.execute("UPDATE run SET best_metric = ? WHERE run_id = ?", [value, run_id])


class _Kind(Enum):
    NEW = "new"
    REBUILT = "rebuilt"
    ON = "on"
    PROGRESS = "progress"


def _kind(change: Change) -> _Kind:
    if change.bytes_before is None:
        return _Kind.NEW
    if change.from_zero:
        return _Kind.REBUILT
    return _Kind.PROGRESS if change.is_progress else _Kind.ON


#: Kind of change -> the columns of a run that it writes. Columns from run.json change only if all
#: files were read again.
_WRITTEN: Final = {
    _Kind.REBUILT: columns(RunRow),
    _Kind.ON: columns(RunRow)[columns(RunRow).index("state") :],
    _Kind.PROGRESS: (*OF_PROGRESS, "bytes_read"),
}


def _attempts(changes: Iterable[Change]) -> list[AttemptRow]:
    return [row for change in changes for row in change.attempts]
