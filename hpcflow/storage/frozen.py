"""The checksum of each run's ``run.json``, kept in the home, where no other user can write.

``run.json`` says what a run executes. It lies on scratch and in the mirror. After a purge only the
mirror has it, and other users may be able to write there. It is trusted only if it has the
checksum of what was frozen here or last resumed. Else the run is held until ``hpcflow resume``.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress

from hpcflow.runtime.reading import read_file
from hpcflow.storage.files import FILE_MODE, FOLDER_MODE
from hpcflow.storage.layout import Home, RunDir

_DIGEST_BYTES = 64


def record_frozen(home: Home, run_dir: RunDir) -> None:
    """Record the checksum of a run's ``run.json``.

    It is not synced to the disk, which would be slow. If it is lost, the run is only held later.
    """
    with suppress(OSError):
        home.frozen.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        write_frozen(home, run_dir)


def record_frozen_first(home: Home, run_dir: RunDir) -> None:
    """Do the same for a run of an older hpcflow, whose checksum nobody has recorded.

    Called when an attempt is submitted, so a person does not have to see it first.
    """
    if not os.path.lexists(home.frozen / run_dir.path.name):
        record_frozen(home, run_dir)


def write_frozen(home: Home, run_dir: RunDir) -> None:
    """Do the same in an existing folder. ``OSError`` passes through."""
    digest = hashlib.sha256(read_file(run_dir.run_json)).hexdigest().encode()
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(home.frozen / run_dir.path.name, flags, FILE_MODE)
    try:
        os.write(descriptor, digest)
    finally:
        os.close(descriptor)


def matches_frozen(home: Home, run_id: str, data: bytes) -> bool:
    """Return whether ``data`` matches the recorded checksum of a run's ``run.json``."""
    try:
        known = read_file(home.frozen / run_id, _DIGEST_BYTES)
    except OSError:
        return False
    return known == hashlib.sha256(data).hexdigest().encode()
