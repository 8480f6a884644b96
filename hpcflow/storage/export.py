"""Copy a checkpoint to a new directory, and compare it with its manifest.

A :class:`Source` is a folder or a store. The copy has the manifest, so ``verify`` accepts it.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from hpcflow.errors import InputError, StorageError, shell_word
from hpcflow.runtime.files import (
    NewFile,
    Written,
    new_folder,
    rename_opened,
    sync_folders,
    write_new,
)
from hpcflow.runtime.manifest import NAME, CheckpointError, parse_manifest, parts_of
from hpcflow.runtime.reading import open_file, read_file
from hpcflow.storage.disk_errors import storage_error
from hpcflow.storage.files import FILE_MODE, fsync_folder

_CHUNK_BYTES: Final = 1 << 20


class Source(Protocol):
    """The place that holds a checkpoint. Its methods raise ``OSError`` if they cannot read."""

    @property
    def name(self) -> str:
        """Return its name for error messages."""
        ...

    def manifest(self) -> bytes: ...

    def open(self, name: str) -> BinaryIO:
        """Open a file (``a/b.pt``) to be read once, from beginning to end."""
        ...


@dataclass(frozen=True)
class FolderSource:
    """A checkpoint on a disk."""

    folder: Path

    @property
    def name(self) -> str:
        return str(self.folder)

    def manifest(self) -> bytes:
        return read_file(self.folder / NAME)

    def open(self, name: str) -> BinaryIO:
        path = self.folder
        for part in name.split("/"):
            path = path / part
            if path.is_symlink():
                raise OSError(f"{name} is a link")
        return open_file(path)


def export(
    source: Source, target: Path, tell: Callable[[int], object] = lambda _: None
) -> dict[str, Written]:
    """Copy ``source`` to the new folder ``target``, verified and synced, or copy nothing.

    Only its owner can read the copy. A killed export leaves ``.<name>.<random>.tmp`` beside
    ``target``.

    Args:
        tell: called with the size in bytes of each copied chunk, to show the progress.

    Returns:
        File name -> size and checksum.

    Raises:
        InputError: ``target`` exists, or its folder does not.
        StorageError: the source is damaged, or the disk is full.
    """
    target = Path(os.path.abspath(target))  # noqa: PTH100 - links in the name stay
    if os.path.lexists(target):
        raise InputError(
            f"{target} exists, and is not overwritten",
            next_action="name a new folder below an existing one",
        )
    if not target.parent.is_dir():
        raise InputError(
            f"cannot make {target.name}: no folder {target.parent}",
            next_action=f"make it: mkdir -p {shell_word(target.parent)}",
        )
    half = target.parent / f".{target.name}.{secrets.token_hex(8)}.tmp"
    umask = os.umask(0o077)  # private, as in the run directory
    try:
        with new_folder(half) as opened:
            copied = _copy(source, opened, tell)
            sync_folders(opened)
            rename_opened(half, opened, target)
        fsync_folder(target.parent)
    except OSError as error:
        raise storage_error("write", target, error) from error
    finally:
        os.umask(umask)
    return copied


def _copy(source: Source, half: Path, tell: Callable[[int], object]) -> dict[str, Written]:
    try:
        manifest = source.manifest()
    except OSError as error:
        raise _damaged(source, f"its {NAME} cannot be read: {error}") from error
    copied = {}
    for name, wanted in _files(source, manifest).items():
        path = half.joinpath(*parts_of(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        copied[name] = _copy_file(source, name, wanted, path, tell)
    write_new(half / NAME, manifest)  # last: a folder without a manifest is not a checkpoint
    return copied


def _files(source: Source, manifest: bytes) -> dict[str, Written]:
    """Return file name -> size and checksum, from the manifest."""
    try:
        files = {}
        for name, entry in parse_manifest(manifest)["files"].items():
            parts_of(name)
            files[name] = Written(int(entry["size_bytes"]), str(entry["sha256"]))
    except CheckpointError as error:
        raise _damaged(source, str(error)) from None
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        raise _damaged(source, f"its {NAME} is damaged") from None
    return files


def _copy_file(
    source: Source, name: str, wanted: Written, path: Path, tell: Callable[[int], object]
) -> Written:
    copy, unreadable = NewFile(path, like=wanted.sha256, mode=FILE_MODE), None
    try:
        with source.open(name) as file:
            left = wanted.size_bytes + 1  # one more, to notice a file that is too long
            while left and (chunk := file.read(min(_CHUNK_BYTES, left))):
                copy.write(chunk)
                left -= len(chunk)
                tell(len(chunk))
    except OSError as error:
        unreadable = error
    finally:
        written = copy.close()  # raises the errors of the writes
    if unreadable is not None:
        raise _damaged(source, f"{name} cannot be read: {unreadable}") from unreadable
    if written != wanted:
        what = "its checksum differs"
        if written.size_bytes != wanted.size_bytes:
            what = f"its size is not {wanted.size_bytes} bytes"
        raise _damaged(source, f"{name} is not what was written: {what}")
    return written


def _damaged(source: Source, why: str) -> StorageError:
    return StorageError(
        f"{source.name} is damaged or incomplete, and was not copied: {why}",
        next_action="choose another checkpoint: hpcflow checkpoint ls",
    )
