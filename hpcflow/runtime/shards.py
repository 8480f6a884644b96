"""Sharded state: which rank writes what, the files, and how any number of ranks reads them.

``rank-00000.shards`` has the bytes of tensors, in row-major order, little-endian; ``shards.json``,
the index, has their pieces::

    {"format": 1, "tensors": [
     {"place": ["model", "wte.weight"], "dtype": "float32", "shape": [256, 64],
      "pieces": [[[0, 0], [128, 64], 0, 0], [[128, 0], [128, 64], 1, 0]]},
     …]}

A piece is a box of the tensor: its offset in the tensor, its shape, the rank whose file has it, and
its first byte there, a multiple of 64. ``place`` is the name of the object, then the keys in its
state. Every value of an index is checked before use.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

from hpcflow.runtime.files import NewFile, Written
from hpcflow.runtime.manifest import CheckpointError
from hpcflow.runtime.objects import Create, read_json
from hpcflow.runtime.ranks import Ranks
from hpcflow.runtime.tensor_tree import Place, spell, split

#: The alignment of tensors in a file: a CPU cache line, enough for any type.
ALIGNMENT_BYTES = 64
INDEX = "shards.json"
_FORMAT = 1


@dataclass(frozen=True)
class Piece:
    """A box of a tensor; ``read`` returns it, on the CPU, as a tensor of this shape."""

    offsets: tuple[int, ...]
    shape: tuple[int, ...]
    read: Callable[[], Any]


@dataclass(frozen=True)
class StoredTensor:
    """A tensor, in pieces that together are all of it. ``dtype`` is torch's."""

    dtype: Any
    shape: tuple[int, ...]
    pieces: Sequence[Piece]


@dataclass(frozen=True)
class Stored:
    """The state of one object. ``values``: the rest without tensors, as :func:`split` returns."""

    tensors: Mapping[Place, StoredTensor]
    values: Any

    def fill(self, targets: Mapping[Place, Any]) -> None:
        """Read every tensor in ``targets``; of a sharded one, only this rank's part.

        Raises:
            CheckpointError: a tensor has another shape here, or is incomplete in the checkpoint.
        """
        import torch

        with torch.no_grad():
            for place, target in targets.items():
                self._fill(place, target)

    def _fill(self, place: Place, target: Any) -> None:
        import torch
        from torch.distributed.checkpoint.default_planner import create_default_local_load_plan

        tensor, name = self.tensors[place], json.dumps(place)
        if tuple(target.shape) != tensor.shape:
            raise CheckpointError(
                f"{spell(place)} has shape {list(tensor.shape)} in the checkpoint, "
                f"{list(target.shape)} here"
            )
        if target.is_meta:
            raise CheckpointError(
                f"{spell(place)} has no memory yet: model.to_empty(device=…) before run.restore()"
            )
        local = target.to_local() if hasattr(target, "to_local") else target
        with torch.device("cpu"):  # the planner creates tensors on the default device
            plan = create_default_local_load_plan({name: target}, _metadata(name, tensor))
        pieces = {piece.offsets: piece for piece in tensor.pieces}
        filled = torch.zeros(local.shape, dtype=torch.bool, device="cpu")
        for item in plan.items:
            piece = pieces[tuple(item.storage_index.offset)]
            source = _narrowed(piece.read(), item.storage_offsets, item.lengths)
            _narrowed(local, item.dest_offsets, item.lengths).copy_(source)
            _narrowed(filled, item.dest_offsets, item.lengths).fill_(True)
        if not filled.all():
            raise CheckpointError(f"{spell(place)} is incomplete in the checkpoint")


def whole(state: Any) -> Stored:
    """Wrap a state in memory as one that can be read in parts."""
    tensors, values = split(state)
    return Stored({place: _in_one_piece(tensor) for place, tensor in tensors.items()}, values)


def _in_one_piece(tensor: Any) -> StoredTensor:
    shape = tuple(tensor.shape)
    return StoredTensor(tensor.dtype, shape, [Piece((0,) * len(shape), shape, lambda: tensor)])


def _metadata(name: str, tensor: StoredTensor) -> Any:
    """Describe ``tensor`` for torch.distributed.checkpoint."""
    import torch
    from torch.distributed.checkpoint.metadata import (
        ChunkStorageMetadata,
        Metadata,
        TensorProperties,
        TensorStorageMetadata,
    )

    chunks = [
        ChunkStorageMetadata(torch.Size(piece.offsets), torch.Size(piece.shape))
        for piece in tensor.pieces
    ]
    properties = TensorProperties(dtype=tensor.dtype)
    return Metadata({name: TensorStorageMetadata(properties, torch.Size(tensor.shape), chunks)})


