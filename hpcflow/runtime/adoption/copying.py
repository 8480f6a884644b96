"""Copy checkpoints of the program, publish them as checkpoints of the run, and put them back."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from stat import S_IMODE, S_ISDIR, S_ISLNK, S_ISREG
from typing import BinaryIO

from hpcflow.runtime.adoption.foreign import Foreign, look, statuses_in
from hpcflow.runtime.adoption.rule import AdoptRule
from hpcflow.runtime.checksum import sha256_of
from hpcflow.runtime.creators import other_writer
from hpcflow.runtime.events import EventLog
from hpcflow.runtime.files import (
    NewFile,
    Written,
    create,
    files_below,
    folders_below,
    names_in,
    new_folder,
    opened_folder,
    random_bits,
    random_word,
    remove_opened,
    remove_tree,
    rename_opened,
    sizes_below,
    sync,
    sync_folders,
)
from hpcflow.runtime.job import Job
from hpcflow.runtime.manifest import CheckpointError, read_manifest
from hpcflow.runtime.reading import open_below, open_file, opened_place
from hpcflow.runtime.retention import Keeper, named
from hpcflow.runtime.store import CheckpointStore
from hpcflow.runtime.successor import require_no_successor
from hpcflow.runtime.warn import WarnOnce, warn

_CHUNK_BYTES = 1 << 20
#: Mode of a file only for its owner.
_PRIVATE = 0o600
#: From linux/fs.h; POWER has another number, and rejects this one.
_FICLONE = 0x40049409
#: The folder in a checkpoint with the adopted files, under the program's name.
FOLDER = "adopted"
#: Seconds between two tries after a failure: a disk stays full for a while.
_PAUSE_S = 60.0
#: Warn after this many discarded copies in a row.
_MANY_CHANGES = 3
_BROKEN = re.compile(r"\.\d{1,18}\.[0-9a-f]+\.broken", re.ASCII)


def take(source: Path, staged: Path, name: str, *, link: bool) -> dict[str, Written]:
    """Copy ``source``, a file or a folder, to ``staged / name``; return its files by name.

    Args:
        link: hard-link the files where possible: for files that are never changed again.

    Raises:
        OSError: it went away, holds a link, or the disk is full; the copy is useless.
    """
    taken = {}
    with opened_place(source.parent) as place:
        for below, status in statuses_in(place, source):
            if not S_ISREG(status.st_mode):
                continue
            path, full, target = Path(source.name + below), name + below, staged / (name + below)
            target.parent.mkdir(parents=True, exist_ok=True)
            taken[full] = (_link(place, path, target) if link else None) or copy_file(
                path, target, _PRIVATE, place
            )
    return taken


def copy_file(
    source: Path, target: Path, mode: int = _PRIVATE, within: int | None = None
) -> Written:
    """Copy one file to a new one with this mode, and sync it.

    Args:
        within: the open folder in which ``source`` is.

    Raises:
        OSError: as for :func:`take`.
    """
    with open_file(source, within=within) as opened:  # it may have been replaced meanwhile
        cloned = _clone(opened, target, mode)
        if cloned is not None:
            return cloned
        copy = NewFile(target, mode=mode)
        try:
            shutil.copyfileobj(opened, copy, _CHUNK_BYTES)
        finally:
            written = copy.close()
    return written


def put_back(source: Path, target: Path) -> None:
    """Replace ``target`` at once by a copy of ``source``, a file or a folder.

    A folder in its place is first moved aside; after a kill in between, the next attempt puts it
    back. Files get the modes of this user's files that they replace. If other users can write
    there, only what was there before is removed.

    Raises:
        OSError: the disk is full or gone, or a link of another user leads there; ``target`` is
            unchanged.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with opened_place(target.parent) as place:
        opened = f"/proc/self/fd/{place}"  # others may change the path meanwhile
        try:
            _put_back(source, Path(opened, target.name))
        except OSError as error:
            if isinstance(error.filename, str):
                error.filename = error.filename.replace(opened, str(target.parent), 1)
            raise


