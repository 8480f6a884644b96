"""A training with data loader workers, for so many seconds; prints its train steps at the end."""

from __future__ import annotations

import sys
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

BATCH = 64
WIDTH = 512


def main(seconds: float) -> None:
    """Train a small network on random pictures."""
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(4096, WIDTH), torch.randint(0, 10, (4096,)))
    loader = DataLoader(data, BATCH, shuffle=True, num_workers=2, persistent_workers=True)
    model = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 10)
    )
    optimizer = torch.optim.AdamW(model.parameters())
    train_steps, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        for inputs, targets in loader:
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            train_steps += 1
    print(train_steps)


if __name__ == "__main__":
    main(float(sys.argv[1]))
