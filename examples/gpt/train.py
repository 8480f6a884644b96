"""Train a small GPT on the text of Python's standard library, byte by byte.

One process or many, CPU or GPU, the model on every rank (``parallel: ddp``) or sharded over them
(``parallel: fsdp2``). Whatever the ranks, train step N sees the same batch, so that a run that goes
on with another number of them goes on with the same loss curve.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F  # noqa: N812 - as everybody calls it
from torch.nn.parallel import DistributedDataParallel

from hpcflow import runtime

DEFAULTS = {
    "parallel": "ddp",
    "n_layer": 4,
    "n_head": 4,
    "n_embd": 128,
    "block_size": 128,
    "batch_size": 16,
    "train_steps": 400,
    "lr": 1e-3,
    "warmup": 20,
    "seed": 0,
}
VOCABULARY = 256
EVALUATION_BATCHES = 4


class Attention(nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """Causal self-attention with ``n_head`` heads."""

    def __init__(self, n_embd: int, n_head: int) -> None:
        super().__init__()
        self.n_head = n_head
        self.inner = nn.Linear(n_embd, 3 * n_embd)
        self.outer = nn.Linear(n_embd, n_embd)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, length, n_embd) -> the same."""
        batch, length, n_embd = x.shape
        heads = self.inner(x).view(batch, length, 3, self.n_head, n_embd // self.n_head)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.outer(mixed.transpose(1, 2).reshape(batch, length, n_embd))


class Block(nn.Module):  # type: ignore[misc]
    """Attention, then two layers on every place by itself."""

    def __init__(self, n_embd: int, n_head: int) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(n_embd)
        self.attention = Attention(n_embd, n_head)
        self.before_layers = nn.LayerNorm(n_embd)
        self.layers = nn.Sequential(
            nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.before_attention(x))
        return x + self.layers(self.before_layers(x))


class GPT(nn.Module):  # type: ignore[misc]
    """Predicts the next of ``vocabulary`` tokens from up to ``block_size`` before it."""

    def __init__(
        self, vocabulary: int, block_size: int, n_layer: int, n_head: int, n_embd: int
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, n_embd)
        self.places = nn.Embedding(block_size, n_embd)
        self.blocks = nn.ModuleList(Block(n_embd, n_head) for _ in range(n_layer))
        self.last = nn.LayerNorm(n_embd)
        self.head = nn.Linear(n_embd, vocabulary, bias=False)
        for name, parameter in self.named_parameters():
            if name.endswith(("outer.weight", "layers.2.weight")):  # what adds to the rest
                nn.init.normal_(parameter, std=0.02 / (2 * n_layer) ** 0.5)
            elif parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Two (batch, length) of token numbers -> the mean cross entropy, in nats a token."""
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.last(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def read_text() -> torch.Tensor:
    """The modules of the standard library, one after the other, as numbers from 0 to 255."""
    folder = Path(os.__file__).parent
    text = b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).long()


def batch(
    data: torch.Tensor, number: int, run: runtime.Run, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's part of batch ``number``: tokens, and which come next.

    The batch is drawn as a whole, by its number alone, and divided then.
    """
    params = run.params
    chance = torch.Generator().manual_seed(params.seed * 1_000_003 + number)
    last = len(data) - params.block_size - 1
    starts = torch.randint(last, (params.batch_size,), generator=chance)
    mine = starts[run.rank :: run.world_size].tolist()
    rows = torch.stack([data[start : start + params.block_size + 1] for start in mine])
    return rows[:, :-1].to(device), rows[:, 1:].to(device)


def parallelized(model: GPT, how: str) -> nn.Module:
    """``model`` on all ranks. Several are needed to speak of; one trains it as it is."""
    if how not in ("ddp", "fsdp2", "none"):
        raise SystemExit(f"params.parallel is {how!r}: it must be ddp, fsdp2 or none")
    if how == "none" or not dist.is_initialized():
        return model
    if how == "ddp":
        return DistributedDataParallel(model)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    return model


def mean_over_ranks(loss: torch.Tensor) -> torch.Tensor:
    """The loss of the whole batch, of which every rank has seen as much."""
    mean = loss.detach().clone()
    if dist.is_initialized():
        dist.all_reduce(mean)
        mean /= dist.get_world_size()
    return mean


def main() -> None:
    has_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if has_gpu else "cpu"
    if has_gpu:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(int(os.environ.get("SLURM_CPUS_PER_TASK", 1)))
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("nccl" if has_gpu else "gloo")

    run = runtime.start(DEFAULTS)
    params: Any = run.params
    if params.batch_size % run.world_size:
        raise SystemExit(
            f"params.batch_size {params.batch_size} cannot be divided among {run.world_size} ranks"
        )
    torch.manual_seed(params.seed)
    text = read_text()
    train, held_out = text[: -len(text) // 20], text[-len(text) // 20 :]

    sizes = (params.block_size, params.n_layer, params.n_head, params.n_embd)
    model = parallelized(GPT(VOCABULARY, *sizes).to(device), params.parallel)
    optimizer = torch.optim.AdamW(model.parameters(), lr=params.lr, betas=(0.9, 0.95))

    def slope(done: int) -> float:
        progress = min(1.0, done / params.train_steps)
        warm = min(1.0, (done + 1) / params.warmup)
        return float(warm * (0.55 + 0.45 * math.cos(math.pi * progress)))

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, slope)

    run.restore(model=model, optimizer=optimizer, scheduler=scheduler)
    for train_step in run.train_steps(params.train_steps):
        loss = model(*batch(train, train_step, run, device))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if train_step % 10 == 0 or train_step == params.train_steps:
            run.log(loss=mean_over_ranks(loss), lr=scheduler.get_last_lr()[0])

    model.eval()
    with torch.no_grad():
        batches = [batch(held_out, number, run, device) for number in range(EVALUATION_BATCHES)]
        losses = [mean_over_ranks(model(*each)) for each in batches]
    held_out_loss = torch.stack(losses).mean().item()
    run.finish(held_out_loss=held_out_loss)
    if run.rank == 0:
        print(f"{run.train_step} train steps, {held_out_loss:.4f} nats a byte on held-out text")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