def _narrowed(tensor: Any, offsets: Sequence[int], lengths: Sequence[int]) -> Any:
    for dimension, (offset, length) in enumerate(zip(offsets, lengths)):  # noqa: B905 - since 3.10
        tensor = tensor.narrow(dimension, offset, length)
    return tensor


@dataclass(frozen=True)
class Share:
    """What one rank writes: its tensors in order, each with its first byte in the file.

    ``index`` is, on rank 0, the index of all ranks' tensors; None on others.
    """

    begins: list[tuple[Place, int]]
    index: list[dict[str, Any]] | None


class ShardPlanner:
    """Plans which rank writes what, and reuses the plan until a rank has other tensors.

    Several ranks may have the same part of a tensor. So rank 0 collects what each rank has, and
    assigns each part to one, such that all write about the same amount. The planner of
    torch.distributed.checkpoint computes that, and also which pieces a rank needs to load.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._layout: list[Any] | None = None
        self._share: Share | None = None

    def share(self, tensors: Mapping[Place, Any]) -> Share:
        """Return what this rank writes of ``tensors``; its file is ``shard_file(rank)``.

        All ranks call it together, with no other exchange under way.

        Raises:
            TypeError: a tensor is of a kind that has no plain bytes.
            ValueError: the parts of the ranks do not make up complete tensors.
        """
        layout = [_layout(place, tensor) for place, tensor in tensors.items()]
        is_new = self._share is None or layout != self._layout
        if self._ranks.max(int(is_new)) or self._share is None:
            self._share = self._ranks.consult(_offer(tensors), _shares)
            self._layout = layout
        return self._share


def shard_file(rank: int) -> str:
    return f"rank-{rank:05d}.shards"


def _layout(place: Place, tensor: Any) -> tuple[Any, ...]:
    """Return the facts that determine the share. Compared at every save, so it must be fast."""
    sharded = getattr(tensor, "placements", None), getattr(tensor, "device_mesh", None)
    return (place, tensor.dtype, tuple(tensor.shape), *sharded)


def _offer(tensors: Mapping[Place, Any]) -> Any:
    """Return torch's plan of what this rank could write."""
    import torch
    from torch.distributed.checkpoint.default_planner import create_default_local_save_plan

    for place, tensor in tensors.items():
        _check(place, tensor)
    named = {json.dumps(place): tensor for place, tensor in tensors.items()}
    with torch.device("cpu"):  # the planner creates tensors on the default device
        return create_default_local_save_plan(named, False)


def _check(place: Place, tensor: Any) -> None:
    import torch

    if not all(type(part) in (str, int) for part in place):
        raise TypeError(f"{spell(place)}: a key is neither text nor an integer: {place}")
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    if type(local) not in (torch.Tensor, torch.nn.Parameter) or local.layout != torch.strided:
        kind = type(local).__name__ if type(local) is not torch.Tensor else str(local.layout)
        raise TypeError(f"{spell(place)} is {kind}, which cannot be saved in shards")
    if local.is_quantized:
        raise TypeError(f"{spell(place)} is quantized, which cannot be saved in shards")


def _shares(offers: list[Any]) -> list[Share]:
    """Return the share of every rank, from the plans of what each could write."""
    from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

    planner = DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    plans, _ = planner.create_global_plan(offers)
    index: dict[str, dict[str, Any]] = {}
    begins: list[list[tuple[Place, int]]] = []
    for rank, plan in enumerate(plans):
        begins.append([])
        end = 0
        for item in plan.items:
            data = item.tensor_data
            entry = index.setdefault(
                item.index.fqn,
                {
                    "place": json.loads(item.index.fqn),
                    "dtype": str(data.properties.dtype).split(".")[-1],
                    "shape": list(data.size),
                    "pieces": [],
                },
            )
            size_bytes = prod(data.chunk.sizes) * data.properties.dtype.itemsize
            if not size_bytes:
                continue
            begin = -(-end // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
            end = begin + size_bytes
            begins[rank].append((tuple(entry["place"]), begin))
            box = list(data.chunk.offsets), list(data.chunk.sizes)
            entry["pieces"].append([*box, rank, begin])
    shares = [Share(mine, None) for mine in begins]
    shares[0] = Share(begins[0], list(index.values()))
    return shares


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
