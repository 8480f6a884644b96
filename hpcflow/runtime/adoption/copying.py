"""Copying what the program has written, checksums and all, and putting it back."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from hpcflow.runtime.checksum import sha256_of
from hpcflow.runtime.files import (
    NewFile,
    Written,
    files_below,
    remove_tree,
    sync,
    sync_folders,
)
from hpcflow.runtime.reading import open_file

_CHUNK_BYTES = 1 << 20
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


def copy_file(source: Path, target: Path) -> Written:
    """Copy one file to a new one, on disk when this returns.

    Raises:
        OSError: as for :func:`take`.
    """
    with open_file(source) as opened:  # it may have been replaced since it was looked at
        cloned = _clone(opened, target)
        if cloned is not None:
            return cloned
        copy = NewFile(target)
        try:
            shutil.copyfileobj(opened, copy, _CHUNK_BYTES)
        finally:
            written = copy.close()
    return written


def put_back(source: Path, target: Path) -> None:
    """Make ``target`` a copy of ``source``, a file or a folder, all at once.

    A folder in its place is moved aside first; killed in between, the next attempt puts it back.

    Raises:
        OSError: the disk is full or gone; ``target`` is as it was.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(8)
    copy = target.with_name(f".hpcflow-{token}.tmp")
    old = target.with_name(f".hpcflow-{token}.old")
    try:
        if source.is_dir():
            copy.mkdir()
            for below, path in files_below(source):
                (copy / below).parent.mkdir(parents=True, exist_ok=True)
                copy_file(path, copy / below)
            sync_folders(copy)
        else:
            copy_file(source, copy)
        _give_modes_of(target, copy)
        if target.is_dir() or copy.is_dir():
            _move_aside(target, old)
        copy.replace(target)
    finally:
        copy.unlink() if copy.is_file() else remove_tree(copy)
    sync(target.parent)
    old.unlink() if old.is_file() else remove_tree(old)


def _give_modes_of(old: Path, new: Path) -> None:
    """A user who could read what is replaced can read what replaces it."""
    for path in reversed([new, *new.rglob("*")]):  # a folder after what is in it
        with suppress(OSError):  # it is gone, or its file system has no modes
            shutil.copymode(str(old / path.relative_to(new)), str(path))


def _move_aside(path: Path, aside: Path) -> None:
    try:
        path.rename(aside)
    except FileNotFoundError:
        return


def _clone(source: BinaryIO, target: Path) -> Written | None:
    """The same blocks under another name, until one of both is written to; None: not here.

    XFS and Btrfs do that; see ioctl_ficlone(2).
    """
    with target.open("xb") as new:
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
