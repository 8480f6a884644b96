"""The order in which DistributedDataParallel adds gradients up, the same in every attempt.

DDP lays gradients into buckets in one order for its first train step and, once it has seen in which
order they become ready, in another for all that follow. A sum over more than two ranks depends, in
its last bits, on the place in the bucket. So a resumed training would begin with other bits than
the undisturbed one went on with.

The cure is to let DDP settle its buckets before training begins, in every attempt alike: one
backward pass of zeros that reaches the parameters in the order of the model.
"""

from __future__ import annotations

import sys
from typing import Any

_SPECIAL = ("static_graph", "find_unused_parameters", "mixed_precision", "_comm_hooks")


def settle_buckets(obj: Any) -> None:
    """Make DDP settle its buckets now, on all ranks together; anything but a plain DDP stays as is.

    With ``find_unused_parameters`` buckets never change; a static graph, mixed precision or a hook
    on the gradients would take the pass of zeros for a train step; and the gradients of zeros are
    not sparse, as those of an embedding may have to be.
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
            # One real number on one device, whatever the parameters are.
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
