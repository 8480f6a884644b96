"""Find out what is left of a run on scratch: a purge deletes old files and leaves directories.

Functions that read a file or folder raise StorageError if they cannot.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from hpcflow.model.run import Run
from hpcflow.runtime.manifest import CheckpointError, verify
from hpcflow.runtime.reading import open_file, read_file
from hpcflow.runtime.retention import look, named
from hpcflow.runtime.rule import COMPLETE, Found
from hpcflow.storage.disk_errors import storage_error, storage_errors
from hpcflow.storage.journal import is_lost
from hpcflow.storage.layout import Home, RunDir
from hpcflow.storage.rundir import is_no_json, read_run
from hpcflow.storage.runs import link_of, require_no_link


def linked_here(home: Home, run_id: str) -> RunDir | None:
    """Return the run directory that the home's link of a run leads to; it may be gone."""
    try:
        return home.run_dir(link_of(home, run_id))
    except OSError:
        return None


def frozen(run_dir: RunDir) -> Run | None:
    """Read the frozen ``run.json``; None if it is missing or not JSON.

    Valid JSON that is not a run was changed by someone, or written by a newer hpcflow: the user
    must decide.

    Raises:
        StorageError: it cannot be read, is not a run, or is of a newer hpcflow; or the run
            directory is a link.
    """
    require_no_link(run_dir)
    try:
        data = read_file(run_dir.run_json)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise storage_error("read", run_dir.run_json, error) from error
    return None if is_no_json(data) else read_run(run_dir)


def has_whole_record(run_dir: RunDir) -> bool:
    """Return whether ``run.json`` and the journal of a run exist; may raise as :func:`frozen`."""
    return frozen(run_dir) is not None and not is_lost(run_dir)


def newest_whole(run_dir: RunDir) -> int | None:
    """Return the train step of :func:`newest_found`."""
    found = newest_found(run_dir)
    return found.train_step if found is not None else None


def newest_found(run_dir: RunDir) -> Found | None:
    """Return the newest checkpoint that has all its files with their sizes."""
    with storage_errors("read", run_dir.checkpoints):
        steps = named(run_dir.checkpoints) if run_dir.checkpoints.is_dir() else []
        for train_step in reversed(steps):
            found = look(run_dir.checkpoints, train_step, run_dir.path.name)
            if found.state == COMPLETE:
                return found
    return None


def is_whole(run_dir: RunDir, train_step: int, *, reads_it: bool) -> bool:
    """Return whether a checkpoint has all its files; ``reads_it`` also verifies their checksums."""
    found = look(run_dir.checkpoints, train_step, run_dir.path.name)
    if found.state != COMPLETE:
        return False
    if reads_it:
        try:
            verify(found.path)
        except CheckpointError:
            return False
    return True


def journal_of(run_dir: RunDir) -> bytes:
    """Read the journal; empty if there is none."""
    with storage_errors("read", run_dir.journal), suppress(FileNotFoundError, NotADirectoryError):
        return read_file(run_dir.journal)
    return b""


def is_missing(run_dir: RunDir, name: str) -> bool:
    """Return whether the run directory has no ``name``, not even a broken link."""
    return not os.path.lexists(run_dir.path / name)


def size_of_file(run_dir: RunDir, name: str) -> int:
    path = run_dir.path / name
    with storage_errors("look at", path), suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


def begins_as(path: Path, other: Path) -> bool:
    """Return whether ``path`` begins with the content of ``other``. ``OSError`` passes through."""
    with path.open("rb") as longer, open_file(other) as shorter:
        while chunk := shorter.read(1 << 20):
            if longer.read(len(chunk)) != chunk:
                return False
    return True
