"""List a user's runs on scratch: their size, when they are purged, what is not mirrored.

Only the manifests of checkpoints are read: reading the other files would postpone a purge. The
ledger is not needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Final

from hpcflow.errors import HpcflowError, StorageError, words_for
from hpcflow.runtime import retention
from hpcflow.runtime.mirrored import mirrored
from hpcflow.runtime.rule import COMPLETE, Found
from hpcflow.settings import Settings
from hpcflow.sites.schema import Site
from hpcflow.storage.disk_space import Space, look
from hpcflow.storage.files import files_below
from hpcflow.storage.layout import RunDir
from hpcflow.storage.rundir import list_runs, read_run
from hpcflow.storage.runs import is_gone, require_no_link

#: The unit of ``st_blocks``, independent of the file system's block size.
_BLOCK_BYTES: Final = 512


@dataclass(frozen=True)
class OnScratch:
    """The files of a run on scratch.

    Attributes:
        size_bytes: its disk usage.
        newest: train step of the newest complete checkpoint, if any.
        checkpoints: train steps of all complete checkpoints.
        not_mirrored: those that its mirror lacks; None if it has no mirror.
        purge_days: days without access until a file is purged; None if unknown.
        checkpoint_purged_at: train step -> when the first file of its checkpoint is purged; empty
            if nothing is purged.
        purged_at: when the first needed file is purged: of the newest checkpoint, of any that is
            not mirrored, or without checkpoints of the run; None if nothing is purged.
    """

    run_id: str
    run_dir: RunDir
    size_bytes: int
    newest: int | None
    checkpoints: list[int]
    not_mirrored: list[int] | None
    purge_days: int | None
    checkpoint_purged_at: dict[int, datetime]
    purged_at: datetime | None


@dataclass(frozen=True)
class Disk:
    """A file system with runs of this user.

    Attributes:
        purge_days: the least of the sites of these runs; None if unknown.
        size_bytes: disk usage of the runs on it.
    """

    space: Space
    purge_days: int | None
    runs: int
    size_bytes: int


@dataclass(frozen=True)
class InHome:
    """The files in a user's home of hpcflow: the records of all runs, the ledger and the rest.

    Attributes:
        space: its file system; None if unknown.
        size_bytes: their disk usage.
    """

    path: Path
    space: Space | None
    runs: int
    files: int
    size_bytes: int


@dataclass(frozen=True)
class Scratch:
    """All runs and file systems of a user.

    Attributes:
        runs: the run that is purged first comes first.
        gone: ids of the runs whose directory is missing.
    """

    home: InHome
    disks: list[Disk]
    runs: list[OnScratch]
    gone: list[str]


def survey_scratch(
    settings: Settings,
    site_of: Callable[[str], Site],
    look_at: Callable[[Iterable[RunDir]], Iterable[RunDir]] = lambda run_dirs: run_dirs,
    warn: Callable[[str], object] | None = None,
) -> Scratch:
    """List all runs of this home.

    Args:
        look_at: wraps the run directories, to show progress.
        warn: called with one line for each run that is skipped.
    """
    there: list[OnScratch] = []
    gone: list[str] = []
    for run_dir in look_at(list_runs(settings.home, warn)):
        if is_gone(run_dir):
            gone.append(run_dir.path.name)
            continue
        try:
            require_no_link(run_dir)
        except StorageError as error:
            if warn is not None:
                warn(f"{run_dir.path.name}: skipped: {words_for(error)}")
        else:
            there.append(_look(run_dir, site_of))
    last = datetime.max.replace(tzinfo=timezone.utc)
    there.sort(key=lambda run: (run.purged_at or last, run.run_id))
    home = _in_home(settings, len(there) + len(gone))
    return Scratch(home, list(_disks(there, settings.user)), there, gone)


def _in_home(settings: Settings, runs: int) -> InHome:
    path = settings.home.path
    files = list(_files(path)) if path.is_dir() else []
    size_bytes = sum(file.st_blocks * _BLOCK_BYTES for file in files)
    return InHome(path, look(path, settings.user), runs, len(files), size_bytes)


def _look(run_dir: RunDir, site_of: Callable[[str], Site]) -> OnScratch:
    run_id, purge_days, url = run_dir.path.name, None, None
    with suppress(HpcflowError):  # run.json or the site file is missing
        run = read_run(run_dir)
        url = run.mirror.url if run.mirror else None
        purge_days = site_of(run.site).scratch.purge_days
    whole: list[Found] = []
    with suppress(OSError):
        found = retention.find(run_dir.checkpoints, run_id)
        whole = [each for each in found if each.state == COMPLETE]
    there = [each.train_step for each in whole]
    has = mirrored(run_dir.path, url)
    lacks = [train_step for train_step in there if train_step not in has]
    purged_at = {each.train_step: _purged_at(each.path, purge_days) for each in whole}
    missed = [purged_at[train_step] for train_step in {*there[-1:], *lacks}]
    if not whole:
        missed = [_purged_at(run_dir.path, purge_days)]
    return OnScratch(
        run_id=run_id,
        run_dir=run_dir,
        size_bytes=sum(file.st_blocks * _BLOCK_BYTES for file in _files(run_dir.path)),
        newest=there[-1] if there else None,
        checkpoints=there,
        not_mirrored=lacks if url is not None or has else None,
        purge_days=purge_days,
        checkpoint_purged_at={step: at for step, at in purged_at.items() if at is not None},
        purged_at=min((at for at in missed if at is not None), default=None),
    )


def _purged_at(folder: Path, purge_days: int | None) -> datetime | None:
    """Return when the first file below is purged; None if unknown."""
    if purge_days is None:
        return None
    used_at = min((_last_use(file) for file in _files(folder)), default=None)
    if used_at is not None:
        # A file may have a time that datetime cannot represent.
        with suppress(OverflowError, ValueError, OSError):
            return datetime.fromtimestamp(used_at, timezone.utc) + timedelta(days=purge_days)
    return None


def _last_use(file: os.stat_result) -> float:
    """Return the time of the last access or write; some file systems keep no access times."""
    return max(file.st_atime, file.st_mtime)


def _files(folder: Path) -> Iterator[os.stat_result]:
    """Yield each file below once, even with several hard links."""
    seen: set[tuple[int, int]] = set()
    for file in files_below(folder):
        if file.st_nlink > 1:
            if (file.st_dev, file.st_ino) in seen:
                continue
            seen.add((file.st_dev, file.st_ino))
        yield file


def _disks(runs: list[OnScratch], user: str) -> Iterator[Disk]:
    on: dict[int, list[OnScratch]] = {}
    for run in runs:
        with suppress(OSError):
            on.setdefault(run.run_dir.path.stat().st_dev, []).append(run)
    for together in on.values():
        space = look(together[0].run_dir.path.parent, user)
        if space is not None:
            days = [run.purge_days for run in together if run.purge_days is not None]
            size_bytes = sum(run.size_bytes for run in together)
            yield Disk(space, min(days, default=None), len(together), size_bytes)
