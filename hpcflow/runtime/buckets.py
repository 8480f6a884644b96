"""Make DistributedDataParallel sum gradients in the same order in every attempt.

In its first train step, DDP fills its buckets in one order. After that, it uses the order in which
gradients became ready. The last bits of a sum over more than two ranks depend on the position in
the bucket, so a resumed training would differ from an uninterrupted one.

So in every attempt, before training begins, one backward pass of zeros, in the order of the model's
parameters, makes DDP settle its buckets.
"""

from __future__ import annotations

import sys
from typing import Any

_SPECIAL = ("static_graph", "find_unused_parameters", "mixed_precision", "_comm_hooks")


def settle_buckets(obj: Any) -> None:
    """Make a plain DDP settle its buckets, on all ranks together; do nothing for other objects.

    With ``find_unused_parameters`` buckets never change. A static graph, mixed precision or a
    gradient hook would count the pass of zeros as a train step. The gradients of zeros are not
    sparse, as those of an embedding may have to be.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(obj, torch.nn.parallel.DistributedDataParallel):
        return
    if torch.distributed.get_world_size(obj.process_group) <= 2:
        return
    if any(getattr(obj, name, None) for name in _SPECIAL):
        return
    if any(getattr(module, "sparse", False) for module in obj.modules()):
        return
    parameters = [parameter for parameter in obj.parameters() if parameter.requires_grad]
    gradients = [parameter.grad for parameter in parameters]

    class Zeros(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self) -> Any:
            # One real number on one device, for any types and devices of the parameters.
            zeros = [(parameter * 0).real.sum() for parameter in parameters]
            return sum(zero.to(zeros[0].device) for zero in zeros)

    module = obj.module
    try:
        obj.module = Zeros()
        obj().backward()
    finally:
        obj.module = module
    for parameter, gradient in zip(parameters, gradients):  # noqa: B905 - strict= came with 3.10
        parameter.grad = gradient
