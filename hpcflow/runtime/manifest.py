"""``manifest.json``: it makes a folder of files a complete checkpoint, and has their checksums.

::

    {"format": 1, "train_step": 400, "epoch": 2.5, "world_size": 2, "run_id": …, "attempt": 1,
     "created_at": "2026-01-01T00:00:00.000Z", "metrics": {"loss": 0.3},
     "files": {"model.pt": {"size_bytes": 9000, "sha256": "…"}, …},
     "sha256": "…"}

The last key is the checksum of all others, as JSON with sorted keys, without blanks, in ASCII.
Manifests of older versions have no such key, and are still read.

A manifest comes from a shared disk: every value is checked before use.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcflow.runtime.checksum import PIECE_BYTES, Each, is_of_pieces, sha256_of
from hpcflow.runtime.events import now_text
from hpcflow.runtime.files import Written, write_new
from hpcflow.runtime.reading import (
    MAX_JSON_BYTES,
    JsonError,
    UnsafeFileError,
    parse_json,
    read_file,
    require_safe_status,
)

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

NAME = "manifest.json"
FORMAT = 1

#: No manifest of 16 MiB by hpcflow has more; a million parsed keys take hundreds of megabytes.
_MOST_KEYS = 500_000

#: Files read at once; a run starts only when its newest checkpoint has been read.
_READERS = 4
_SMALL_BYTES = 1 << 20

_CHECKSUM = "sha256"
_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
_OF_RANK = re.compile(r"\brank-(\d{1,9})\.", re.ASCII)


class CheckpointError(Exception):
    """A checkpoint could not be made, or is incomplete or damaged; the text says why."""


class NotThere(CheckpointError):
    """There is no manifest: the checkpoint was never complete, or is not visible on this node."""


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint: the state after train step ``train_step``."""

    path: Path
    train_step: int
    size_bytes: int
    epoch: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    created_at: str | None = None


class DamagedError(CheckpointError):
    """All files are readable and have the right sizes, but the checksum of one differs."""


def write_manifest(folder: Path, files: Mapping[str, Written], **facts: Any) -> int:
    """Write a new manifest for ``files`` into ``folder``; return their total size in bytes.

    Raises:
        OSError: the disk is full or gone, or there are too many files.
    """
    entries = {name: asdict(files[name]) for name in sorted(files)}
    manifest = {"format": FORMAT, **facts, "created_at": now_text(), "files": entries}
    data = manifest_bytes(manifest)
    if len(data) > MAX_JSON_BYTES:  # readers would reject it
        raise OSError(f"{len(files)} files are too many for a checkpoint: pack them into fewer")
    write_new(folder / NAME, data)
    return sum(file.size_bytes for file in files.values())


def manifest_bytes(manifest: Mapping[str, Any]) -> bytes:
    """Return the bytes of a manifest file, with its checksum."""
    rest = {key: value for key, value in manifest.items() if key != _CHECKSUM}
    return json.dumps({**rest, _CHECKSUM: _checksum_of(rest)}, indent=1).encode()


@dataclass(frozen=True)
class Share:
    """The files that rank ``rank`` of ``world_size`` verifies.

    Each rank verifies its own files: it loads them next, and then they are in the page cache.

    Attributes:
        sizes_only: compare only sizes, and read no file.
    """

    rank: int = 0
    world_size: int = 1
    sizes_only: bool = False

    def has(self, number: int, name: str) -> bool:
        """Return whether the share has file ``name``, number ``number`` of the manifest."""
        own = _OF_RANK.search(name)
        return (int(own.group(1)) if own else number) % self.world_size == self.rank


ALL, NOTHING = Share(), Share(-1)


def verify(folder: Path, share: Share = ALL) -> Checkpoint:
    """Verify the files of the checkpoint in ``folder``, and return the checkpoint.

    Args:
        share: the files to verify, and how.

    Raises:
        CheckpointError: the checkpoint is incomplete or damaged; the text says why.
    """
    manifest = read_manifest(folder)
    train_step, files = manifest.get("train_step"), manifest.get("files")
    if not isinstance(train_step, int) or train_step < 0 or not isinstance(files, dict):
        raise CheckpointError("its manifest lacks train_step or files")
    size_bytes, share_of = 0, []
    for number, (name, entry) in enumerate(files.items()):
        if not isinstance(entry, dict) or not isinstance(entry.get("size_bytes"), int):
            raise CheckpointError(f"its manifest has no size for {name!r}")
        if share.has(number, name):
            share_of.append((name, entry))
        size_bytes += entry["size_bytes"]
    # Hashing releases the GIL, but for small files threads would only contend for it.
    _check_files(folder, share_of, share, at_once=size_bytes > len(files) * _SMALL_BYTES)
    created_at = manifest.get("created_at")
    return Checkpoint(
        path=folder,
        train_step=train_step,
        size_bytes=size_bytes,
        epoch=finite({"epoch": manifest.get("epoch")}).get("epoch"),
        metrics=metrics_of(manifest),
        created_at=created_at if isinstance(created_at, str) else None,
    )


def metrics_of(manifest: Mapping[str, Any]) -> dict[str, float]:
    metrics = manifest.get("metrics")
    return finite(metrics) if isinstance(metrics, dict) else {}


