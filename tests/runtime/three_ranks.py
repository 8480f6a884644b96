"""Three ranks that do what each function here says, and leave what each saw in ``seen-RANK.json``.

They are started once for all tests of test_three_ranks.py.
"""

from __future__ import annotations

import json
import os
import traceback
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hpcflow.runtime.program_state import ProgramState
from hpcflow.runtime.ranks import Ranks, TorchRanks
from hpcflow.runtime.torch_setup import settle_buckets


class Complex(nn.Module):  # type: ignore[misc]
    """A model with complex numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.real = nn.Parameter(torch.ones(3))
        self.complex = nn.Parameter(torch.ones(3, dtype=torch.complex64))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return (batch * self.real * self.complex).abs()


def gradients_of_sparse_embeddings(ranks: Ranks) -> Any:
    words = nn.Sequential(nn.Embedding(5, 3, sparse=True), nn.Linear(3, 2))
    return _train(words, torch.tensor([ranks.rank]))


def gradients_of_complex_numbers(ranks: Ranks) -> Any:
    return _train(Complex(), torch.ones(3) * ranks.rank)


def _train(module: nn.Module, batch: torch.Tensor) -> list[str]:
    """The kinds of gradients after a train step."""
    model = DistributedDataParallel(module)
    settle_buckets(model)
    assert [parameter.grad for parameter in model.parameters()] == [None] * len(
        list(model.parameters())
    )
    for _ in range(2):
        model(batch).sum().backward()
    return [str(parameter.grad.layout) for parameter in model.parameters()]


def objects_that_rank_0_has_alone(ranks: Ranks) -> Any:
    objects: dict[str, Any] = {"count": {}, "model": nn.Linear(2, 2)}
    if ranks.rank == 0:
        objects["ema"] = nn.Linear(2, 2)
    return _refused(objects, ranks)


def objects_in_another_order(ranks: Ranks) -> Any:
    names = ["model", "ema"] if ranks.rank else ["ema", "model"]
    return _refused({name: nn.Linear(2, 2) for name in names}, ranks)


def _refused(objects: dict[str, Any], ranks: Ranks) -> list[Any]:
    """Why, and what the ranks say to each other afterwards: 2, if they are still in step."""
    text = ""
    try:
        ProgramState(objects, ranks)
    except TypeError as error:
        text = str(error)
    return [text, ranks.max(ranks.rank)]


def patience(ranks: Ranks) -> Any:
    """Seconds until a rank gives the others up."""
    assert isinstance(ranks, TorchRanks)
    backend = ranks._group._get_backend(torch.device("cpu"))
    return backend.options._timeout.total_seconds()


ALL = [
    gradients_of_sparse_embeddings,
    gradients_of_complex_numbers,
    objects_that_rank_0_has_alone,
    objects_in_another_order,
    patience,
]


def main() -> None:
    rank = int(os.environ["RANK"])
    dist.init_process_group(
        "gloo",
        init_method=os.environ["MEET"],
        rank=rank,
        world_size=int(os.environ["WORLD_SIZE"]),
    )
    seen: dict[str, Any] = {}
    for each in ALL:
        ranks = TorchRanks()
        try:
            seen[each.__name__] = each(ranks)
        except Exception:
            seen[each.__name__] = traceback.format_exc()
    Path(os.environ["HPCFLOW_RUN_DIR"], f"seen-{rank}.json").write_text(json.dumps(seen))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
