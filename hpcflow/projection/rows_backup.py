"""A backup of the rows of a run, in its record: ``rows.json.gz``.

Events and the mirror's records lie on scratch, and the journal has only the ends of attempts. So
after a purge of scratch and the loss of the ledger, a rebuild begins with these rows, and adds what
the journal recorded since. The rows are backed up when the run comes to rest, and when its run
directory is gone.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final

from hpcflow.ledger.codec import DamagedError, columns, decode_all, encode
from hpcflow.ledger.rows import (
    OVER,
    ROWS,
    AttemptRow,
    Change,
    CheckpointRow,
    Known,
    MirroredRow,
    RunRow,
    SourceRow,
)
from hpcflow.ledger.store import Ledger
from hpcflow.model.state import RunState
from hpcflow.runtime.reading import parse_object, read_file
from hpcflow.storage.files import replace_unsynced
from hpcflow.storage.layout import RunDir

_AT_REST: Final = frozenset(
    state.value for state in RunState if state.is_final or state is RunState.WAITING
)
_MAX_BYTES: Final = 16 << 20
_DAMAGED: Final = (ValueError, TypeError, LookupError, EOFError, zlib.error, DamagedError)


@dataclass(frozen=True)
class RowsBackup:
    """All rows of one run."""

    known: Known
    checkpoints: list[CheckpointRow]
    mirrored: list[MirroredRow]

    def with_change(self, change: Change | None) -> Change:
        """Return the change that writes these rows and ``change`` into a ledger without the run."""
        known = self.known
        found = Change(
            known.run, known.attempts, self.checkpoints, known.sources, None, mirrored=self.mirrored
        )
        if change is None:
            return found
        attempts = {row.attempt: row for row in (*found.attempts, *change.attempts)}
        sources = {row.path: row for row in (*found.sources, *change.sources)}
        found.run = change.run
        found.attempts, found.sources = list(attempts.values()), list(sources.values())
        return found


def back_up_rows(ledger: Ledger, run_dirs: Sequence[RunDir]) -> None:
    """Write the rows of those runs that are at rest into their records.

    The files are not synced, and one that cannot be written is left out: they matter only if both
    scratch and the ledger are lost.
    """
    _back_up(ledger, run_dirs, _is_at_rest)


def back_up_of_purged(ledger: Ledger, run_dirs: Sequence[RunDir]) -> None:
    """Write the rows of runs whose directory is gone into their records, unless they are there."""

    def is_due(known: Known) -> bool:
        backup = read_backup(by_id[known.run.run_id])
        if backup is None:
            return True
        read = {each.path: each.offset_bytes for each in known.sources}
        before = {each.path: each.offset_bytes for each in backup.known.sources}
        # A copy of the ledger from before knows less, and can no longer read the rest.
        return read != before and all(read.get(path, 0) >= end for path, end in before.items())

    by_id = {run_dir.path.name: run_dir for run_dir in run_dirs}
    _back_up(ledger, run_dirs, is_due)


def _back_up(ledger: Ledger, run_dirs: Sequence[RunDir], is_due: Callable[[Known], bool]) -> None:
    if not run_dirs:
        return
    ids = [run_dir.path.name for run_dir in run_dirs]
    known = ledger.known(ids)
    tables: dict[str, dict[str, list[Any]]] = {"checkpoint": {}, "mirrored": {}}
    for name, rows in (
        ("checkpoint", ledger.checkpoints(ids)),
        ("mirrored", ledger.mirrored(ids)),
    ):
        for row in rows:
            tables[name].setdefault(row.run_id, []).append(row)
    for run_dir in run_dirs:
        of_run = known.get(run_dir.path.name)
        if of_run is None or not is_due(of_run):
            continue
        of_tables: dict[str, list[Any]] = {
            "run": [of_run.run],
            "attempt": of_run.attempts,
            "source": of_run.sources,
            **{name: found.get(run_dir.path.name, []) for name, found in tables.items()},
        }
        said = {
            name: {"columns": columns(ROWS[name]), "rows": [encode(row) for row in some]}
            for name, some in of_tables.items()
        }
        with suppress(OSError):
            replace_unsynced(run_dir.rows_backup, gzip.compress(json.dumps(said).encode(), 1))


def may_be_at_rest(run: RunRow) -> bool:
    """Return whether no attempt of a run is pending or running, as far as its own row tells."""
    return run.state in _AT_REST


def _is_at_rest(known: Known) -> bool:
    return may_be_at_rest(known.run) and all(row.state in OVER for row in known.attempts)


def read_backup(run_dir: RunDir) -> RowsBackup | None:
    """Return the backup; None if there is none, or it is damaged or of another version."""
    try:
        with gzip.GzipFile(fileobj=BytesIO(read_file(run_dir.rows_backup, _MAX_BYTES))) as file:
            text = file.read(_MAX_BYTES + 1)
        if len(text) > _MAX_BYTES:
            return None
        said = parse_object(text)
        found: dict[str, list[Any]] = {name: _decoded(name, said[name]) for name in ROWS}
    except (OSError, *_DAMAGED):
        return None
    run: list[RunRow] = found["run"]
    attempts: list[AttemptRow] = found["attempt"]
    sources: list[SourceRow] = found["source"]
    if [row.run_id for row in run] != [run_dir.path.name]:
        return None
    return RowsBackup(Known(run[0], attempts, sources), found["checkpoint"], found["mirrored"])


def _decoded(name: str, said: dict[str, Any]) -> list[Any]:
    names = columns(ROWS[name])
    if said["columns"] != [*names]:
        raise ValueError("of another version")
    return decode_all(ROWS[name], names, said["rows"], ROWS[name])
