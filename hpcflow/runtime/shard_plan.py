"""Plan which rank writes which part of which tensor, and where in its file.

Several ranks may have the same part of a sharded tensor. So rank 0 collects what each rank has, and
assigns each part to one rank, such that all write about the same amount. The planner of
torch.distributed.checkpoint computes that. The plan is reused until a rank has other tensors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from hpcflow.runtime.ranks import Ranks
from hpcflow.runtime.tensor_tree import Place, spell

#: The alignment of tensors in a file: a CPU cache line, enough for any type.
ALIGNMENT_BYTES = 64


@dataclass(frozen=True)
class Share:
    """What one rank writes: its tensors in order, each with its first byte in the file.

    ``index`` is, on rank 0, the index of all ranks' tensors; None on others.
    """

    begins: list[tuple[Place, int]]
    index: list[dict[str, Any]] | None


class ShardPlanner:
    """Plans the shares, and reuses them for later checkpoints."""

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
