"""Train a small network on the UCI handwritten digits: one process or many, CPU or GPU."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from hpcflow import runtime

DEFAULTS = {"epochs": 40, "batch_size": 64, "lr": 0.002, "hidden": 64, "seed": 0}


def read_digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Return 1,797 images, (n, 1, 8, 8) from 0 to 1, and their digits, (n,)."""
    found = find_spec("sklearn")  # to import it takes each rank a second more, at every resume
    if found is None or found.origin is None:
        raise SystemExit("the digits are part of scikit-learn: pip install scikit-learn")
    path = Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz"
    table = torch.from_numpy(np.loadtxt(path, delimiter=",", dtype=np.float32))
    return table[:, :64].reshape(-1, 1, 8, 8) / 16, table[:, 64].long()


def main() -> None:
    has_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if has_gpu else "cpu"
    if has_gpu:
        torch.cuda.set_device(device)
    else:
        # The network is far too small to gain from threads, and ranks may share a node's cores.
        torch.set_num_threads(1)
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("nccl" if has_gpu else "gloo")

    run = runtime.start(DEFAULTS)
    params = run.params
    torch.manual_seed(params.seed)

    images, labels = read_digits()
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(labels)))
    train, held_out = order[:1437], order[1437:]
    data = TensorDataset(images[train], labels[train])
    sampler = DistributedSampler(data, run.world_size, run.rank, seed=params.seed)
    loader = DataLoader(data, batch_size=params.batch_size // run.world_size, sampler=sampler)

    model: nn.Module = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Linear(32 * 4 * 4, params.hidden),
        nn.ReLU(),
        nn.Linear(params.hidden, 10),
    ).to(device)
    if run.world_size > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=params.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, params.epochs)
    torch.manual_seed(params.seed + run.rank)  # from here on ranks differ: dropout

    run.restore(model=model, optimizer=optimizer, scheduler=scheduler)
    for epoch in run.epochs(params.epochs):
        sampler.set_epoch(epoch)
        for batch, target in run.batches(loader):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(batch.to(device)), target.to(device))
            loss.backward()
            optimizer.step()
            run.log(loss=loss, lr=scheduler.get_last_lr()[0])
        scheduler.step()

    model.eval()
    with torch.no_grad():
        guesses = model(images[held_out].to(device)).argmax(dim=1).cpu()
    accuracy = (guesses == labels[held_out]).float().mean().item()
    run.finish(accuracy=accuracy)
    if run.rank == 0:
        print(f"{run.train_step} train steps, accuracy {accuracy:.4f} on held-out digits")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
