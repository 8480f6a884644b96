"""Whether the small files of a run may take the place of those that the store has.

A purge can take the journal, and what is begun anew then is short; and a run can have gone to
another cluster, which mirrors it to the same place. In both cases the store knows more.
"""

from __future__ import annotations

import json
from typing import Any

from hpcflow.errors import MirrorError, MissingObjectError, StorageError
from hpcflow.mirror.layout import RUN_JSON
from hpcflow.mirror.remote import Remote
from hpcflow.model.journal import Restored
from hpcflow.storage import journal
from hpcflow.storage.files import read_file, storage_error
from hpcflow.storage.layout import RunDir


def require_same_place(run_dir: RunDir, remote: Remote) -> None:
    """Refuse to send beside what another place sends of a run.

    Raises:
        MirrorError: another place mirrors it there; or the store.
    """
    run_id = run_dir.path.name
    name = f"{run_id}/{RUN_JSON}"
    if name not in remote.names(name):  # a listing, for S3 servers say there what troubles them
        return
    try:
        before = json.loads(remote.read(name))
        now = json.loads(read_file(run_dir.run_json))
    except (MissingObjectError, ValueError, RecursionError, OSError):
        return  # what is sent now is better
    if _place(before) == _place(now) or _place(before) in _came_from(run_dir):
        return
    raise MirrorError(
        f"{remote.url_of(run_id)} is mirrored from another place now: {_place(before)!r}",
        next_action=f"two clusters must not train it at once: hpcflow hold {run_id}; to go on "
        f"with what is there: hpcflow restore --from {remote.url_of(run_id)}",
    )


def require_no_less(run_dir: RunDir, remote: Remote) -> None:
    """Refuse to send a journal that does not begin as the one does that the store has.

    Raises:
        MirrorError: it does not; or the store.
        StorageError: the journal here cannot be read.
    """
    run_id = run_dir.path.name
    name = f"{run_id}/{run_dir.journal.name}"
    if name not in remote.names(name):
        return
    try:
        said = remote.read(name)
    except MissingObjectError:
        return
    if not _journal(run_dir).startswith(said[: said.rfind(b"\n") + 1]):
        raise MirrorError(
            f"{remote.url_of(run_id)} has more of the run's journal than there is here",
            next_action=f"a purge may have taken it; put it back: hpcflow restore {run_id}",
        )


def _journal(run_dir: RunDir) -> bytes:
    try:
        return read_file(run_dir.journal)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise storage_error("read", run_dir.journal, error) from error


def _place(said: Any) -> str | None:
    return str(said.get("run_dir")) if isinstance(said, dict) else None


def _came_from(run_dir: RunDir) -> set[str | None]:
    """The run directories that it was in before, of which this place took it over."""
    try:
        records = journal.read(run_dir)
    except StorageError:
        return set()
    return {each.run_dir_before for each in records if isinstance(each, Restored)}
