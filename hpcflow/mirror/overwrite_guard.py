"""Check whether the small files of a run may replace those in the store.

The store has more if the home was restored from an old backup, or if the run moved to another
cluster, which mirrors it to the same folder: docs/mirror.md, section "Whose folder it is".
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from hpcflow.errors import MirrorError, MissingObjectError, StorageError, shell_word
from hpcflow.history import RunHistory
from hpcflow.mirror.layout import RUN_JSON
from hpcflow.mirror.remote import Remote
from hpcflow.model.journal import parse_record_or_none
from hpcflow.runtime.reading import (
    MAX_LINE_BYTES,
    MAX_RUN_JSON_BYTES,
    JsonError,
    parse_object,
    read_file,
    read_object,
)
from hpcflow.storage.files import storage_error, storage_errors, write_durably
from hpcflow.storage.layout import RunDir


def require_same_place(run_dir: RunDir, remote: Remote) -> bool:
    """Check that no other place mirrors the run to this store.

    Returns:
        Whether the store has a readable ``run.json`` of the run; if not, the rest is useless.

    Raises:
        MirrorError: another place mirrors it there.
    """
    run_id = run_dir.path.name
    name = f"{run_id}/{RUN_JSON}"
    if name not in remote.names(name):  # a listing, because its errors on S3 are precise
        return False
    try:
        there = parse_object(remote.read_range(name, 0, MAX_RUN_JSON_BYTES))
    except (MissingObjectError, JsonError):
        return False
    here = _frozen(run_dir)
    if _place(there) in (_place(here), here.get("place_before")):
        return True
    run_there, site_there = (repr(str(there.get(key))[:200]) for key in ("run_dir", "site"))
    where = f"{run_there} on site {site_there}"
    raise MirrorError(
        f"{remote.url_of(run_id)} is mirrored from another place now: {where}",
        next_action=f"two clusters must not train it at once: hpcflow hold {shell_word(run_id)}; "
        "to continue here from the mirror: hpcflow restore --from "
        f"{shell_word(remote.url_of(run_id))}",
    )


def require_no_less(run_dir: RunDir, remote: Remote) -> bytes:
    """Check that the journal has all lines of the journal in the store, and return it.

    A journal in the store that does not begin with what hpcflow last sent was changed by others,
    and is replaced.

    Raises:
        MirrorError: it lacks some.
    """
    here = _journal(run_dir)
    there = _of_store(run_dir, remote, len(here) + MAX_LINE_BYTES)
    if not here.startswith(there) and not _was_changed(run_dir, there) and not _is_accepted(here):
        run_id = run_dir.path.name
        raise MirrorError(
            f"{remote.url_of(run_id)} has more of the run's journal than {run_dir.journal}",
            next_action="the home may be an old backup; see both: "
            f"hpcflow restore {run_id}; if that holds the run, continue with the local journal: "
            f"hpcflow resume {run_id}",
        )
    return here


def note_mirrored(run_dir: RunDir, lines: bytes) -> None:
    """Record length and checksum of the journal that is about to be sent. Raise StorageError."""
    lines = lines[: lines.rfind(b"\n") + 1]
    write_durably(run_dir.mirrored, f"{len(lines)} {hashlib.sha256(lines).hexdigest()}\n".encode())


def _was_changed(run_dir: RunDir, there: bytes) -> bool:
    """Return whether the store's journal does not begin with what was last sent there."""
    try:
        size_bytes, _, checksum = read_file(run_dir.mirrored).decode().strip().partition(" ")
        return hashlib.sha256(there[: int(size_bytes)]).hexdigest() != checksum
    except (OSError, ValueError):
        return False


def _is_accepted(lines: bytes) -> bool:
    found = (parse_record_or_none(line) for line in lines.split(b"\n") if line)
    return RunHistory.of(each for each in found if each is not None).is_older_home_accepted


def _of_store(run_dir: RunDir, remote: Remote, most_bytes: int) -> bytes:
    """Read the complete lines of the journal in the store, up to ``most_bytes``."""
    name = f"{run_dir.path.name}/{run_dir.journal.name}"
    if name not in remote.names(name):
        return b""
    try:
        said = remote.read_range(name, 0, most_bytes)
    except MissingObjectError:
        return b""
    return said[: said.rfind(b"\n") + 1]


def _journal(run_dir: RunDir) -> bytes:
    with storage_errors("read", run_dir.journal), suppress(FileNotFoundError):
        return read_file(run_dir.journal)
    return b""


def _frozen(run_dir: RunDir) -> dict[str, Any]:
    try:
        return read_object(run_dir.run_json)
    except OSError as error:
        raise storage_error("read", run_dir.run_json, error) from error
    except JsonError as error:
        raise StorageError(f"{run_dir.run_json} is damaged: {error}") from error


def _place(said: Mapping[str, Any]) -> str:
    """Return :attr:`hpcflow.model.run.Run.place_id`, without validating the whole run."""
    return str(said.get("place") or said.get("run_dir"))
