"""Find out which checkpoints a run directory had, from when to when, by its events and journal."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from hpcflow.clock import from_text
from hpcflow.model.events import parse_event
from hpcflow.model.journal import CheckpointRemoved, Restored, parse_record_or_none
from hpcflow.runtime.reading import MAX_LINE_BYTES, MAX_LINES_FILE_BYTES, open_file
from hpcflow.storage.layout import RunDir

_PORTION_BYTES: Final = 4 << 20
#: Only these lines are extracted: a training reports its progress all the time.
_OF_JOB: Final = re.compile(rb'"event"[ \t]*:[ \t]*"checkpoint')
_OF_PERSON: Final = re.compile(rb'"(?:checkpoint_removed|restored)"')


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
