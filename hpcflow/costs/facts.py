"""Find out which checkpoints were stored where, from when to when, and what was fetched.

docs/costs.md describes the records, and what is unknown.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from hpcflow.clock import from_text
from hpcflow.errors import StorageError
from hpcflow.history import CheckpointHistory
from hpcflow.ledger.rows import MirroredRow, StoringRow
from hpcflow.mirror.records import MIRRORED, Records, records_by_store
from hpcflow.model.events import parse_event
from hpcflow.runtime.reading import (
    MAX_FILE_BYTES,
    MAX_LINE_BYTES,
    MAX_LINES_FILE_BYTES,
    open_file,
    read_lines,
)
from hpcflow.storage.journal import checkpoint_history
from hpcflow.storage.layout import Home, RunDir

#: The place of checkpoints outside of stores.
SCRATCH: Final = "scratch"
_PORTION_BYTES: Final = 4 << 20
#: Only these lines are extracted: a training reports its progress all the time.
_ABOUT_CHECKPOINT: Final = re.compile(rb'"event"[ \t]*:[ \t]*"checkpoint')


@dataclass(frozen=True)
class Stored:
    """Bytes of a run that were stored somewhere for a time.

    Attributes:
        place: the URL of a store, or :data:`SCRATCH`.
        end: None while they are there.
    """

    run: StoringRow
    place: str
    size_bytes: int
    begin: datetime
    end: datetime | None


@dataclass(frozen=True)
class Fetched:
    """Bytes of a run that were fetched from a store."""

    run: StoringRow
    place: str
    size_bytes: int
    at: datetime


@dataclass
class Facts:
    """What is known, and counts of the unknown.

    Attributes:
        lost_runs: ids of runs whose records are missing or unreadable: the ledger has their stores'
            current checkpoints, but not those removed before, or fetches.
        lost_checkpoints: removed at an unknown time, by a purge of scratch.
        lost_fetches: fetches of unknown size.
    """

    stored: list[Stored] = field(default_factory=list)
    fetched: list[Fetched] = field(default_factory=list)
    lost_runs: set[str] = field(default_factory=set)
    lost_checkpoints: int = 0
    lost_fetches: int = 0


def add_run(
    facts: Facts,
    home: Home,
    run: StoringRow,
    known: Iterable[MirroredRow],
    *,
    in_stores: bool,
    on_scratch: bool,
) -> None:
    """Add what the records of one run say about its checkpoints.

    Args:
        known: the ledger's data about its stores, which replaces missing records.
    """
    run_dir = home.run_dir(run.run_dir)
    try:
        history = checkpoint_history(run_dir)
    except StorageError:
        add_known(facts, run, known)
        return
    if in_stores:
        _add_stores(facts, run_dir, history, run, known)
    if on_scratch:
        _add_scratch(facts, run_dir, history, run)


def _add_stores(
    facts: Facts,
    run_dir: RunDir,
    history: CheckpointHistory,
    run: StoringRow,
    known: Iterable[MirroredRow],
) -> None:
    try:
        stores = _stores(run_dir)
    except OSError:
        add_known(facts, run, known)
        return
    sizes_bytes: dict[int, int] = {}
    for url, records in stores.items():
        for kept in (*records.former, *records.mirrored.values()):
            facts.stored.append(Stored(run, url, kept.size_bytes, kept.at, kept.end))
            sizes_bytes[kept.train_step] = kept.size_bytes
        facts.fetched += [Fetched(run, url, size, at) for at, size in records.fetched]
    for restored in history.restores:
        size_bytes = restored.size_bytes
        if size_bytes is None:  # in old records
            sizes = [sizes_bytes.get(step) for step in restored.checkpoints]
            facts.lost_fetches += sizes.count(None)
            size_bytes = sum(size for size in sizes if size is not None)
        if size_bytes:
            place = restored.url.rstrip("/").removesuffix(f"/{run.run_id}")
            facts.fetched.append(Fetched(run, place, size_bytes, restored.at))


def _stores(run_dir: RunDir) -> dict[str, Records]:
    try:
        return records_by_store(read_lines(run_dir.mirror, MAX_FILE_BYTES))
    except FileNotFoundError:
        if not _is_readable(run_dir):
            raise
        return {}  # it was never mirrored


def add_known(facts: Facts, run: StoringRow, known: Iterable[MirroredRow]) -> None:
    """Add the ledger's data about the stores of a run whose records cannot be read."""
    facts.lost_runs.add(run.run_id)
    for row in known:
        if row.state == MIRRORED:
            facts.stored.append(Stored(run, row.url, row.size_bytes, row.at, None))


