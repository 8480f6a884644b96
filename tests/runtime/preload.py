"""What the server that ranks are forked from has imported: torch, what its optimizers import the
first time that one is made, and what it imports to shard, and to save what is sharded."""

from __future__ import annotations

import torch
import torch.distributed.checkpoint.default_planner
from torch.nn.parallel import DistributedDataParallel

from tests.runtime import program, sharded_program

torch.set_num_threads(1)
torch.optim.AdamW([torch.zeros(1, requires_grad=True)])

__all__ = ["DistributedDataParallel", "program", "sharded_program"]
