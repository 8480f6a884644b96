"""The shards on disk: ``rank-00000.shards``, bytes of tensors, and ``shards.json``, what they are.

::

    {"format": 1, "tensors": [
     {"place": ["model", "wte.weight"], "dtype": "float32", "shape": [256, 64],
      "pieces": [[[0, 0], [128, 64], 0, 0], [[128, 0], [128, 64], 1, 0]]},
     …]}

A piece is a box of the tensor: where it begins in it, its shape, the rank whose file it is in, and
the byte there that it begins at, a multiple of 64. Its numbers follow each other by rows,
little-endian, with nothing around them. ``place`` is the name of the object, then the keys in its
state. Nothing in an index is believed before it was checked.
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
    """This rank's shards; ``tensors`` gives them, as they were when they were captured."""

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
    """What says where the shards of all ranks are: a line for each tensor."""

    share: Share

    def write(self, folder: Path, create: Create) -> dict[str, Written]:
        lines = ",\n ".join(json.dumps(entry) for entry in self.share.index or ())
        file = create(folder / INDEX)
        file.write(f'{{"format": {_FORMAT}, "tensors": [\n {lines}]}}'.encode())
        return {INDEX: file.close()}


def read_index(folder: Path) -> dict[Place, StoredTensor]:
    """The tensors of a checkpoint by their places; empty where it has no shards.

    Raises:
        CheckpointError: the index makes no sense.
    """
    path = folder / INDEX
    if not path.exists():
        return {}
    files: dict[str, Any] = {}
    try:
        index = read_json(path)
        if index["format"] != _FORMAT:
            raise ValueError(f"it has format {index['format']!r}, this reads {_FORMAT}")
        return {tuple(entry["place"]): _tensor(folder, entry, files) for entry in index["tensors"]}
    except (AttributeError, KeyError, TypeError, ValueError, OSError, RecursionError) as error:
        raise CheckpointError(f"{path} makes no sense: {error!r}") from error


def _tensor(folder: Path, entry: Any, files: dict[str, Any]) -> StoredTensor:
    import torch

    dtype = getattr(torch, entry["dtype"])
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{entry['dtype']!r} is no type of numbers")
    shape = _sizes(entry["shape"])
    pieces = [_piece(folder, piece, dtype, shape, files) for piece in entry["pieces"]]
    if sum(prod(piece.shape) for piece in pieces) != prod(shape):
        raise ValueError(f"{entry['place']!r} has pieces that are not all of {shape}")
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
        raise ValueError(f"a piece of {shape} at {offsets} is not inside of {whole}")
    if begin % ALIGNMENT_BYTES:
        raise ValueError(f"{begin} is not where a piece begins")
    if begin + size_bytes > (folder / name).stat().st_size:
        raise ValueError(f"{name} is too short")
    return Piece(offsets, shape, partial(_read, folder / name, begin, dtype, shape, files))


def _sizes(values: Any) -> tuple[int, ...]:
    if not all(type(value) is int and value >= 0 for value in values):
        raise ValueError(f"{values!r} are no sizes")
    return tuple(values)


def _read(path: Path, begin: int, dtype: Any, shape: tuple[int, ...], files: dict[str, Any]) -> Any:
    """The tensor that begins there; it is read from the disk where it is used."""
    import torch

    if path.name not in files:
        size_bytes = path.stat().st_size
        mapped = torch.from_file(str(path), shared=False, size=size_bytes, dtype=torch.uint8)
        files[path.name] = mapped
    end = begin + prod(shape) * dtype.itemsize
    return files[path.name][begin:end].view(dtype).view(shape)


def _write(file: NewFile, tensor: Any) -> int:
    """Write the numbers of ``tensor``; returns how many bytes they are."""
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    size_bytes = plain.numel() * plain.element_size()
    # No numpy, which may be missing, and would not know bfloat16.
    return file.write(memoryview((ctypes.c_ubyte * size_bytes).from_address(plain.data_ptr())))
