"""Whether a user of this home has approved what a run executes.

A run that was made here is approved. One whose ``run.json`` came from a store is not, because other
users may be able to write there: it is held until ``hpcflow resume``.
"""

from __future__ import annotations

from hpcflow.errors import StorageError
from hpcflow.storage.disk_errors import storage_errors
from hpcflow.storage.files import FILE_MODE, fsync_folder, size_of
from hpcflow.storage.layout import RunDir


def is_approved(run_dir: RunDir) -> bool:
    """Return whether this home has an approved ``run.json``; False if it cannot be read."""
    try:
        return size_of(run_dir.run_json) is not None and size_of(run_dir.unapproved) is None
    except StorageError:
        return False


def approve(run_dir: RunDir) -> None:
    """Record that the user accepts what the run executes. Raise StorageError."""
    with storage_errors("remove", run_dir.unapproved):
        run_dir.unapproved.unlink(missing_ok=True)


def withhold_approval(run_dir: RunDir) -> None:
    """Record, before ``run.json`` is written, that it comes from a store. Raise StorageError."""
    with storage_errors("write", run_dir.unapproved):
        run_dir.unapproved.touch(mode=FILE_MODE)
        fsync_folder(run_dir.unapproved.parent)
