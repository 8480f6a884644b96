"""Copy a checkpoint to a directory of its own, and compare it with its manifest on the way.

Where it comes from is a :class:`Source`: a folder here, or whatever else can name files and read
them. The copy is a whole checkpoint: it has the manifest, and ``verify`` takes it.
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
from hpcflow.storage.files import FILE_MODE, fsync_folder, storage_error

_CHUNK_BYTES: Final = 1 << 20


class Source(Protocol):
    """Where a checkpoint is read from. What cannot be read raises ``OSError``."""

    @property
    def name(self) -> str:
        """What to call it in an error."""
        ...

    def manifest(self) -> bytes:
        """What ``manifest.json`` holds."""
        ...

    def open(self, name: str) -> BinaryIO:
        """The file of this name (``a/b.pt``), to be read once from its beginning to its end."""
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
    """Copy ``source`` to the new folder ``target``: wholly, verified, on the disk; or not at all.

    Nobody but its owner may read it. Killed meanwhile, it leaves a hidden
    ``.<name>.<random>.tmp`` beside ``target``.

    Args:
        tell: told of every so many bytes that were copied, to show how far it is.

    Returns:
        The files, by their names.

    Raises:
        InputError: ``target`` exists, or its folder does not.
        StorageError: it is not whole at its source, or the disk is full.
    """
    target = Path(os.path.abspath(target))  # noqa: PTH100 - the name that was given, links and all
    if os.path.lexists(target):
        raise InputError(
            f"{target} exists, and is not overwritten",
            next_action="name a folder that does not exist yet, in one that does",
        )
    if not target.parent.is_dir():
        raise InputError(
            f"there is no folder {target.parent} to make {target.name} in",
            next_action=f"make it: mkdir -p {shell_word(target.parent)}",
        )
    half = target.parent / f".{target.name}.{secrets.token_hex(8)}.tmp"
    umask = os.umask(0o077)  # as in the run directory: for its owner alone
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
    write_new(half / NAME, manifest)  # last: without it nobody takes the folder for a checkpoint
    return copied


def _files(source: Source, manifest: bytes) -> dict[str, Written]:
    """What the manifest says of each file."""
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
            left = wanted.size_bytes + 1  # one more byte than there should be is one too many
            while left and (chunk := file.read(min(_CHUNK_BYTES, left))):
                copy.write(chunk)
                left -= len(chunk)
                tell(len(chunk))
    except OSError as error:
        unreadable = error
    finally:
        written = copy.close()  # raises what the disk had to say while it was written
    if unreadable is not None:
        raise _damaged(source, f"{name} cannot be read: {unreadable}") from unreadable
    if written != wanted:
        what = "its checksum differs"
        if written.size_bytes != wanted.size_bytes:
            what = f"it has not {wanted.size_bytes} bytes"
        raise _damaged(source, f"{name} is not what was written: {what}")
    return written


def _damaged(source: Source, why: str) -> StorageError:
    return StorageError(
        f"{source.name} is not whole, and was not copied: {why}",
        next_action="take another one: hpcflow checkpoint ls",
    )
