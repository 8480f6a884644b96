"""Move fetched files into the run directory: with one rename if it is new, else file by file.

A file is renamed into place only if there is none, or one that is known to be a shorter part of it.
So a killed restore leaves a run directory that lacks fewer files than before.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path, PurePosixPath

from hpcflow.restore.local import begins_as, is_missing
from hpcflow.restore.staging import Staging
from hpcflow.runtime.files import files_below, remove_tree, sync_folders
from hpcflow.storage.disk_errors import storage_errors
from hpcflow.storage.files import FOLDER_MODE, fsync_folder, write_durably
from hpcflow.storage.layout import RunDir
from hpcflow.storage.rundir import FOLDERS
from hpcflow.storage.runtime_copy import add_runtime, is_whole

_NOT_EMPTY = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR})
_SHARED = ".runtime"


def publish_new(
    staged: Staging, run_dir: RunDir, params: bytes | None, attempts: Iterable[int]
) -> bool:
    """Turn the staged files into the run directory, atomically.

    Args:
        params: ``params.json``; None if it comes from a store. A pending job would read it; the
            next submission writes it.
        attempts: attempts that always get a folder, because their jobs may still start.

    Returns:
        False, and nothing is changed, if the run directory was created meanwhile.

    Raises:
        StorageError: the disk is full or missing; nothing became visible.
    """
    half, final = RunDir(staged.run), run_dir.path
    if params is not None:
        staged.put(half.params_json.name, params)
    with storage_errors("make", final):
        for folder in [*(half.path / name for name in FOLDERS)] + [
            half.attempt(number).path for number in attempts
        ]:
            folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        add_runtime(half.runtime, final.parent.parent / _SHARED, [])
        _close(half.path)
        sync_folders(half.path)
        try:
            half.path.rename(final)
        except OSError as error:
            if error.errno not in _NOT_EMPTY:
                raise
            # Keep only the files that `merge` adds.
            remove_tree(half.runtime)
            half.params_json.unlink(missing_ok=True)
            return False
        fsync_folder(final.parent)
    return True


def merge(
    staged: Staging, run_dir: RunDir, params: bytes | None, attempts: Iterable[int]
) -> list[str]:
    """Move staged files into an existing run directory; the caller holds its submit lock.

    Args:
        params: as for :func:`publish_new`.

    Returns:
        Names of files that were kept because they differ from those in the mirror.
    """
    half, others = RunDir(staged.run), []
    with storage_errors("restore files in", run_dir.path):
        _close(half.path)
        sync_folders(half.path)
        for name in FOLDERS:
            (run_dir.path / name).mkdir(mode=FOLDER_MODE, exist_ok=True)
        for number in attempts:
            run_dir.attempt(number).path.mkdir(mode=FOLDER_MODE, exist_ok=True)
        if half.checkpoints.is_dir():
            for folder in sorted(half.checkpoints.iterdir()):
                _publish_checkpoint(folder, run_dir)
        for name, path in [*files_below(half.path)]:
            if _is_behind_link(run_dir.path, name) or not _put_file(path, run_dir.path / name):
                others.append(name)
        if not is_whole(run_dir.runtime):
            _renew_runtime(run_dir, staged)
    if params is not None and is_missing(run_dir, run_dir.params_json.name):
        write_durably(run_dir.params_json, params)
    return others


def _publish_checkpoint(folder: Path, run_dir: RunDir) -> None:
    """Rename a checkpoint into place; set aside an incomplete one, as jobs do."""
    target = run_dir.checkpoints / folder.name
    if os.path.lexists(target):
        aside = target.parent / f".{target.name}.{secrets.token_hex(8)}.broken"
        target.rename(aside)
    folder.rename(target)
    fsync_folder(target.parent)


def _is_behind_link(folder: Path, name: str) -> bool:
    """Return whether a folder of ``name`` is a link. The mirror follows no links, so hpcflow did
    not send such a file."""
    return any((folder / each).is_symlink() for each in PurePosixPath(name).parents)


def _put_file(source: Path, target: Path) -> bool:
    """Rename a file to a place that has none, or only its beginning; return whether it was done."""
    target.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    if os.path.lexists(target):
        status = target.lstat()
        is_less = stat.S_ISREG(status.st_mode) and status.st_size < source.stat().st_size
        if not is_less or not begins_as(source, target):
            return False
    source.replace(target)
    fsync_folder(target.parent)
    return True


def _renew_runtime(run_dir: RunDir, staged: Staging) -> None:
    """Replace an incomplete copy of the runtime, which jobs import, by that of this hpcflow."""
    new = staged.run / "runtime"
    remove_tree(new)
    new.mkdir(mode=FOLDER_MODE)
    add_runtime(new, run_dir.path.parent.parent / _SHARED, [])
    sync_folders(new)
    old = run_dir.runtime
    if os.path.lexists(old):
        aside = run_dir.path / f".runtime.{secrets.token_hex(8)}.old"
        old.rename(aside)
        remove_tree(aside)
    new.rename(old)
    fsync_folder(run_dir.path)


def _close(folder: Path) -> None:
    """Make folders private to the owner, and delete temporary files of killed writes."""
    for root, folders, names in os.walk(folder):
        for name in folders:
            Path(root, name).chmod(FOLDER_MODE)
        for name in names:
            if name.startswith(".") and name.endswith(".tmp") and len(name) == 21:
                with suppress(OSError):
                    Path(root, name).unlink()
