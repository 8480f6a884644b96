"""What a training script imports inside a job: ``from hpcflow import runtime``.

::

    run = runtime.start()
    run.restore(model=model, optimizer=optimizer)
    for epoch in run.epochs(run.params.epochs):
        for batch in run.batches(loader):
            …
            run.log(loss=loss)
    run.finish(accuracy=accuracy)

It resumes from the newest whole checkpoint, saves when that is due, and on notice (preemption, the
end of the time limit) saves and leaves, on all ranks at the same train step. Outside of hpcflow the
same script runs as if this were not there. Programs in other languages use the same through
``python3 -m hpcflow.runtime``.

A copy of this package alone goes into every run directory: it needs Python and nothing else, uses
torch when the program did, and knows nothing of the rest of hpcflow.

=====================  =============================================================
run.py                 Run: what the script talks to
ranks.py, notice.py    who is told to leave; how all ranks agree on the train step
data_order.py, rng.py  going on in the middle of an epoch
buckets.py             going on with the same bits on many ranks
saving.py              what all ranks do to save
program_state.py,      what the program gave to restore(); how each kind of object is
objects.py             written
background.py          the thread that writes, while the training continues
host_copy.py           what it writes from: the state as it was
tensor_tree.py,        sharded state: its tensors, their names, which rank writes which,
named_state.py,        how they lie on the disk, how others find their parts in it
shard_plan.py,
shard_files.py,
stored.py
restoring.py           which checkpoint all ranks go on from
store.py, manifest.py  how a checkpoint appears all at once; what proves it is whole
late_metrics.py        what is logged for it after it was saved
rule.py, retention.py    which checkpoints stay; how the others go
schedule.py,           when to save; how often, if nobody has said it
interval.py
room.py, quota.py      whether the disk has room for it
mirrored.py            what an object store has of it already
events.py, metrics.py  what is reported
calling.py             a Python function as the program
creators.py            who else could put modules beside it
adoption/              checkpoints that programs write in their own way
sampling/              what the program uses, seen from beside
reading.py             how files are opened that others may have written
safe_text.py           text as a terminal may get it
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
    """Begin: read the environment, and from now on take the notice instead of dying of it.

    With several ranks, call it on all of them after ``torch.distributed.init_process_group()``.

    Args:
        defaults: parameters for where the run's config has none, and outside of hpcflow.
        max_over_ranks: for ranks that are not torch's: a collective function that gives every rank
            the largest of the integers (below 2**31) that all passed in. RANK and WORLD_SIZE then
            say which rank this is.

    Raises:
        RuntimeError: there are several ranks, but torch.distributed was not initialised.
        ValueError: the environment is not what a job script of hpcflow sets.
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
