"""Check that the ledger agrees with the files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from hpcflow.errors import StorageError
from hpcflow.ledger.fold import newest
from hpcflow.ledger.rows import Change, CheckpointRow, Known, MirroredRow
from hpcflow.ledger.store import Ledger
from hpcflow.projection.gone import has_lost_journal
from hpcflow.projection.reading import RunReader
from hpcflow.storage.layout import Home, RunDir
from hpcflow.storage.runs import is_gone, run_ids

_BATCH_RUNS = 200
_SHOWN_CHARS = 60


def check(ledger: Ledger, run_dirs: Iterable[RunDir]) -> list[str]:
    """Compare every row of these runs with the files, as far as the ledger has read them.

    Return one text for each difference. Catch up first: an unread line is not a difference.
    """
    todo = list(run_dirs)
    differences: list[str] = []
    for begin in range(0, len(todo), _BATCH_RUNS):
        batch = todo[begin : begin + _BATCH_RUNS]
        ids = [run_dir.path.name for run_dir in batch]
        known = ledger.known(ids)
        saved: dict[str, list[CheckpointRow]] = {run_id: [] for run_id in ids}
        for row in ledger.checkpoints(ids):
            saved[row.run_id].append(row)
        mirrored: dict[str, list[MirroredRow]] = {run_id: [] for run_id in ids}
        for sent in ledger.mirrored(ids):
            mirrored[sent.run_id].append(sent)
        for run_dir, run_id in zip(batch, ids, strict=True):
            differences += _check_run(run_dir, known.get(run_id), saved[run_id], mirrored[run_id])
    return differences


def unlinked(ledger: Ledger, home: Home, *, user: str) -> list[str]:
    """Return one text for each of this user's runs without a link in ``home``.

    No rebuild finds these runs.
    """
    here = {run_id for run_id in run_ids(home) if home.scratch_link(run_id).is_symlink()}
    strangers = ledger.run_ids(user=user) - here
    return [
        f"{run_id}: only in the ledger: {home.runs} has no record of it, or no link to it"
        for run_id in sorted(strangers)
    ]


def _check_run(
    run_dir: RunDir,
    known: Known | None,
    saved: list[CheckpointRow],
    mirrored: list[MirroredRow],
) -> list[str]:
    run_id = run_dir.path.name
    if is_gone(run_dir):
        return [f"{run_id}: its run directory is gone"]
    if known is None:
        return [f"{run_id}: not in the ledger"]
    limits = {source.path: source.offset_bytes for source in known.sources}
    try:
        if has_lost_journal(known, run_dir):
            return [f"{run_id}: only in the ledger: its journal is gone"]
        change = RunReader(run_dir, None, limits=limits).read()
    except StorageError as error:
        return [f"{run_id}: only in the ledger: {error.message}"]
    assert change is not None  # a run that is read from its start always has a change
    in_ledger = _rows(
        Change(
            *(known.run, known.attempts, newest(saved), known.sources, None),
            mirrored=newest(mirrored),
        )
    )
    in_files = _rows(change)
    differences: list[str] = []
    for name in sorted(in_ledger.keys() | in_files.keys()):
        mine, theirs = in_ledger.get(name), in_files.get(name)
        if mine is None or theirs is None:
            place = "files" if mine is None else "ledger"
            differences.append(f"{run_id}: {name}: only in the {place}")
        else:
            differences += [f"{run_id}: {name}: {text}" for text in _compare(mine, theirs)]
    return differences


def _rows(change: Change) -> dict[str, Any]:
    """Return name for people -> row."""
    return {
        "run": change.run,
        **{f"attempt {row.attempt}": row for row in change.attempts},
        **{f"checkpoint {row.path}": row for row in change.checkpoints},
        **{f"mirrored {row.path}": row for row in change.mirrored},
        **{f"read of {row.path}": row for row in change.sources},
    }


def _compare(mine: Any, theirs: Any) -> list[str]:
    pairs = [
        (column.name, getattr(mine, column.name), getattr(theirs, column.name))
        for column in fields(mine)
    ]
    return [
        f"{name} is {str(a)[:_SHOWN_CHARS]} in the ledger, {str(b)[:_SHOWN_CHARS]} in the files"
        for name, a, b in pairs
        if a != b
    ]