def _put_back(source: Path, target: Path) -> None:
    token = random_word()
    copy = target.with_name(f".hpcflow-{token}.tmp")
    old = target.with_name(f".hpcflow-{token}.old")
    before, modes = _status(target), _own_modes(target)
    if source.is_dir():
        with new_folder(copy) as opened:
            for below, path in files_below(source):
                (opened / below).parent.mkdir(parents=True, exist_ok=True)
                copy_file(path, opened / below, modes.get(target / below, _PRIVATE))
            sync_folders(opened)
            _give_modes(opened, {opened / each.relative_to(target): modes[each] for each in modes})
            _move_aside(target, old)
            rename_opened(copy, opened, target)
    else:
        try:
            copy_file(source, copy, modes.get(target, _PRIVATE))
            if target.is_dir():
                _move_aside(target, old)
            copy.replace(target)
        finally:
            with suppress(OSError):  # it may be a folder of another user
                copy.unlink()
    sync(target.parent)
    if before is not None:
        _remove_aside(old, before, source)


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        return None


def _remove_aside(old: Path, before: os.stat_result, source: Path) -> None:
    """Remove the folder or file that was moved aside, if it is the one from before the copy.

    If other users can write there, they may have moved any folder of this user there. So a folder
    with files that ``source`` lacks is kept.
    """
    with suppress(OSError):  # it is gone, another user's, or holds a link
        if not os.path.samestat(old.lstat(), before):
            return
        if not S_ISDIR(before.st_mode):
            old.unlink()
            return
        parent = old.parent.stat()
        is_shared = parent.st_mode & 0o022 or parent.st_uid != os.geteuid()
        with opened_folder(old) as opened:
            if not os.path.samestat(opened.stat(), before):
                return
            if is_shared and (more := sizes_below(opened).keys() - _names_in(source)):
                shown = f"{os.readlink(old.parent)}/{old.name}"  # noqa: PTH115 - Path has it since 3.9
                warn(f"{shown!r} has {min(more)!r}, which the checkpoint lacks: not removed")
                return
            remove_opened(old, opened)


def _names_in(source: Path) -> set[str]:
    return set(sizes_below(source)) if source.is_dir() else set()


def _own_modes(top: Path) -> dict[Path, int]:
    """Return the modes of this user's files and folders at and below ``top``, without links."""
    found = {}
    todo = [top]
    while todo:
        path = todo.pop()
        with suppress(OSError):  # it is gone, or cannot be read
            status = path.lstat()
            if status.st_uid == os.geteuid() and not S_ISLNK(status.st_mode):
                found[path] = S_IMODE(status.st_mode) & 0o777
                if S_ISDIR(status.st_mode):
                    todo += path.iterdir()
    return found


def _give_modes(top: Path, modes: Mapping[Path, int]) -> None:
    """Set these modes on the folders at and below the open folder ``top``; private ones by default.

    ``top`` is last, because others may then write in it.
    """
    for folder in reversed([top, *folders_below(top)]):
        with suppress(OSError):  # its file system has no modes
            folder.chmod(modes.get(folder, 0o700))


def _move_aside(path: Path, aside: Path) -> None:
    try:
        path.rename(aside)
    except FileNotFoundError:
        return


def _clone(source: BinaryIO, target: Path, mode: int) -> Written | None:
    """Clone a file copy-on-write, as XFS and Btrfs can (ioctl_ficlone(2)); None if unsupported."""
    with create(target, mode) as new:
        try:
            fcntl.ioctl(new.fileno(), _FICLONE, source.fileno())
        except OSError:
            target.unlink()
            return None
        os.fsync(new.fileno())
    return Written(target.stat().st_size, sha256_of(target))


def _link(place: int, source: Path, target: Path) -> Written | None:
    """Hard-link ``source`` into the run directory.

    Return None if the file system refuses, or if another user could still change the file.
    """
    folder, _, name = str(source).rpartition("/")
    at = open_below(place, folder) if folder else place
    try:
        os.link(name, str(target), src_dir_fd=at, follow_symlinks=False)
    except OSError:
        return None
    finally:
        if at != place:
            os.close(at)
    if other_writer(str(target), target.lstat()) is not None:
        target.unlink()
        return None
    sync(target)  # its writer may not have synced it
    return Written(target.stat().st_size, sha256_of(target))


