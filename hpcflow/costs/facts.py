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
from hpcflow.ledger.rows import MirroredRow, StoringRow
from hpcflow.mirror.records import MIRRORED, History, history_of
from hpcflow.model.events import parse_event
from hpcflow.model.journal import CheckpointRemoved, Restored, parse_record_or_none
from hpcflow.runtime.reading import MAX_LINE_BYTES, MAX_LINES_FILE_BYTES, open_file, read_lines
from hpcflow.storage.layout import Home, RunDir

#: The place of checkpoints outside of stores.
SCRATCH: Final = "scratch"
_PORTION_BYTES: Final = 4 << 20
#: Only these lines are extracted: a training reports its progress all the time.
_OF_JOB: Final = re.compile(rb'"event"[ \t]*:[ \t]*"checkpoint')
_OF_PERSON: Final = re.compile(rb'"(?:checkpoint_removed|restored)"')


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


def add_store(facts: Facts, home: Home, run: StoringRow, known: Iterable[MirroredRow]) -> None:
    """Add what the records of one run say about stores; ``known`` replaces missing records."""
    run_dir = home.run_dir(run.run_dir)
    try:
        history = history_of(read_lines(run_dir.mirror))
    except FileNotFoundError:
        history = History()
        if not is_readable(run_dir):
            add_known(facts, run, known)
            return
    except OSError:
        add_known(facts, run, known)
        return
    for kept in history.kept:
        facts.stored.append(Stored(run, kept.url, kept.size_bytes, kept.begin, kept.end))
    for read in history.read:
        facts.fetched.append(Fetched(run, read.url, read.size_bytes, read.at))
    for restored in _restored(run_dir):
        size_bytes = restored.size_bytes
        if size_bytes is None:  # in old records
            sizes = [history.sizes.get(step) for step in restored.checkpoints]
            facts.lost_fetches += sizes.count(None)
            size_bytes = sum(size for size in sizes if size is not None)
        if size_bytes:
            place = restored.url.rstrip("/").removesuffix(f"/{run.run_id}")
            facts.fetched.append(Fetched(run, place, size_bytes, restored.at))


def _restored(run_dir: RunDir) -> list[Restored]:
    try:
        lines = [line for line in read_lines(run_dir.journal) if b'"restored"' in line]
    except OSError:
        return []
    return [each for each in map(parse_record_or_none, lines) if isinstance(each, Restored)]


def add_known(facts: Facts, run: StoringRow, known: Iterable[MirroredRow]) -> None:
    """Add the ledger's data about the stores of a run whose records cannot be read."""
    facts.lost_runs.add(run.run_id)
    for row in known:
        if row.state == MIRRORED:
            facts.stored.append(Stored(run, row.url, row.size_bytes, row.at, None))


def add_scratch(facts: Facts, home: Home, run: StoringRow) -> None:
    """Add what the records of one run say about its checkpoints on scratch."""
    history = scratch_history(home.run_dir(run.run_dir))
    if history is None:
        facts.lost_runs.add(run.run_id)
        return
    facts.lost_checkpoints += history.lost
    for kept in history.kept:
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


def scratch_history(run_dir: RunDir) -> ScratchHistory | None:
    """Return the history of a run directory; None if it is missing or unreadable.

    A path that is written again holds only the new checkpoint. A checkpoint that was purged and
    restored counts from its restore; how long it existed before is unknown.
    """
    try:
        return _history(run_dir) if is_readable(run_dir) else None
    except PermissionError:
        return None


def is_readable(run_dir: RunDir) -> bool:
    """Return whether the run directory exists and is readable: only its owner can read it."""
    try:
        return run_dir.params_json.exists()
    except OSError:
        return False


def _history(run_dir: RunDir) -> ScratchHistory:
    said = sorted(_records(run_dir), key=lambda each: each.at)
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


def _records(run_dir: RunDir) -> Iterator[_Record]:
    for number in run_dir.attempt_numbers():
        for line in _lines(run_dir.attempt(number).events, _OF_JOB):
            said = _record_of_event(parse_event(line) or {})
            if said is not None:
                yield said
    for line in _lines(run_dir.journal, _OF_PERSON):
        record = parse_record_or_none(line)
        if isinstance(record, CheckpointRemoved):
            yield _Record(record.at, record.path, record.size_bytes, is_made=False)
        elif isinstance(record, Restored):
            for step in record.checkpoints:
                path = f"checkpoints/{step:09d}"
                yield _Record(record.at, path, None, is_made=True, was_lost=True)


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


def _lines(path: Path, about: re.Pattern[bytes]) -> Iterator[bytes]:
    """Yield the whole lines that match."""
    try:
        with open_file(path, max_bytes=MAX_LINES_FILE_BYTES) as file:
            rest = b""
            while data := file.read(_PORTION_BYTES):
                data, after = rest + data, 0
                whole = data.rfind(b"\n") + 1
                while (found := about.search(data, after, whole)) is not None:
                    after = data.index(b"\n", found.end()) + 1
                    yield data[data.rfind(b"\n", 0, found.start()) + 1 : after - 1]
                rest = data[whole : whole + MAX_LINE_BYTES + 1]  # if cut, it is still too long
    except PermissionError:
        raise
    except OSError:
        return
