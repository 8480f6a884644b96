"""Keep the notice from killing the worker processes of a torch DataLoader.

torchrun signals every process of a rank, and so does Slurm without cgroups. If a worker dies of
SIGTERM, torch raises an error somewhere in the training, which then cannot save. So workers ignore
the notice. But when this process ends, Python sends its children SIGTERM and waits for them, so
then workers exit on it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

_BEFORE_CHILDREN_ARE_ENDED = 1


def spare_workers(loader: Any) -> None:
    """Make the workers that ``loader`` will start ignore the notice."""
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
