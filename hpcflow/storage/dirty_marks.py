"""Marks in ``HPCFLOW_HOME/unread``: runs whose files may have grown since the ledger read them.

The ledger does not reread runs that ended long ago. A command that continues one (``resume``) marks
it first. If that command is killed, or the database is down, the next reader of this home still
rereads the run. Only readers remove a mark: when it is old and its run was read.
"""

from __future__ import annotations

import os
from pathlib import Path

from hpcflow.model.ids import is_run_id
from hpcflow.storage.disk_errors import storage_errors
from hpcflow.storage.files import FILE_MODE, make_folders
from hpcflow.storage.layout import Home, RunDir

#: No command takes longer from its mark to its last journal record.
_OLD_S = 3600
#: Touched to read the clock that sets the times of marks, which may be the file server's.
_NOW = ".now"


def mark_dirty(home: Home, run_dir: RunDir) -> None:
    """Mark a run for rereading, before its journal grows."""
    mark = home.unread / run_dir.path.name
    with storage_errors("write", mark):
        make_folders(home.unread)
        _touch(mark)


def dirty_runs(home: Home) -> list[str]:
    try:
        return sorted(name for name in os.listdir(home.unread) if is_run_id(name))  # noqa: PTH208
    except OSError:
        return []


def forget_old_marks(home: Home, run_ids: list[str]) -> None:
    """Remove the old marks of these runs, which were read since."""
    if not run_ids:
        return
    clock = home.unread / _NOW
    try:
        _touch(clock)
        now_s = clock.stat().st_mtime
    except OSError:
        return
    for run_id in run_ids:
        mark = home.unread / run_id
        try:
            if now_s - mark.lstat().st_mtime > _OLD_S:
                mark.unlink()
        except OSError:
            continue


def _touch(path: Path) -> None:
    """Create an empty file, or set its time; raise OSError, also for a link."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, FILE_MODE)
    try:
        os.utime(descriptor)
    finally:
        os.close(descriptor)
