"""The checksum of each run's ``run.json``, kept in the home, where no other user can write.

A second line has the run's mirror: what a store or the ledger says of it is untrusted, too.

``run.json`` says what a run executes. It lies on scratch and in the mirror. After a purge only the
mirror has it, and other users may be able to write there. It is trusted only if it has the
checksum of what was frozen here or last resumed. Else the run is held until ``hpcflow resume``.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress

from hpcflow.model.run import Mirror
from hpcflow.runtime.reading import JsonError, parse_object, read_file
from hpcflow.storage.files import FILE_MODE, FOLDER_MODE, write_all
from hpcflow.storage.layout import Home, RunDir

_MAX_BYTES = 64 << 10


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
    if not is_frozen_here(home, run_dir.path.name):
        record_frozen(home, run_dir)


def write_frozen(home: Home, run_dir: RunDir) -> None:
    """Do the same in an existing folder. ``OSError`` passes through."""
    data = read_file(run_dir.run_json)
    try:
        mirror = parse_object(data).get("mirror")
    except JsonError:
        mirror = None
    known = f"{hashlib.sha256(data).hexdigest()}\n{json.dumps(mirror)}\n"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(home.frozen / run_dir.path.name, flags, FILE_MODE)
    try:
        write_all(descriptor, known.encode())
    finally:
        os.close(descriptor)


def is_frozen_here(home: Home, run_id: str) -> bool:
    """Return whether a checksum of a run's ``run.json`` is recorded."""
    return os.path.lexists(home.frozen / run_id)


def matches_frozen(home: Home, run_id: str, data: bytes) -> bool:
    """Return whether ``data`` matches the recorded checksum of a run's ``run.json``."""
    digest, _, _ = _read(home, run_id).partition(b"\n")
    return digest == hashlib.sha256(data).hexdigest().encode()


def frozen_mirror(home: Home, run_id: str) -> Mirror | None:
    """Return the mirror of a run as it was frozen here; None if it had none or it is unknown."""
    _, _, mirror = _read(home, run_id).partition(b"\n")
    try:
        return Mirror.model_validate(parse_object(mirror))
    except ValueError:  # null; or a record of an older hpcflow
        return None


def _read(home: Home, run_id: str) -> bytes:
    try:
        return read_file(home.frozen / run_id, _MAX_BYTES)
    except OSError:
        return b""
