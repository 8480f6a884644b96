"""What the server that ranks are forked from has imported: torch, and what its optimizers import
the first time that one is made."""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

from tests.runtime import program

torch.set_num_threads(1)
torch.optim.AdamW([torch.zeros(1, requires_grad=True)])

__all__ = ["DistributedDataParallel", "program"]
