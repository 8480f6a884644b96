"""The home's copy of each mirrored journal, as last sent to the mirror.

Other users may be able to write on scratch and in the store. So after a purge, ``hpcflow restore``
uses the copy in the home instead of the journal in the store.

Except :func:`is_current`, the functions raise StorageError if a file cannot be read, written or
removed.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

from hpcflow.runtime.reading import read_file
from hpcflow.storage.files import make_folders, storage_error, write_durably
from hpcflow.storage.layout import Home

_FIRST_LINE_BYTES: Final = 65


def path_of(home: Home, run_id: str) -> Path:
    """Return the path of a run's copy. The first line of a copy is the checksum of the rest."""
    return home.journals / run_id


def write_copy(home: Home, run_id: str, data: bytes) -> None:
    """Replace the copy by the complete lines of ``data``, if there are any."""
    lines = data[: data.rfind(b"\n") + 1]
    if not lines:
        return
    try:
        make_folders(home.journals)
    except OSError as error:
        raise storage_error("write", path_of(home, run_id), error) from error
    write_durably(path_of(home, run_id), _checksum(lines) + b"\n" + lines)


def read_copy(home: Home, run_id: str) -> bytes | None:
    """Return the copy; None if it is missing or damaged."""
    path = path_of(home, run_id)
    try:
        checksum, _, lines = read_file(path).partition(b"\n")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise storage_error("read", path, error) from error
    return lines if _checksum(lines) == checksum else None


def is_current(home: Home, run_id: str, size_bytes: int) -> bool:
    """Return whether the copy has the size of the journal."""
    try:
        return os.lstat(path_of(home, run_id)).st_size == _FIRST_LINE_BYTES + size_bytes
    except OSError:
        return False


def repair_copy(home: Home, run_id: str, data: bytes) -> None:
    """Replace a copy that is missing, damaged, or shorter than the journal ``data``."""
    copy = read_copy(home, run_id)
    if copy is None or data.startswith(copy):
        write_copy(home, run_id, data)


def forget_copy(home: Home, run_id: str) -> None:
    """Remove the copy, because another home mirrors the run and has the newer journal."""
    path = path_of(home, run_id)
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise storage_error("remove", path, error) from error


def _checksum(lines: bytes) -> bytes:
    return hashlib.sha256(lines).hexdigest().encode()
