"""The files of shards: ``rank-00000.shards``, the bytes of tensors, and ``shards.json``, the index.

::

    {"format": 1, "tensors": [
     {"place": ["model", "wte.weight"], "dtype": "float32", "shape": [256, 64],
      "pieces": [[[0, 0], [128, 64], 0, 0], [[128, 0], [128, 64], 1, 0]]},
     …]}

A piece is a box of the tensor: its offset in the tensor, its shape, the rank whose file has it, and
its first byte there, a multiple of 64. Its numbers are in row-major order, little-endian. ``place``
is the name of the object, then the keys in its state. Every value of an index is checked before
use.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

from hpcflow.runtime.files import NewFile, Written
from hpcflow.runtime.manifest import CheckpointError
from hpcflow.runtime.objects import Create, read_json
from hpcflow.runtime.shard_plan import ALIGNMENT_BYTES, Share, shard_file
from hpcflow.runtime.stored import Piece, StoredTensor
from hpcflow.runtime.tensor_tree import Place

INDEX = "shards.json"
_FORMAT = 1


@dataclass(frozen=True)
class ShardsPart:
    """This rank's shards; ``tensors`` returns them as they were captured."""

    name: str
    tensors: Callable[[], dict[Place, Any]]
    share: Share

    def write(self, folder: Path, create: Create) -> dict[str, Written]:
        tensors = self.tensors()
        file = create(folder / self.name)
        end = 0
        try:
            for place, begin in self.share.begins:
                end += file.write(bytes(begin - end))
                end += _write(file, tensors[place])
        finally:
            written = file.close()
        return {self.name: written}


@dataclass(frozen=True)
class IndexPart:
    """The index of the shards of all ranks: a line for each tensor."""

    share: Share

    def write(self, folder: Path, create: Create) -> dict[str, Written]:
        lines = ",\n ".join(json.dumps(entry) for entry in self.share.index or ())
        file = create(folder / INDEX)
        file.write(f'{{"format": {_FORMAT}, "tensors": [\n {lines}]}}'.encode())
        return {INDEX: file.close()}


def read_index(folder: Path) -> dict[Place, StoredTensor]:
    """Return the sharded tensors of a checkpoint by their places.

    Raises:
        CheckpointError: the index is invalid.
    """
    path = folder / INDEX
    if not path.exists():
        return {}
    files: dict[str, Any] = {}
    try:
        index = read_json(path)
        if index["format"] != _FORMAT:
            raise ValueError(
                f"it has format {index['format']!r}; this version of hpcflow reads {_FORMAT}"
            )
        return {tuple(entry["place"]): _tensor(folder, entry, files) for entry in index["tensors"]}
    except (AttributeError, KeyError, TypeError, ValueError, OSError, RecursionError) as error:
        raise CheckpointError(f"{path} is invalid: {error!r}") from error


def _tensor(folder: Path, entry: Any, files: dict[str, Any]) -> StoredTensor:
    import torch

    dtype = getattr(torch, entry["dtype"])
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{entry['dtype']!r} is not a dtype of torch")
    shape = _sizes(entry["shape"])
    pieces = [_piece(folder, piece, dtype, shape, files) for piece in entry["pieces"]]
    if sum(prod(piece.shape) for piece in pieces) != prod(shape):
        raise ValueError(f"the pieces of {entry['place']!r} do not make up its shape {shape}")
    return StoredTensor(dtype, shape, pieces)


def _piece(
    folder: Path, entry: Any, dtype: Any, whole: tuple[int, ...], files: dict[str, Any]
) -> Piece:
    offsets, shape, (rank, begin) = _sizes(entry[0]), _sizes(entry[1]), _sizes(entry[2:])
    name, size_bytes = shard_file(rank), prod(shape) * dtype.itemsize
    if not len(offsets) == len(shape) == len(whole) or any(
        offset + size > limit
        for offset, size, limit in zip(offsets, shape, whole)  # noqa: B905 - strict= came with 3.10
    ):
        raise ValueError(f"a piece of {shape} at {offsets} is not inside {whole}")
    if begin % ALIGNMENT_BYTES:
        raise ValueError(f"a piece begins at byte {begin}, which is not aligned")
    if begin + size_bytes > (folder / name).stat().st_size:
        raise ValueError(f"{name} is too short")
    return Piece(offsets, shape, partial(_read, folder / name, begin, dtype, shape, files))


def _sizes(values: Any) -> tuple[int, ...]:
    if not all(type(value) is int and value >= 0 for value in values):
        raise ValueError(f"{values!r} are not sizes")
    return tuple(values)


def _read(path: Path, begin: int, dtype: Any, shape: tuple[int, ...], files: dict[str, Any]) -> Any:
    """Map the tensor that begins at byte ``begin``; the disk is read when it is used."""
    import torch

    if path.name not in files:
        size_bytes = path.stat().st_size
        mapped = torch.from_file(str(path), shared=False, size=size_bytes, dtype=torch.uint8)
        files[path.name] = mapped
    end = begin + prod(shape) * dtype.itemsize
    return files[path.name][begin:end].view(dtype).view(shape)


def _write(file: NewFile, tensor: Any) -> int:
    """Write the numbers of ``tensor``; return their size in bytes."""
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    size_bytes = plain.numel() * plain.element_size()
    # Without NumPy, which may be missing, and has no bfloat16.
    return file.write(memoryview((ctypes.c_ubyte * size_bytes).from_address(plain.data_ptr())))
