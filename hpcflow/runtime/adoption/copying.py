"""Copying what the program has written, checksums and all, and putting it back."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from stat import S_IMODE, S_ISDIR, S_ISLNK
from typing import BinaryIO

from hpcflow.runtime.checksum import sha256_of
from hpcflow.runtime.files import (
    NewFile,
    Written,
    create,
    files_below,
    remove_tree,
    sync,
    sync_folders,
)
from hpcflow.runtime.reading import open_file

_CHUNK_BYTES = 1 << 20
#: Of what is for its owner only.
_PRIVATE = 0o600
#: From linux/fs.h; POWER has another number, and refuses this one.
_FICLONE = 0x40049409


def take(source: Path, staged: Path, name: str, *, link: bool) -> dict[str, Written]:
    """Copy ``source``, a file or a folder, to ``staged / name``; its files by their names there.

    Args:
        link: where the file system is the same, give the files a second name instead: for what is
            never written to again.

    Raises:
        OSError: it went away, holds a link, or the disk is full; what is there is of no use.
    """
    files = files_below(source) if source.is_dir() else [("", source)]
    taken = {}
    for below, path in files:
        full = f"{name}/{below}" if below else name
        target = staged / full
        target.parent.mkdir(parents=True, exist_ok=True)
        taken[full] = (_link(path, target) if link else None) or copy_file(path, target)
    return taken


def copy_file(source: Path, target: Path, mode: int = _PRIVATE) -> Written:
    """Copy one file to a new one with this mode, on disk when this returns.

    Raises:
        OSError: as for :func:`take`.
    """
    with open_file(source) as opened:  # it may have been replaced since it was looked at
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
    """Make ``target`` a copy of ``source``, a file or a folder, all at once.

    A folder in its place is moved aside first; killed in between, the next attempt puts it back.
    A user who could read what is replaced can read what replaces it; what other users put there
    says nothing of that.

    Raises:
        OSError: the disk is full or gone; ``target`` is as it was.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(8)
    copy = target.with_name(f".hpcflow-{token}.tmp")
    old = target.with_name(f".hpcflow-{token}.old")
    modes = _own_modes(target)
    try:
        if source.is_dir():
            copy.mkdir(0o700)
            for below, path in files_below(source):
                (copy / below).parent.mkdir(parents=True, exist_ok=True)
                copy_file(path, copy / below, modes.get(target / below, _PRIVATE))
            sync_folders(copy)
            _give_modes(copy, {copy / each.relative_to(target): modes[each] for each in modes})
        else:
            copy_file(source, copy, modes.get(target, _PRIVATE))
        if target.is_dir() or copy.is_dir():
            _move_aside(target, old)
        copy.replace(target)
    finally:
        copy.unlink() if copy.is_file() else remove_tree(copy)
    sync(target.parent)
    old.unlink() if old.is_file() else remove_tree(old)


def _own_modes(top: Path) -> dict[Path, int]:
    """The modes of all that is this user's at and below ``top``, links left out."""
    found = {}
    todo = [top]
    while todo:
        path = todo.pop()
        with suppress(OSError):  # it is gone, or may not be read
            status = path.lstat()
            if status.st_uid == os.geteuid() and not S_ISLNK(status.st_mode):
                found[path] = S_IMODE(status.st_mode) & 0o777
                if S_ISDIR(status.st_mode):
                    todo += path.iterdir()
    return found


def _give_modes(top: Path, modes: Mapping[Path, int]) -> None:
    """Give the folders at and below ``top`` these modes, else private ones; by descriptors, for
    others may rename them."""
    for folder in reversed([top, *(path for path in top.rglob("*") if path.is_dir())]):
        with suppress(OSError):  # its file system has no modes; or it is a link by now
            descriptor = os.open(str(folder), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(descriptor).st_uid == os.geteuid():
                    os.fchmod(descriptor, modes.get(folder, 0o700))
            finally:
                os.close(descriptor)


def _move_aside(path: Path, aside: Path) -> None:
    try:
        path.rename(aside)
    except FileNotFoundError:
        return


def _clone(source: BinaryIO, target: Path, mode: int) -> Written | None:
    """The same blocks under another name, until one of both is written to; None: not here.

    XFS and Btrfs do that; see ioctl_ficlone(2).
    """
    with create(target, mode) as new:
        try:
            fcntl.ioctl(new.fileno(), _FICLONE, source.fileno())
        except OSError:
            target.unlink()
            return None
        os.fsync(new.fileno())
    return Written(target.stat().st_size, sha256_of(target))


def _link(source: Path, target: Path) -> Written | None:
    """A second name for ``source``; None where the file system gives none."""
    try:
        os.link(str(source), str(target), follow_symlinks=False)
    except OSError:
        return None
    sync(target)  # its writer need not have done that
    return Written(target.stat().st_size, sha256_of(target))