class Maker:
    """Copies, publishes and reports a checkpoint, and removes old ones by the retention rule."""

    def __init__(
        self,
        job: Job,
        store: CheckpointStore,
        rule: AdoptRule,
        warn: WarnOnce,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._job = job
        self._store = store
        self._rule = rule
        self._warn = warn
        self._monotonic = monotonic
        self._events = EventLog(job.events)
        self._keeper = Keeper(job, self._events)
        self._not_before: dict[str, float] = {}
        self._changes: dict[str, int] = {}

    def make(self, foreign: Foreign, train_step: int | None, newest: int) -> int | None:
        """Adopt ``foreign``; return the train step of its checkpoint, or None after a failure.

        Args:
            train_step: its train step; None to count.
            newest: train step of the newest checkpoint; negative if there is none.
        """
        if self._monotonic() < self._not_before.get(foreign.name, 0.0):
            return None
        staged, number = None, train_step
        # Hard links take no space.
        size_bytes = 0 if self._rule.renamed else foreign.size_bytes
        try:
            require_no_successor(self._job)
            number = self._next_number() if train_step is None else train_step
            staged = self._store.stage(number, random_bits(62), size_bytes)
            made = self._make(foreign, number, staged, newest if train_step is None else None)
        except OSError as error:
            made = None
            self._has_failed(foreign, number, error)
        finally:
            if staged is not None:
                remove_tree(staged)  # gone if it was published
        return made

    def print_warnings(self) -> None:
        self._keeper.print_warnings()

    def _make(
        self, foreign: Foreign, number: int, staged: Path, maybe_same_as: int | None
    ) -> int | None:
        began = self._monotonic()
        name = f"{FOLDER}/{foreign.path.name}"
        files = take(foreign.path, staged, name, link=self._rule.renamed)
        if look(foreign.path, self._rule).state != foreign.state:
            self._has_changed(foreign)
            return None
        self._changes.pop(foreign.name, None)
        if maybe_same_as is not None and self._are_those_of(maybe_same_as, files):
            return maybe_same_as
        made = self._store.publish(
            staged,
            number,
            files,
            lambda: require_no_successor(self._job),
            metrics={},
            run_id=self._job.run_id,
            attempt=self._job.attempt,
            adopted={"name": foreign.name, "changed_ns": foreign.changed_ns},
        )
        self._events.append(
            "checkpoint",
            train_step=number,
            path=self._job.relative(made.path),
            size_bytes=made.size_bytes,
            write_s=round(self._monotonic() - began, 3),
        )
        self._keeper.tidy(number)
        return number

    def _next_number(self) -> int:
        """Return one more than the train step of any checkpoint, including those set aside."""
        if not self._store.folder.exists():
            return 1
        steps = named(self._store.folder)[-1:]
        steps += [int(name.split(".")[1]) for name in names_in(self._store.folder, _BROKEN)]
        return max(steps, default=0) + 1

    def _are_those_of(self, train_step: int, files: dict[str, Written]) -> bool:
        try:
            entries = read_manifest(self._store.path(train_step)).get("files")
        except CheckpointError:
            return False
        return entries == {name: asdict(written) for name, written in files.items()}

    def _has_changed(self, foreign: Foreign) -> None:
        count = self._changes[foreign.name] = self._changes.get(foreign.name, 0) + 1
        if count == _MANY_CHANGES:
            self._warn(
                f"{foreign.name!r} was changed {count} times while it was copied; let the program "
                "save less often"
            )

    def _has_failed(self, foreign: Foreign, number: int | None, error: OSError) -> None:
        if isinstance(error, FileNotFoundError) and not foreign.path.exists():
            return  # the program has removed it
        self._not_before[foreign.name] = self._monotonic() + _PAUSE_S
        is_new = self._warn(f"{foreign.name!r} is not adopted, the training continues: {error}")
        if is_new and number is not None:
            self._events.append("checkpoint_failed", train_step=number, why=str(error))
