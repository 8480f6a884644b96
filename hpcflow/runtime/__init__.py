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

=====================  =============================================================
run.py                 Run, the interface for the script
ranks.py, notice.py    how all ranks agree on the train step at which they exit
data_order.py          resuming in the middle of an epoch
torch_setup.py         resuming with the same bits on many ranks; workers of a DataLoader
saving.py              what all ranks do to save
program_state.py,      the objects given to restore(), and how each kind is written
objects.py
background.py          the thread that writes while the training continues
host_copy.py           the copy of the state that it writes
tensor_tree.py,        sharded state: its tensors and their names, which rank writes
named_state.py,        which, their files, and how to read them with other ranks
shards.py
restoring.py           which checkpoint all ranks resume from
store.py, manifest.py  how a checkpoint appears at once; what proves it is complete
rule.py, retention.py  which checkpoints are kept, and how the others are removed
schedule.py            when to save, and the interval `auto`
disk_quota.py          whether the disk and quotas have room for a checkpoint
mirrored.py            which checkpoints an object store has
events.py, metrics.py  what is reported
calling.py             a Python function as the program
creators.py            which other users could create modules in a directory
adoption/              checkpoints that programs write in their own way
sampling/              the resources that the program uses
reading.py             safe reading of files that others may have written
safe_text.py           text made safe for a terminal
job.py                 the environment that the job script sets
=====================  =============================================================
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
