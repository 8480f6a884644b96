"""A state that lies in a checkpoint: which tensors, in which pieces, and how to read any part.

Which piece holds which part of what this rank wants is computed by torch.distributed.checkpoint;
so a state can be loaded by any number of ranks, sharded in any way.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpcflow.runtime.manifest import CheckpointError
from hpcflow.runtime.tensor_tree import Place, spell, split


@dataclass(frozen=True)
class Piece:
    """A box of a tensor; ``read`` gives it, on the CPU, as a tensor of this shape."""

    offsets: tuple[int, ...]
    shape: tuple[int, ...]
    read: Callable[[], Any]


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in pieces, which are all of it. ``dtype`` is torch's."""

    dtype: Any
    shape: tuple[int, ...]
    pieces: Sequence[Piece]


@dataclass(frozen=True)
class Stored:
    """The state of one object. ``values`` are what is no tensor, as :func:`split` gives them."""

    tensors: Mapping[Place, StoredTensor]
    values: Any

    def fill(self, targets: Mapping[Place, Any]) -> None:
        """Read every tensor in ``targets``; of a sharded one, what is this rank's.

        Raises:
            CheckpointError: it has another shape here, or its pieces are not all of it.
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
        with torch.device("cpu"):  # it computes by tensors on whatever device is the default one
            plan = create_default_local_load_plan({name: target}, _metadata(name, tensor))
        pieces = {piece.offsets: piece for piece in tensor.pieces}
        filled = torch.zeros(local.shape, dtype=torch.bool, device="cpu")
        for item in plan.items:
            piece = pieces[tuple(item.storage_index.offset)]
            source = _narrowed(piece.read(), item.storage_offsets, item.lengths)
            _narrowed(local, item.dest_offsets, item.lengths).copy_(source)
            _narrowed(filled, item.dest_offsets, item.lengths).fill_(True)
        if not filled.all():
            raise CheckpointError(f"{spell(place)} is not there as a whole")


def whole(state: Any) -> Stored:
    """A state that was read already, as one that can be read in parts."""
    tensors, values = split(state)
    return Stored({place: _in_one_piece(tensor) for place, tensor in tensors.items()}, values)


def _in_one_piece(tensor: Any) -> StoredTensor:
    shape = tuple(tensor.shape)
    return StoredTensor(tensor.dtype, shape, [Piece((0,) * len(shape), shape, lambda: tensor)])


def _metadata(name: str, tensor: StoredTensor) -> Any:
    """``tensor`` as torch.distributed.checkpoint describes it."""
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
