"""Read the mirror's records of a run's checkpoints: ``mirror.jsonl`` in the run directory.

hpcflow/mirror/records.py has the format. Lines that are torn, of other kinds, or with the ``url``
of a store that the run no longer uses are skipped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from hpcflow.runtime.reading import (
    MAX_FILE_BYTES,
    MAX_JSON_BYTES,
    JsonError,
    parse_object,
    read_file,
    read_lines,
)

NAME = "mirror.jsonl"

#: Lines without it are skipped before parsing. A file may have millions of them.
_IN_EACH = b'"train_step"'

#: An upload without a line for this long counts as dead. If it starts again, it writes a new line.
PATIENCE = timedelta(hours=6)


@dataclass(frozen=True)
class MirrorState:
    """Train steps of checkpoints by their state in the mirror.

    Attributes:
        there: the store has them.
        settled: the mirror will not send them again: the store has them, they were removed from it
            on purpose, or they are damaged here.
        under_way: they are being sent.
    """

    there: frozenset[int] = frozenset()
    settled: frozenset[int] = frozenset()
    under_way: frozenset[int] = frozenset()


def parse_lines(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the objects in lines of the file; torn and foreign lines are skipped."""
    for line in lines:
        if _IN_EACH in line:
            try:
                record = parse_object(line)
            except JsonError:
                continue
            yield record


def mirrored(run_dir: Path, url: str | None) -> set[int]:
    """Return the train steps of the checkpoints that the store has; see :func:`read_mirror`."""
    return set(read_mirror(run_dir, url).there)


def read_mirror(run_dir: Path, url: str | None, now: datetime | None = None) -> MirrorState:
    """Return the state of a run's mirror; empty if it cannot be read. Never raises.

    Args:
        url: the store that the run uses now; None counts the lines of all stores.
        now: the current time, aware; for :data:`PATIENCE`.
    """
    now = now or datetime.now(timezone.utc)
    url = url and url.rstrip("/")
    began: dict[int, datetime] = {}
    ended: dict[int, tuple[str, bool, str | None]] = {}  # the last line of each train step
    with suppress(OSError):
        for record in parse_lines(read_lines(run_dir / NAME, MAX_FILE_BYTES)):
            train_step, what = record.get("train_step"), record.get("what")
            if type(train_step) is not int or url not in (None, record.get("url", url)):
                continue
            if what == "began":
                began[train_step] = _time(record.get("at"))
            elif what in ("mirrored", "failed", "removed"):
                began.pop(train_step, None)
                sha256 = record.get("manifest_sha256")
                is_final = what != "failed" or bool(record.get("is_final"))
                ended[train_step] = (what, is_final, None if sha256 is None else str(sha256))
    there: set[int] = set()
    settled: set[int] = set()
    for train_step, (what, is_final, sha256) in ended.items():
        if not is_final or (what != "removed" and _is_of_another(sha256, run_dir, train_step)):
            continue
        settled.add(train_step)
        if what == "mirrored":
            there.add(train_step)
    under_way = {train_step for train_step, at in began.items() if now - at < PATIENCE}
    return MirrorState(frozenset(there), frozenset(settled), frozenset(under_way))


def _is_of_another(sha256: str | None, run_dir: Path, train_step: int) -> bool:
    """Return whether the checkpoint here was made again after the mirror read it."""
    if sha256 is None:
        return False
    manifest = run_dir / "checkpoints" / f"{train_step:09d}" / "manifest.json"
    if manifest.parent.is_symlink():  # hpcflow never makes one
        return True
    try:
        return hashlib.sha256(read_file(manifest, MAX_JSON_BYTES)).hexdigest() != sha256
    except OSError:
        return False


def _time(text: object) -> datetime:
    """Parse a time; an invalid one counts as long ago."""
    try:
        # The `Z` is for Python before 3.11.
        at = datetime.fromisoformat(str(text).replace("Z", "+00:00"))
        return at.astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return datetime.min.replace(tzinfo=timezone.utc)
