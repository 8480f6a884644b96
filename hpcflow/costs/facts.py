"""Find out which checkpoints were stored where, from when to when, and what was fetched.

docs/costs.md describes the records, and what is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from hpcflow.costs.scratch_history import is_readable, scratch_history
from hpcflow.ledger.rows import MirroredRow, StoringRow
from hpcflow.mirror.history import History, history_of
from hpcflow.mirror.records import MIRRORED
from hpcflow.model.journal import Restored, parse_record_or_none
from hpcflow.runtime.reading import read_lines
from hpcflow.storage.layout import Home, RunDir

#: The place of checkpoints outside of stores.
SCRATCH: Final = "scratch"


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
