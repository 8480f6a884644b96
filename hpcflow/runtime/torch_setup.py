"""Prepare DistributedDataParallel and DataLoaders of torch, so that a training can be resumed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

_SPECIAL = ("static_graph", "find_unused_parameters", "mixed_precision", "_comm_hooks")
_BEFORE_CHILDREN_ARE_ENDED = 1


def settle_buckets(obj: Any) -> None:
    """Make DDP sum gradients in the same order in every attempt, on all ranks together.

    In its first train step, DDP fills its buckets in one order. After that, it uses the order in
    which gradients became ready. The last bits of a sum over more than two ranks depend on the
    position in the bucket, so a resumed training would differ from an uninterrupted one. A backward
    pass of zeros, in the order of the model's parameters, makes DDP settle its buckets.

    Only a plain DDP gets it. With ``find_unused_parameters`` buckets never change. A static graph,
    mixed precision or a gradient hook would count the pass of zeros as a train step. The gradients
    of zeros are not sparse, as those of an embedding may have to be.
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

    class Zeros(torch.nn.Module):  # type: ignore[misc, name-defined] # from sys.modules
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


def spare_workers(loader: Any) -> None:
    """Make the workers that ``loader`` will start ignore the notice.

    torchrun signals every process of a rank, and so does Slurm without cgroups. If a worker dies of
    SIGTERM, torch raises an error somewhere in the training, which then cannot save. But when this
    process ends, Python sends its children SIGTERM and waits for them: then workers exit on it.
    """
    if not getattr(loader, "num_workers", 0) or isinstance(loader.worker_init_fn, _Spared):
        return
    import multiprocessing
    from multiprocessing.util import Finalize

    context = loader.multiprocessing_context or multiprocessing.get_context()
    is_over = context.RawValue("b", 0)
    loader.worker_init_fn = _Spared(is_over, loader.worker_init_fn)
    Finalize(None, _set, args=(is_over,), exitpriority=_BEFORE_CHILDREN_ARE_ENDED)


class _Spared:
    """A ``worker_init_fn`` that handles the signals, then calls the program's own one."""

    def __init__(self, is_over: Any, then: Callable[[int], Any] | None) -> None:
        self._is_over = is_over
        self._then = then

    def __call__(self, worker: int) -> None:
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._on_term)
        if self._then is not None:
            self._then(worker)

    def _on_term(self, _number: int, _frame: object) -> None:
        if self._is_over.value:
            os._exit(0)


def _set(flag: Any) -> None:
    flag.value = 1
