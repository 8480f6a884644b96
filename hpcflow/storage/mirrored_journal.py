"""The part of each run's journal that this home has mirrored: its size and checksum, in the home.

A journal lies on scratch and in a store, where other users may write. After a purge only the store
has it. hpcflow believes the part of it that has the recorded checksum.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hpcflow.runtime.reading import read_file
from hpcflow.storage.files import make_folders, storage_error, write_durably
from hpcflow.storage.layout import Home

_MAX_BYTES: Final = 4096
_RECORD: Final = re.compile(rb"(\d{1,15}) ([0-9a-f]{64})\n")


@dataclass(frozen=True)
class MirroredJournal:
    """The beginning of a journal.

    Attributes:
        size_bytes: how long the journal was when it was mirrored.
        sha256: its checksum, in hex.
    """

    size_bytes: int
    sha256: str

    def begins(self, data: bytes) -> bool:
        """Return whether ``data`` begins with what was mirrored."""
        return MirroredJournal.of(data[: self.size_bytes]) == self

    @staticmethod
    def of(data: bytes) -> MirroredJournal:
        """Return the record of a journal."""
        return MirroredJournal(len(data), hashlib.sha256(data).hexdigest())


def path_of(home: Home, run_id: str) -> Path:
    """Return where the record of a run lies."""
    return home.mirrored / run_id


def is_recorded_here(home: Home, run_id: str) -> bool:
    """Return whether there is a record of a run."""
    return os.path.lexists(path_of(home, run_id))


def record_mirrored(home: Home, run_id: str, data: bytes) -> None:
    """Record what of a run's journal this home has mirrored, or uses instead of what a store has.

    Raises:
        StorageError: it cannot be written.
    """
    said = MirroredJournal.of(data)
    path = path_of(home, run_id)
    try:
        make_folders(home.mirrored)
    except OSError as error:
        raise storage_error("write", path, error) from error
    write_durably(path, f"{said.size_bytes} {said.sha256}\n")


def read_mirrored(home: Home, run_id: str) -> MirroredJournal | None:
    """Return the record of a run; None if there is none, or a damaged one.

    Raises:
        StorageError: it cannot be read.
    """
    path = path_of(home, run_id)
    try:
        said = _RECORD.fullmatch(read_file(path, _MAX_BYTES))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise storage_error("read", path, error) from error
    return None if said is None else MirroredJournal(int(said[1]), said[2].decode())