def finite(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return those of ``metrics`` that are finite numbers."""
    return {str(name): float(value) for name, value in metrics.items() if _is_finite(value)}


def _is_finite(value: object) -> bool:
    try:
        return isinstance(value, (int, float)) and math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False


def read_manifest(folder: Path | str) -> dict[str, Any]:
    """Return the manifest of ``folder``, without a check of the files that it names.

    Raises:
        NotThere: there is none.
        CheckpointError: ``folder`` is a link, which hpcflow never publishes; or the manifest
            cannot be read; or as :func:`parse_manifest`.
    """
    if os.path.islink(folder):  # noqa: PTH114 - called thousands of times; text is faster
        raise CheckpointError("it is a link")
    try:
        data = read_file(f"{folder}/{NAME}", MAX_JSON_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        raise NotThere(f"it has no {NAME}, so it was never complete") from None
    except UnsafeFileError as error:  # a lasting error: do not retry
        raise CheckpointError(f"its {NAME} cannot be used: {error.strerror}") from None
    except OSError as error:
        raise CheckpointError(f"its {NAME} cannot be read: {error}") from error
    return parse_manifest(data)


def parse_manifest(data: bytes) -> dict[str, Any]:
    """Parse a manifest, and compare it with its checksum if it has one. Types are not checked.

    Raises:
        CheckpointError: not a manifest, a checksum that differs, or another format.
    """
    if data.count(b'":') > _MOST_KEYS:
        raise CheckpointError(
            f"its {NAME} has more than {_MOST_KEYS:,} keys, and hpcflow writes fewer"
        )
    try:
        manifest = parse_json(data)
        checksum = manifest.pop(_CHECKSUM, None) if isinstance(manifest, dict) else None
        is_as_written = checksum is None or checksum == _checksum_of(manifest)
    except (JsonError, ValueError, RecursionError) as error:
        raise CheckpointError(f"its {NAME} cannot be read: {error}") from None
    if not isinstance(manifest, dict):
        raise CheckpointError(f"its {NAME} is not a JSON object")
    if manifest.get("format") != FORMAT:
        raise CheckpointError(
            f"it has format {manifest.get('format')!r}; this version of hpcflow reads {FORMAT}"
        )
    if not is_as_written:
        raise CheckpointError(f"its {NAME} is not what was written: its checksum differs")
    return manifest


def _checksum_of(rest: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical(rest).encode()).hexdigest()


def parts_of(name: str) -> list[str]:
    """Split the file name ``name`` of a manifest into its folders and its file.

    Raises:
        CheckpointError: the name is invalid, or leads out of the checkpoint.
    """
    parts = name.split("/")
    if "" in parts or "." in parts or ".." in parts or "\0" in name:
        raise CheckpointError(f"its manifest names a file outside of it: {name!r}")
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        raise CheckpointError(f"its manifest has an invalid file name: {name!r}") from None
    return parts


def _check_files(
    folder: Path, files: list[tuple[str, dict[str, Any]]], share: Share, *, at_once: bool
) -> None:
    """Check several files at once; of a file of many pieces, read several pieces at once."""
    # Imported here: most processes of a job verify nothing, and the import is slow.
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_READERS) as readers:
        each: Each = _ByReaders(readers) if at_once else map
        for _ in each(lambda file: _check_shape(folder, *file), files):
            pass
        if share.sizes_only:
            return
        few = [file for file in files if _is_read_by_one(file)]
        for _ in each(lambda file: _check_bytes(folder, *file), few):
            pass
        for name, entry in files:
            if not _is_read_by_one((name, entry)):
                _check_bytes(folder, name, entry, each)


def _is_read_by_one(file: tuple[str, dict[str, Any]]) -> bool:
    """Return whether one thread reads the file: it has few pieces, or none in older manifests."""
    checksum = file[1].get("sha256")
    return file[1]["size_bytes"] <= _READERS * PIECE_BYTES or not is_of_pieces(checksum)


class _ByReaders:
    """``map``, by several threads; by the calling thread if no other can be started."""

    def __init__(self, readers: ThreadPoolExecutor) -> None:
        self._readers = readers

    def __call__(self, do: Callable[[Any], Any], items: Iterable[Any]) -> Iterable[Any]:
        with suppress(RuntimeError):
            return self._readers.map(do, items)
        return map(do, items)


def _check_shape(folder: Path, name: str, entry: dict[str, Any]) -> None:
    path = str(folder)
    try:
        for part in parts_of(name):
            path = f"{path}/{part}"
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                raise CheckpointError(f"{name} is a link")
        require_safe_status(status, path)
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointError(f"{name} is missing") from None
    except UnsafeFileError as error:
        raise CheckpointError(f"{name} cannot be used: {error.strerror}") from None
    except OSError as error:
        raise CheckpointError(f"{name} cannot be read: {error}") from error
    if status.st_size != entry.get("size_bytes"):
        raise CheckpointError(
            f"{name} has {status.st_size} bytes, not {entry.get('size_bytes')}: it is torn"
        )


def _check_bytes(folder: Path, name: str, entry: dict[str, Any], each: Each = map) -> None:
    checksum = entry.get("sha256")
    try:
        found = sha256_of(folder / name, checksum, each)
    except UnsafeFileError as error:  # it changed after the size check
        raise CheckpointError(f"{name} cannot be used: {error.strerror}") from None
    except OSError as error:
        raise CheckpointError(f"{name} cannot be read: {error}") from error
    if found != checksum:
        raise DamagedError(f"{name} is not what was written: its checksum differs")
