"""Copy checkpoints of the program with their checksums, and put them back."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from stat import S_IMODE, S_ISDIR, S_ISLNK, S_ISREG
from typing import BinaryIO

from hpcflow.runtime.adoption.foreign import statuses_in
from hpcflow.runtime.checksum import sha256_of
from hpcflow.runtime.creators import other_writer
from hpcflow.runtime.files import (
    NewFile,
    Written,
    create,
    files_below,
    folders_below,
    new_folder,
    opened_folder,
    random_word,
    remove_opened,
    rename_opened,
    sizes_below,
    sync,
    sync_folders,
)
from hpcflow.runtime.reading import open_below, open_file, opened_place
from hpcflow.runtime.warn import warn

_CHUNK_BYTES = 1 << 20
#: Mode of a file only for its owner.
_PRIVATE = 0o600
#: From linux/fs.h; POWER has another number, and rejects this one.
_FICLONE = 0x40049409


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
