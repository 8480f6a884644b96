"""Move the runs of a home that an older hpcflow made.

There ``runs/<run_id>`` was a link to the run directory. ``run.json`` and the journal were on
scratch; ``frozen/<run_id>`` had the checksum of the one, and ``journals/<run_id>`` a copy of the
other, as it was last mirrored. Nothing on scratch changes, so pending jobs find what they know.

A killed upgrade is repeated: a record appears with one rename, and ``frozen/`` goes last. If the
files of a run are not there, because its scratch was purged or is another cluster's, its record has
the file ``upgrade`` until another upgrade finds them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hpcflow.clock import Clock
from hpcflow.errors import StorageError
from hpcflow.history import RunHistory
from hpcflow.model.ids import is_run_id
from hpcflow.model.journal import Held, parse_record_or_none
from hpcflow.runtime.reading import read_file
from hpcflow.storage.disk_errors import storage_errors
from hpcflow.storage.files import FILE_MODE, FOLDER_MODE, fsync_folder, write_durably, write_new
from hpcflow.storage.journal import write_for_jobs
from hpcflow.storage.layout import SCRATCH, Home, RunDir
from hpcflow.storage.locks import LOCK_WAIT_S, wait_for_lock
from hpcflow.storage.runs import is_older_link

_HALF: Final = ".upgrade"
_CHANGED: Final = "its run.json on scratch was changed after a user of this home approved it"
_DIFFERS: Final = "its journal on scratch differs from the one that this home had"
#: In a record whose files were not found yet: the checksum of the approved ``run.json``.
_UPGRADE_MARK: Final = "upgrade"
_CHECKSUM_CHARS: Final = 64


@dataclass
class Upgraded:
    """The result of an upgrade.

    Attributes:
        runs: how many runs were moved.
        incomplete: ids of runs whose files were not found, because their scratch is purged or not
            mounted here.
        problems: one text for each run that needs a look.
    """

    runs: int = 0
    incomplete: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def upgrade_home(
    home: Home,
    *,
    user: str,
    clock: Clock,
    on_run: Callable[[int, int], object] = lambda _done, _all: None,
) -> Upgraded:
    """Move all runs of an older home, and complete those that an earlier upgrade could not.

    A run is held if its ``run.json`` was changed on scratch since the user approved it, or if two
    journals of it differ.

    Args:
        user: who holds such a run.
        on_run: called with the number of runs done, and of all.

    Raises:
        StorageError: another process upgrades it.
    """
    lock = wait_for_lock(home.path / "upgrade.lock", wait_s=LOCK_WAIT_S, clock=clock)
    with lock, storage_errors("upgrade", home.path):
        return _Upgrade(home, user, clock).go(on_run)


class _Upgrade:
    def __init__(self, home: Home, user: str, clock: Clock) -> None:
        self._home, self._user, self._clock = home, user, clock
        self._done = Upgraded()

    def go(self, on_run: Callable[[int, int], object]) -> Upgraded:
        home = self._home
        names = sorted(path.name for path in home.runs.iterdir()) if home.runs.is_dir() else []
        for name in names:
            run_id = name.removeprefix(".").removesuffix(_HALF)
            if name == f".{run_id}{_HALF}" and is_run_id(run_id):
                self._finish(run_id)
        older = [name for name in names if is_run_id(name) and is_older_link(home, name)]
        for done, run_id in enumerate(older):
            on_run(done, len(older))
            self._move(run_id)
        on_run(len(older), len(older))
        for run_id in sorted({*filter(is_run_id, names)}.difference(older)):
            if (home.runs / run_id / _UPGRADE_MARK).is_file():
                self._fill(run_id, home.runs / run_id)
        for folder in (home.path / "journals", home.older):
            if folder.is_dir():
                shutil.rmtree(folder)
        self._done.runs = len(older)
        return self._done

    def _finish(self, run_id: str) -> None:
        """Finish a record of a killed upgrade, or remove it."""
        half, record = self._home.runs / f".{run_id}{_HALF}", self._home.runs / run_id
        if os.path.lexists(record):
            shutil.rmtree(half)
        else:  # its link was removed, so it is complete
            half.rename(record)
            fsync_folder(self._home.runs)

    def _move(self, run_id: str) -> None:
        record, half = self._home.runs / run_id, self._home.runs / f".{run_id}{_HALF}"
        path, made_ns = record.readlink(), record.lstat().st_mtime_ns
        half.mkdir(mode=FOLDER_MODE)
        write_new(half / _UPGRADE_MARK, _checksum_of(self._home, run_id).encode())
        if copy := _copy_of(self._home, run_id):
            write_new(RunDir(path, half).journal, copy)
        link = half / SCRATCH
        link.symlink_to(path)
        os.utime(link, ns=(made_ns, made_ns), follow_symlinks=False)  # runs are listed by age
        self._fill(run_id, half)
        fsync_folder(half)
        record.unlink()
        half.rename(record)
        fsync_folder(self._home.runs)

    def _fill(self, run_id: str, record: Path) -> None:
        """Copy ``run.json`` and the journal from scratch, if both are there."""
        path = (record / SCRATCH).readlink()
        try:
            with _locked(path):
                is_complete = self._copy(RunDir(path), RunDir(path, record))
        except StorageError as error:
            self._done.problems.append(f"{run_id}: {error.message}")
            is_complete = False
        if is_complete:
            fsync_folder(record)
            (record / _UPGRADE_MARK).unlink()
        else:
            self._done.incomplete.append(run_id)

    def _copy(self, before: RunDir, new: RunDir) -> bool:
        """Return whether ``run.json`` and the journal were there."""
        run_json, lines = _content(before.run_json), _content(before.journal)
        if run_json is None or lines is None:
            return False
        known, why = _content(new.journal) or b"", None
        if not lines.startswith(known):
            # The journal here is a copy from before a purge, or has lines since an upgrade
            # elsewhere. None is lost.
            why = None if known.startswith(lines) else _DIFFERS
            lines = known if why is None else known + lines
        checksum = (_content(new.run_json.with_name(_UPGRADE_MARK)) or b"").decode()
        if checksum and hashlib.sha256(run_json).hexdigest() != checksum:
            new.unapproved.touch(mode=FILE_MODE)
            why = _CHANGED
        if why is not None:
            self._done.problems.append(f"{new.path.name}: held: {why}")
            hold = Held(at=self._clock.now(), by=self._user, why=why)
            lines += hold.to_line().encode()
        write_durably(new.journal, lines)
        if not new.run_json.exists():
            write_durably(new.run_json, run_json)
        found = (parse_record_or_none(line) for line in lines.split(b"\n") if line)
        write_for_jobs(new, RunHistory.of(each for each in found if each is not None))
        return True


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the submit lock of an older hpcflow, if the run has one."""
    lock = RunDir(path).submit_lock
    if not os.path.lexists(lock):
        yield
        return
    with wait_for_lock(lock, wait_s=LOCK_WAIT_S):
        yield


def _content(path: Path) -> bytes | None:
    with storage_errors("read", path), suppress(FileNotFoundError, NotADirectoryError):
        return read_file(path)
    return None


def _checksum_of(home: Home, run_id: str) -> str:
    """Return the checksum of the ``run.json`` that a user of this home approved; else empty."""
    with suppress(StorageError):
        return (_content(home.older / run_id) or b"")[:_CHECKSUM_CHARS].decode("ascii", "replace")
    return ""


def _copy_of(home: Home, run_id: str) -> bytes | None:
    """Return the copy of a purged journal; None if it is missing or damaged."""
    checksum, _, lines = (_content(home.path / "journals" / run_id) or b"").partition(b"\n")
    return lines if hashlib.sha256(lines).hexdigest().encode() == checksum else None
