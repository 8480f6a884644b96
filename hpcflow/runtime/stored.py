"""A state in a checkpoint: its tensors and their pieces, and reading any part of them.

torch.distributed.checkpoint computes which pieces a rank needs, so any number of ranks can load a
state, sharded in any way.
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
