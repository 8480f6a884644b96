"""A training whose state is sharded over the ranks as ``LAYOUT`` says.

Each train step's data is found by its number and split among the ranks, so that the loss is the
same for any number of them, but for the order of sums. Rank 0 appends every loss to
``losses.jsonl``, bit for bit. The environment says more: ``TRAIN_STEPS``, ``DROPOUT``, ``SCALER``,
``SAVE_FIRST``, to save what was loaded, ``DIE_RANK``, on which ``DIE_AT_CALL`` counts, and what
program.py knows.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from hpcflow import runtime
from tests.runtime.program import RUNS, change_disk, hurt, wait_for_write

TRAIN_STEPS = 40  # as many as program.py's
BATCH = 8  # of all ranks together


class Net(nn.Module):  # type: ignore[misc]
    """Of sizes that four ranks cannot divide, with a buffer and a parameter that is not trained."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 12)
        self.up = nn.Linear(12, 16)
        self.down = nn.Linear(16, 12)
        self.norm = nn.LayerNorm(12)
        self.drop = nn.Dropout(dropout)
        self.out = nn.Linear(12, 6)
        self.scale = nn.Parameter(torch.full((3,), 0.5), requires_grad=False)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        assert isinstance(self.seen, torch.Tensor)
        self.seen += 1
        hidden = torch.relu(self.inner(batch))
        hidden = hidden + self.down(torch.relu(self.up(hidden)))
        return self.out(self.drop(self.norm(hidden)))


def sharded(model: Net, layout: str, world_size: int) -> Any:
    """``model`` over all ranks, and by how many of them a batch is split."""
    if layout == "ddp" and world_size > 1:
        return DistributedDataParallel(model), world_size
    tensor_parallel = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    if layout == "fsdp2":
        fully_shard(model.up)
        fully_shard(model)
        return model, world_size
    if layout == "tp":
        mesh = init_device_mesh("cpu", (world_size,))
        return parallelize_module(model, mesh, tensor_parallel), 1
    if layout == "2d":
        mesh = init_device_mesh("cpu", (world_size // 2, 2), mesh_dim_names=("data", "tensor"))
        parallelize_module(model, mesh["tensor"], tensor_parallel)
        for part in (model.inner, model.up, model.down, model.norm, model.out):
            fully_shard(part, mesh=mesh["data"])
        fully_shard(model, mesh=mesh["data"])
        return model, world_size // 2
    if layout == "hsdp":
        mesh = init_device_mesh("cpu", (2, world_size // 2), mesh_dim_names=("copies", "shards"))
        fully_shard(model, mesh=mesh)
        return model, world_size
    if layout == "pipeline":
        return nn.ModuleDict({f"stage {dist.get_rank()}": model}), 1
    return model, 1


def train() -> None:
    """One rank of the training."""
    torch.set_num_threads(1)
    rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    layout = os.environ["LAYOUT"]
    if world_size > 1 or layout == "fsdp2":
        meet = os.environ.get("MEET") or f"file://{os.environ['HPCFLOW_ATTEMPT_DIR']}/alone"
        dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=world_size)
    run = runtime.start()
    RUNS.append(run)
    if rank != int(os.environ.get("DIE_RANK", 0)):
        os.environ.pop("DIE_AT_CALL", None)
    change_disk()
    torch.manual_seed(1)
    model, parts = sharded(Net(float(os.environ.get("DROPOUT", 0))), layout, world_size)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [{"params": trained[:3], "lr": 0.02}, {"params": trained[3:]}]
    optimizer = torch.optim.AdamW(groups, lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10, gamma=0.7)
    objects: dict[str, Any] = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    # torch's scaler takes no model of which a part is tensor-parallel.
    has_scaler = layout not in ("tp", "2d") and bool(os.environ.get("SCALER"))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0, growth_interval=9, enabled=has_scaler)
    if has_scaler:
        objects["scaler"] = scaler
    torch.manual_seed(100 + rank)
    part = rank * parts // world_size

    run.restore(**objects)
    if os.environ.get("SAVE_FIRST"):
        run._save()
    for train_step in run.train_steps(int(os.environ.get("TRAIN_STEPS", TRAIN_STEPS))):
        data = torch.randn(BATCH, 6, generator=torch.Generator().manual_seed(train_step))
        batch = data[part::parts]
        optimizer.zero_grad()
        loss = (model(batch) - batch).pow(2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        mean = loss.detach().clone()
        if dist.is_initialized():
            dist.all_reduce(mean)
            mean /= world_size
        if rank == 0:
            with Path(os.environ["HPCFLOW_RUN_DIR"], "losses.jsonl").open("a") as file:
                file.write(json.dumps([train_step, mean.item()]) + "\n")
        if os.environ.get("PATIENT"):
            wait_for_write(run)
        hurt(rank, train_step)
    run.finish()
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    train()
