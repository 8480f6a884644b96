"""Read and write ``mirror.jsonl`` in a run directory: the history of each checkpoint in the store.

One JSON object a line, appended and synced before anything relies on it::

    {"at": "2026-01-01T00:00:00.000Z", "what": "began", "url": "s3://bucket/ada", "train_step": 400,
     "size_bytes": 9000}

``what`` is one of

- ``began``: its files are being sent; repeated every hour. Meanwhile the job keeps it.
- ``sending``: a large file is sent in parts: ``name``, ``sha256``, ``upload_id``, ``part_bytes``
- ``mirrored``: the store has all of it, verified; with the manifest's ``manifest_sha256``
- ``failed``: ``why``; with ``is_final`` if the local checkpoint is damaged and is not tried again.
  ``names`` are files that are damaged in the store
- ``due``: its retention is over by the clock of a pass; a pass an hour later removes it
- ``removed``: from the store, by its retention
- ``read``: ``size_bytes`` were fetched from the store to verify it

The job and the ledger read this file, too. Lines that are torn or of a newer version are ignored.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

from hpcflow.clock import Clock, from_text, to_text
from hpcflow.runtime.mirrored import parse_lines
from hpcflow.runtime.reading import MAX_FILE_BYTES, read_lines
from hpcflow.storage.disk_errors import storage_errors
from hpcflow.storage.files import append_line_durably
from hpcflow.storage.layout import RunDir

BEGAN: Final = "began"
SENDING: Final = "sending"
MIRRORED: Final = "mirrored"
FAILED: Final = "failed"
DUE: Final = "due"
REMOVED: Final = "removed"
READ: Final = "read"
#: Limit of train steps and bytes: no folder name has more digits.
_TOO_MANY: Final = 10**18


class Mirrored(NamedTuple):
    """A checkpoint that the store has, or had.

    Attributes:
        at: when it was complete there.
        end: when it was removed, replaced or found damaged; None while the store has it.
    """

    train_step: int
    at: datetime
    manifest_sha256: str
    size_bytes: int
    end: datetime | None = None


@dataclass(frozen=True)
class Upload:
    """A multipart upload of a file in parts of ``part_bytes``; the last may be smaller.

    Attributes:
        sha256: of the whole file, to recognize it; None if unknown.
    """

    upload_id: str
    part_bytes: int
    sha256: str | None


@dataclass
class Records:
    """The records about one store, by train step.

    Attributes:
        mirrored: checkpoints that the store has.
        former: checkpoints that the store had.
        fetched: when how many bytes were fetched to verify a checkpoint.
        damaged: checkpoints that are damaged here: the manifest's checksum and the reason.
        failed: why the last upload failed, unless it was mirrored or removed since.
        due: when a pass found that the retention is over.
        removed: checkpoints removed by retention: the manifest's checksum.
        began: when an upload began that is neither mirrored nor failed.
        uploads: ``400/model.pt`` -> its last multipart upload, which may be over.
        rotten: files that were found damaged in the store, whatever checksum it claims.
        is_used: whether anything was ever sent there.
    """

    mirrored: dict[int, Mirrored] = field(default_factory=dict)
    former: list[Mirrored] = field(default_factory=list)
    fetched: list[tuple[datetime, int]] = field(default_factory=list)
    damaged: dict[int, tuple[str, str]] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    due: dict[int, datetime] = field(default_factory=dict)
    removed: dict[int, str] = field(default_factory=dict)
    began: dict[int, datetime] = field(default_factory=dict)
    uploads: dict[str, Upload] = field(default_factory=dict)
    rotten: dict[int, set[str]] = field(default_factory=dict)
    is_used: bool = False

    def add(self, said: dict[str, Any]) -> None:
        """Add one line; nothing of it if it is not valid.

        The file may have been restored from a bucket that other users can write.

        Raises:
            KeyError, TypeError, ValueError: the line is not valid.
        """
        step, at, what = _count(said["train_step"]), from_text(_text(said["at"])), said["what"]
        if what == SENDING:
            sha256 = said.get("sha256")
            self.uploads[f"{step}/{_text(said['name'])}"] = Upload(
                _text(said["upload_id"]),
                _count(said["part_bytes"]),
                None if sha256 is None else _text(sha256),
            )
        elif what == BEGAN:
            self.began[step] = at
        elif what == DUE:
            self.due[step] = at
        elif what == READ:
            self.fetched.append((at, _count(said["size_bytes"])))
        elif what == MIRRORED:
            sent = Mirrored(step, at, _text(said["manifest_sha256"]), _count(said["size_bytes"]))
            self._forget(step, at)
            self.rotten.pop(step, None)
            self.mirrored[step] = sent
        elif what == FAILED:
            why, names = _text(said["why"]), {_text(name) for name in said.get("names", ())}
            damaged = (_text(said["manifest_sha256"]), why) if said.get("is_final") else None
            self._forget(step, at)
            self.failed[step] = why
            self.rotten.setdefault(step, set()).update(names)
            if damaged is not None:
                self.damaged[step] = damaged
        elif what == REMOVED:
            sha256 = _text(said.get("manifest_sha256", ""))
            self._forget(step, at)
            self.removed[step] = sha256
        self.is_used |= what in (SENDING, BEGAN, MIRRORED, REMOVED)

    def _forget(self, step: int, at: datetime) -> None:
        """Drop earlier records of a checkpoint; if the store had it, it has lost it ``at``."""
        if (lost := self.mirrored.pop(step, None)) is not None:
            self.former.append(lost._replace(end=max(lost.at, at)))  # clocks differ
        self.due.pop(step, None)
        for known in (self.damaged, self.failed, self.removed, self.began):
            known.pop(step, None)


def records_by_store(lines: Iterable[bytes], only: str | None = None) -> dict[str, Records]:
    """Return the records about each store by its URL, or about one; ignore invalid lines."""
    found: defaultdict[str, Records] = defaultdict(Records)
    for said in parse_lines(lines):
        url = said.get("url")
        if only not in (None, url):
            continue
        try:
            found[_text(url)].add(said)
        except (ValueError, KeyError, TypeError):
            continue
    return found


def read_records(run_dir: RunDir, url: str) -> Records:
    """Read the records about the store at ``url``; records about other stores do not count."""
    with storage_errors("read", run_dir.mirror), suppress(FileNotFoundError):
        lines = read_lines(run_dir.mirror, MAX_FILE_BYTES)
        return records_by_store(lines, url).get(url, Records())
    return Records()


def record(
    run_dir: RunDir, clock: Clock, what: str, *, url: str, train_step: int, **facts: Any
) -> None:
    """Append a line, synced to disk."""
    said = {
        "at": to_text(clock.now()),
        "what": what,
        "url": url,
        "train_step": train_step,
        **facts,
    }
    append_line_durably(run_dir.mirror, json.dumps(said))


def _count(said: Any) -> int:
    """Return ``said`` if it is a valid number of train steps or bytes; else raise ValueError."""
    if type(said) is not int or not 0 <= said < _TOO_MANY:
        raise ValueError(f"{said!r} is not a count")
    return said


def _text(said: Any) -> str:
    """Return ``said`` if it is a string; else raise TypeError."""
    if not isinstance(said, str):
        raise TypeError(f"{said!r} is not a string")
    return said
