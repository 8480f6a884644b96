"""The checksum of each run's ``run.json``, kept in the home, where no other user can write.

A second line has the run's mirror: a store and the ledger are not trusted about it, either. A third
and a fourth line have its site and its account: behind an untrusted path, hpcflow does not read
``run.json``.

``run.json`` says what a run executes. It lies on scratch and in the mirror. After a purge only the
mirror has it, and other users may be able to write there. It is trusted only if it has the
checksum of what was frozen here or last resumed. Else the run is held until ``hpcflow resume``.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from contextlib import suppress
from typing import Any

from hpcflow.model.run import Mirror
from hpcflow.runtime.reading import JsonError, parse_json, parse_object, read_file
from hpcflow.storage.files import FOLDER_MODE, replace_unsynced
from hpcflow.storage.layout import Home, RunDir

_MAX_BYTES = 64 << 10
_KEPT = ("mirror", "site")


def record_frozen(home: Home, run_dir: RunDir) -> None:
    """Record the checksum of a run's ``run.json``.

    It is not synced to the disk, which would be slow. If it is lost, the run is only held later.
    Where it cannot be written, the one before stays.
    """
    with suppress(OSError):
        home.frozen.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        write_frozen(home, run_dir.path.name, read_file(run_dir.run_json))


def record_frozen_first(home: Home, run_dir: RunDir) -> None:
    """Do the same for a run of an older hpcflow, whose checksum nobody has recorded, and for one
    whose record was lost in a crash of the machine or on a full disk, and is empty.

    Called when an attempt is submitted, so a person does not have to see it first.
    """
    with suppress(OSError):
        if not is_frozen_here(home, run_dir.path.name) or _is_empty(home, run_dir.path.name):
            record_frozen(home, run_dir)


def write_frozen(home: Home, run_id: str, data: bytes) -> None:
    """Do the same for ``data``, in an existing folder. ``OSError`` passes through."""
    try:
        said = parse_object(data)
    except JsonError:
        said = {}
    kept = (*(said.get(key) for key in _KEPT), _account(said))
    lines = (hashlib.sha256(data).hexdigest(), *map(json.dumps, kept))
    known = "".join(f"{line}\n" for line in lines)
    replace_unsynced(home.frozen / run_id, known.encode())


def is_frozen_here(home: Home, run_id: str) -> bool:
    """Return whether a checksum of a run's ``run.json`` is recorded."""
    return os.path.lexists(home.frozen / run_id)


def _is_empty(home: Home, run_id: str) -> bool:
    """Whether a record is there and says nothing. ``OSError`` passes through."""
    found = os.lstat(home.frozen / run_id)
    return stat.S_ISREG(found.st_mode) and found.st_size == 0


def matches_frozen(home: Home, run_id: str, data: bytes) -> bool:
    """Return whether ``data`` matches the recorded checksum of a run's ``run.json``."""
    return _line(home, run_id, 0) == hashlib.sha256(data).hexdigest().encode()


def frozen_mirror(home: Home, run_id: str) -> Mirror | None:
    """Return the mirror of a run as it was frozen here; None if it had none or it is unknown."""
    try:
        return Mirror.model_validate(parse_object(_line(home, run_id, 1)))
    except ValueError:  # null; or a record of an older hpcflow
        return None


def frozen_site(home: Home, run_id: str) -> str | None:
    """Return the site of a run as it was frozen here, a name or a path; None if it is unknown."""
    return _text(home, run_id, 2)


def frozen_account(home: Home, run_id: str) -> str | None:
    """Return the account of a run as it was frozen here; None if it names none or is unknown."""
    return _text(home, run_id, 3)


def _account(said: dict[str, Any]) -> object:
    try:
        return said["spec"]["resources"]["account"]
    except (KeyError, TypeError):
        return None


def _text(home: Home, run_id: str, number: int) -> str | None:
    try:
        text = parse_json(_line(home, run_id, number))
    except JsonError:
        return None
    return text if isinstance(text, str) else None


def _line(home: Home, run_id: str, number: int) -> bytes:
    try:
        lines = read_file(home.frozen / run_id, _MAX_BYTES).split(b"\n")
    except OSError:
        return b""
    return lines[number] if number < len(lines) else b""
