"""Add metrics to a checkpoint that were logged after its save began, such as those of validation.

A new manifest with these metrics replaces the old one by a rename: a reader gets one or the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from hpcflow.runtime.events import EventLog
from hpcflow.runtime.job import Job
from hpcflow.runtime.manifest import CheckpointError, NotThere
from hpcflow.runtime.store import CheckpointStore
from hpcflow.runtime.successor import require_no_successor
from hpcflow.runtime.warn import warn


def add_metrics(job: Job, events: EventLog, train_step: int, metrics: Mapping[str, float]) -> None:
    """Add ``metrics`` to this run's checkpoint of ``train_step``, if it exists, and report that.

    Never raises. Adopted checkpoints have no metrics.
    """
    if job.checkpoint_dir is None or job.adopt is not None or not metrics:
        return
    store = CheckpointStore(job.checkpoint_dir)
    try:
        with suppress(NotThere):
            made = store.add_metrics(
                train_step,
                metrics,
                lambda: require_no_successor(job),
                run_id=job.run_id,
                attempt=job.attempt,
            )
            # Even if nothing changed: an earlier attempt may have been killed before this event.
            events.append(
                "checkpoint_metrics",
                train_step=train_step,
                path=job.relative(made.path),
                size_bytes=made.size_bytes,
                epoch=made.epoch,
                metrics=made.metrics,
                created_at=made.created_at,
            )
    except (CheckpointError, OSError) as error:
        warn(f"the checkpoint of train step {train_step} keeps its old metrics: {error}")