def _add_scratch(
    facts: Facts, run_dir: RunDir, history: CheckpointHistory, run: StoringRow
) -> None:
    found = _scratch_history(run_dir, history)
    if found is None:
        facts.lost_runs.add(run.run_id)
        return
    facts.lost_checkpoints += found.lost
    for kept in found.kept:
        facts.stored.append(Stored(run, SCRATCH, kept.size_bytes, kept.begin, kept.end))


@dataclass(frozen=True)
class KeptHere:
    """A checkpoint in a run directory; ``end`` is None while it is there."""

    path: str
    size_bytes: int
    begin: datetime
    end: datetime | None = None


@dataclass
class ScratchHistory:
    """The checkpoints of a run directory over time.

    Attributes:
        lost: number of checkpoints removed at an unknown time: they are not in ``kept``.
    """

    kept: list[KeptHere] = field(default_factory=list)
    lost: int = 0


@dataclass(frozen=True)
class _Record:
    at: datetime
    path: str
    size_bytes: int | None
    is_made: bool
    was_lost: bool = False


def _scratch_history(run_dir: RunDir, history: CheckpointHistory) -> ScratchHistory | None:
    """Return the history of a run directory; None if it is missing or unreadable.

    A path that is written again holds only the new checkpoint. A checkpoint that was purged and
    restored counts from its restore; how long it existed before is unknown.
    """
    try:
        return _over_time(run_dir, history) if _is_readable(run_dir) else None
    except PermissionError:
        return None


def _is_readable(run_dir: RunDir) -> bool:
    """Return whether the run directory exists and is readable: only its owner can read it."""
    try:
        return run_dir.params_json.exists()
    except OSError:
        return False


def _over_time(run_dir: RunDir, history: CheckpointHistory) -> ScratchHistory:
    said = sorted([*_of_jobs(run_dir), *_of_people(history)], key=lambda each: each.at)
    found, there = ScratchHistory(), dict[str, KeptHere]()
    sizes: dict[str, int] = {}  # the last known size, for restored ones
    for each in said:
        old = there.pop(each.path, None)
        if old is not None and each.was_lost:
            found.lost += 1
        elif old is not None:
            found.kept.append(replace(old, end=each.at))
        if each.is_made:
            size_bytes = sizes.get(each.path, 0) if each.size_bytes is None else each.size_bytes
            sizes[each.path] = size_bytes
            there[each.path] = KeptHere(each.path, size_bytes, each.at)
    for kept in there.values():
        if _is_complete(run_dir, kept.path):
            found.kept.append(kept)
        else:
            found.lost += 1
    return found


def _is_complete(run_dir: RunDir, path: str) -> bool:
    """Return whether the manifest exists; raise PermissionError if that is unknown."""
    try:
        return stat.S_ISREG((run_dir.path / path / "manifest.json").stat().st_mode)
    except PermissionError:
        raise
    except (OSError, ValueError):  # missing, or not a path
        return False


def _of_people(history: CheckpointHistory) -> Iterator[_Record]:
    for removed in history.removed_checkpoints:
        yield _Record(removed.at, removed.path, removed.size_bytes, is_made=False)
    for restored in history.restores:
        for step in restored.checkpoints:
            path = f"checkpoints/{step:09d}"
            yield _Record(restored.at, path, None, is_made=True, was_lost=True)


def _of_jobs(run_dir: RunDir) -> Iterator[_Record]:
    for number in run_dir.attempt_numbers():
        for line in _lines(run_dir.attempt(number).events):
            said = _record_of_event(parse_event(line) or {})
            if said is not None:
                yield said


def _record_of_event(event: dict[str, Any]) -> _Record | None:
    if event.get("event") not in ("checkpoint", "checkpoint_removed"):
        return None
    path, size_bytes = event.get("path"), event.get("size_bytes", 0)
    if not isinstance(path, str) or type(size_bytes) is not int or size_bytes < 0:
        return None
    try:
        at = from_text(event["at"])
    except ValueError:
        return None
    return _Record(at, path, size_bytes, event["event"] == "checkpoint")


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the whole lines about checkpoints."""
    try:
        with open_file(path, max_bytes=MAX_LINES_FILE_BYTES) as file:
            rest = b""
            while data := file.read(_PORTION_BYTES):
                data, after = rest + data, 0
                whole = data.rfind(b"\n") + 1
                while (found := _ABOUT_CHECKPOINT.search(data, after, whole)) is not None:
                    after = data.index(b"\n", found.end()) + 1
                    yield data[data.rfind(b"\n", 0, found.start()) + 1 : after - 1]
                rest = data[whole : whole + MAX_LINE_BYTES + 1]  # if cut, it is still too long
    except PermissionError:
        raise
    except OSError:
        return
