"""The checksum of each run's ``run.json``, kept in the home, where no other user can write.

``run.json`` defines what a run executes. It is on scratch and in the mirror, where other users may
be able to write. hpcflow trusts it only if it has the checksum that was recorded here when the run
was created or last resumed. Otherwise the run is held until ``hpcflow resume``.

Line 1 of a record is the checksum. Line 2 is the run's mirror, because the store and the ledger are
not trusted about it. Lines 3 and 4 are its site and its account, because hpcflow does not read a
``run.json`` on an untrusted path.
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
    """Record the checksum of a run's ``run.json``; if it cannot be written, keep the old one.

    It is not synced, which would be slow. If it is lost, the run is held.
    """
    with suppress(OSError):
        home.frozen.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        write_frozen(home, run_dir.path.name, read_file(run_dir.run_json))


def record_frozen_first(home: Home, run_dir: RunDir) -> None:
    """Record the checksum of ``run.json`` if the record is missing (from an older hpcflow) or empty
    (after a crash or on a full disk).

    Called when an attempt is submitted, so that the user need not resume the run.
    """
    with suppress(OSError):
        if not is_frozen_here(home, run_dir.path.name) or _is_empty(home, run_dir.path.name):
            record_frozen(home, run_dir)


def write_frozen(home: Home, run_id: str, data: bytes) -> None:
    """Record the checksum of ``data`` as a run's ``run.json``, in an existing folder.

    Raises:
        OSError: it cannot be written.
    """
    try:
        content = parse_object(data)
    except JsonError:
        content = {}
    kept = (*(content.get(key) for key in _KEPT), _account(content))
    lines = (hashlib.sha256(data).hexdigest(), *map(json.dumps, kept))
    known = "".join(f"{line}\n" for line in lines)
    replace_unsynced(home.frozen / run_id, known.encode())


def is_frozen_here(home: Home, run_id: str) -> bool:
    """Return whether a checksum of a run's ``run.json`` is recorded."""
    return os.path.lexists(home.frozen / run_id)


def _is_empty(home: Home, run_id: str) -> bool:
    """Return whether a record is an empty file; raise OSError if it is missing."""
    found = os.lstat(home.frozen / run_id)
    return stat.S_ISREG(found.st_mode) and found.st_size == 0


def matches_frozen(home: Home, run_id: str, data: bytes) -> bool:
    """Return whether ``data`` matches the recorded checksum of a run's ``run.json``."""
    return _line(home, run_id, 0) == hashlib.sha256(data).hexdigest().encode()


def frozen_mirror(home: Home, run_id: str) -> Mirror | None:
    """Return the recorded mirror of a run; None if it had none or it is unknown."""
    try:
        return Mirror.model_validate(parse_object(_line(home, run_id, 1)))
    except ValueError:  # null; or a record of an older hpcflow
        return None


def frozen_site(home: Home, run_id: str) -> str | None:
    """Return the recorded site of a run, a name or a path; None if it is unknown."""
    return _text(home, run_id, 2)


def frozen_account(home: Home, run_id: str) -> str | None:
    """Return the recorded account of a run; None if it names none or is unknown."""
    return _text(home, run_id, 3)


def _account(content: dict[str, Any]) -> object:
    try:
        return content["spec"]["resources"]["account"]
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
