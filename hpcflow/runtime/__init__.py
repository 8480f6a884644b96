"""What a training script imports inside a job: ``from hpcflow import runtime``.

::

    run = runtime.start()
    run.restore(model=model, optimizer=optimizer)
    for epoch in run.epochs(run.params.epochs):
        for batch in run.batches(loader):
            …
            run.log(loss=loss)
    run.finish(accuracy=accuracy)

It resumes from the newest intact checkpoint and saves when a save is due. On notice (preemption,
the end of the time limit) it saves and exits, on all ranks at the same train step. Outside of
hpcflow the script runs as without it. Programs in other languages use ``python3 -m
hpcflow.runtime``.

A copy of this package goes into every run directory. It needs only Python, uses torch only if the
program imported it, and imports nothing of the rest of hpcflow.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["CheckpointError", "Params", "Run", "params", "start"]

# Imported on first use: each command of hpcflow reads files through a module of this package.
if TYPE_CHECKING:
    from hpcflow.runtime.manifest import CheckpointError
    from hpcflow.runtime.parameters import Params
    from hpcflow.runtime.run import Run

    #: The run's parameters; empty outside of hpcflow.
    params: Params

_LAZY = {"CheckpointError": "manifest", "Params": "parameters", "Run": "run"}


def start(
    defaults: Mapping[str, Any] | None = None,
    *,
    max_over_ranks: Callable[[int], int] | None = None,
) -> Run:
    """Read the environment, handle the notice's signals from now on, and return the run.

    With several ranks, call it on all of them after ``torch.distributed.init_process_group()``.

    Args:
        defaults: parameters that the run's config does not set, and all outside of hpcflow.
        max_over_ranks: for ranks that are not torch's: a collective function that returns, on every
            rank, the largest of the integers (below 2**31) that the ranks passed in. RANK and
            WORLD_SIZE then identify this rank.

    Raises:
        RuntimeError: there are several ranks, but torch.distributed was not initialised.
        ValueError: an environment variable of hpcflow is invalid.
    """
    from hpcflow.runtime.job import job_from, read_params
    from hpcflow.runtime.parameters import Params
    from hpcflow.runtime.ranks import find_ranks
    from hpcflow.runtime.run import Run

    job = job_from(os.environ)
    given = Params({**(defaults or {}), **read_params(job.params_file)})
    return Run(job, given, find_ranks(job.rank, job.world_size, max_over_ranks))


def __getattr__(name: str) -> Any:
    if name == "params":
        from hpcflow.runtime.job import job_from, read_params
        from hpcflow.runtime.parameters import Params

        return Params(read_params(job_from(os.environ).params_file))
    if name in _LAZY:
        return getattr(import_module(f"hpcflow.runtime.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'hpcflow.runtime' has no attribute {name!r}")
