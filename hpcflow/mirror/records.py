"""Read and write ``mirror.jsonl`` in a run directory: what became of each checkpoint in the store.

One JSON object on a line, appended and synced before anything is done that relies on it::

    {"at": "2026-01-01T00:00:00.000Z", "what": "began", "url": "s3://bucket/ada", "train_step": 400,
     "size_bytes": 9000}

``what`` is one of

- ``began``: its files are being sent; said again every hour. The job keeps it meanwhile.
- ``sending``: a large file of it goes in parts: ``name``, ``sha256``, ``upload_id``,
  ``part_bytes``
- ``mirrored``: the store has all of it, verified; with the manifest's ``manifest_sha256``
- ``failed``: ``why``; ``is_final`` where it is the checkpoint here that is damaged, for it will not
  be tried again; without it, it will. ``names`` are files that the store has damaged
- ``due``: its time in the store is over, by the clock of a pass; one an hour later removes it
- ``removed``: from the store, by the rule for keeping
- ``read``: so many ``size_bytes`` were fetched from the store, to see whether it is unchanged

The job and the ledger read this file, too. A line that is torn or of a newer version says nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from hpcflow.clock import Clock, from_text, to_text
from hpcflow.runtime.mirrored import IN_EACH
from hpcflow.runtime.reading import MAX_FILE_BYTES, parse_object, read_lines
from hpcflow.storage.files import append_line_durably, storage_error
from hpcflow.storage.layout import RunDir

BEGAN: Final = "began"
SENDING: Final = "sending"
MIRRORED: Final = "mirrored"
FAILED: Final = "failed"
DUE: Final = "due"
REMOVED: Final = "removed"
READ: Final = "read"
#: Of train steps, or bytes: no name of a folder has more digits.
_TOO_MANY: Final = 10**18


@dataclass(frozen=True)
class Mirrored:
    """A checkpoint that the store has."""

    at: datetime
    manifest_sha256: str
    size_bytes: int


@dataclass(frozen=True)
class Upload:
    """A file that goes in parts of ``part_bytes``; the last one may be smaller.

    Attributes:
        sha256: of the whole file, by which it is known again; None where nobody knew it.
    """

    upload_id: str
    part_bytes: int
    sha256: str | None


@dataclass
class Records:
    """What stands in the file, about one store, by train step.

    Attributes:
        mirrored: those that the store has.
        damaged: those that are not whole here, with the manifest's checksum and the reason.
        failed: why the last try failed, of those that were neither mirrored nor removed since.
        due: when a pass found that the time of those in the store is over.
        removed: those that were removed from the store on purpose.
        began: when the sending of those began that are neither mirrored nor failed.
        uploads: ``400/model.pt`` -> the parts of it that were begun; maybe over long ago.
        rotten: files that the store was found to have damaged, whatever it says of them.
        is_used: whether anything was ever sent there.
    """

    mirrored: dict[int, Mirrored] = field(default_factory=dict)
    damaged: dict[int, tuple[str, str]] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    due: dict[int, datetime] = field(default_factory=dict)
    removed: dict[int, str] = field(default_factory=dict)
    began: dict[int, datetime] = field(default_factory=dict)
    uploads: dict[str, Upload] = field(default_factory=dict)
    rotten: dict[int, set[str]] = field(default_factory=dict)
    is_used: bool = False

    def add(self, said: dict[str, Any]) -> None:
        """Add one line, or nothing of it.

        The file may have been restored from a bucket in which anybody wrote, so it is not trusted.

        Raises:
            KeyError, TypeError, ValueError: it is none of ours.
        """
        step, at, what = count(said["train_step"]), from_text(text(said["at"])), said["what"]
        if what == SENDING:
            sha256 = said.get("sha256")
            self.uploads[f"{step}/{text(said['name'])}"] = Upload(
                text(said["upload_id"]),
                count(said["part_bytes"]),
                None if sha256 is None else text(sha256),
            )
        elif what == BEGAN:
            self.began[step] = at
        elif what == DUE:
            self.due[step] = at
        elif what == MIRRORED:
            sent = Mirrored(at, text(said["manifest_sha256"]), count(said["size_bytes"]))
            self._forget(step)
            self.rotten.pop(step, None)
            self.mirrored[step] = sent
        elif what == FAILED:
            why, names = text(said["why"]), {text(name) for name in said.get("names", ())}
            damaged = (text(said["manifest_sha256"]), why) if said.get("is_final") else None
            self._forget(step)
            self.failed[step] = why
            self.rotten.setdefault(step, set()).update(names)
            if damaged is not None:
                self.damaged[step] = damaged
        elif what == REMOVED:
            sha256 = text(said.get("manifest_sha256", ""))
            self._forget(step)
            self.removed[step] = sha256
        self.is_used |= what in (SENDING, BEGAN, MIRRORED, REMOVED)

    def _forget(self, step: int) -> None:
        """What was the last that was heard of it, before there was more."""
        self.due.pop(step, None)
        for known in (self.mirrored, self.damaged, self.failed, self.removed, self.began):
            known.pop(step, None)


def read_records(run_dir: RunDir, url: str) -> Records:
    """What is known of the store at ``url``; of another one, that was used before, nothing counts.

    Raises:
        StorageError: the file cannot be read.
    """
    records = Records()
    try:
        for line in read_lines(run_dir.mirror, MAX_FILE_BYTES):
            if IN_EACH not in line:
                continue  # millions of empty lines take a moment so
            try:
                said = parse_object(line)
                if said["url"] == url:
                    records.add(said)
            except (ValueError, KeyError, TypeError):  # torn, or foreign
                continue
    except FileNotFoundError:
        return records
    except OSError as error:
        raise storage_error("read", run_dir.mirror, error) from error
    return records


def record(
    run_dir: RunDir, clock: Clock, what: str, *, url: str, train_step: int, **facts: Any
) -> None:
    """Append a line; it is on the disk when this returns.

    Raises:
        StorageError: it could not be written; also where the run directory is gone.
    """
    said = {
        "at": to_text(clock.now()),
        "what": what,
        "url": url,
        "train_step": train_step,
        **facts,
    }
    append_line_durably(run_dir.mirror, json.dumps(said))


def count(said: Any) -> int:
    """``said``, if it can be a number of train steps or bytes; else ValueError."""
    if type(said) is not int or not 0 <= said < _TOO_MANY:
        raise ValueError(f"{said!r} is no count")
    return said


def text(said: Any) -> str:
    """``said``, if it is a text; else TypeError."""
    if not isinstance(said, str):
        raise TypeError(f"{said!r} is no text")
    return said
