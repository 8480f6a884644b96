"""Write metrics of the train loop to events, TensorBoard and checkpoints.

A value on a GPU is fetched only when it is written, so that logging does not make the CPU wait for
the GPU in every train step: about once a second. An event has only the latest values; TensorBoard
gets all.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hpcflow.runtime.events import EventLog
from hpcflow.runtime.job import Job
from hpcflow.runtime.manifest import CheckpointError, NotThere
from hpcflow.runtime.store import CheckpointStore
from hpcflow.runtime.successor import require_no_successor
from hpcflow.runtime.warn import warn

_EVERY_S = 1.0


class Metrics:
    """The logged metrics: the latest values, and those not written yet.

    Attributes:
        is_news: whether anything was logged since the last call of :meth:`latest`.
    """

    def __init__(
        self,
        events: EventLog,
        tensorboard_dir: Path | None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._events = events
        self._tensorboard = _TensorBoard(tensorboard_dir)
        self._monotonic = monotonic
        self._waiting: list[tuple[int, dict[str, Any]]] = []
        self._facts: dict[str, Any] = {}
        self._written_at: float | None = None
        self._latest: dict[str, float] = {}
        self.is_news = False

    def resume(self, metrics: dict[str, float]) -> None:
        """Set the latest values from the checkpoint that the run resumes from."""
        self._latest.update(metrics)

    def log(self, train_step: int, values: dict[str, Any], **facts: Any) -> None:
        """Record the values of one train step; ``facts`` are further keys of the event.

        Raises:
            TypeError: a value is not one number.
        """
        self._waiting.append((train_step, {k: held(k, value) for k, value in values.items()}))
        self._facts = facts
        self.is_news = True
        now = self._monotonic()
        if self._written_at is None or now - self._written_at >= _EVERY_S:
            self._written_at = now
            self.flush()

    def flush(self) -> None:
        """Write the latest unwritten value of each metric as one event, and all to TensorBoard."""
        if not self._waiting:
            return
        event: dict[str, float] = {}
        for train_step, held in self._waiting:
            values = {name: number(value) for name, value in held.items()}
            self._tensorboard.add(train_step, values)
            event.update(values)
        train_step = self._waiting[-1][0]
        self._waiting = []
        self._latest.update(event)
        self._events.append("progress", train_step=train_step, metrics=event, **self._facts)

    def latest(self) -> dict[str, float]:
        """Return the latest value of every metric, finite or not."""
        self.flush()
        self.is_news = False
        return dict(self._latest)

    def close(self) -> None:
        """Write the values not written yet, and close TensorBoard."""
        self.flush()
        self._tensorboard.close()


def held(name: str, value: Any) -> Any:
    """Copy ``value`` so that it does not change later; a tensor is detached, but not fetched."""
    if hasattr(value, "detach"):
        if value.numel() != 1:
            raise TypeError(f"metric {name!r} has {value.numel()} values; log one number")
        return value.detach().clone()
    if not hasattr(value, "__float__"):
        raise TypeError(f"metric {name!r} is {type(value).__name__}; log a number")
    return number(value)


def number(value: Any) -> float:
    """Convert ``value`` to a float; infinite or NaN if no float can hold the number."""
    try:
        return float(value)
    except OverflowError:  # 10**400
        return math.inf if value > 0 else -math.inf
    except ValueError:  # Decimal("sNaN")
        return math.nan


class _TensorBoard:
    """Write scalars for TensorBoard, until an error; opened with the first of them."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._writer: Any = None

    def add(self, train_step: int, values: dict[str, float]) -> None:
        try:
            writer = self._open(train_step)
            if writer is not None:
                for name, value in values.items():
                    writer.add_scalar(name, value, train_step)
        except OSError as error:
            self._give_up(str(error))

    def close(self) -> None:
        writer, self._writer, self._folder = self._writer, None, None
        if writer is not None:
            try:
                writer.close()
            except OSError as error:
                warn(f"TensorBoard: {error}")

    def _open(self, train_step: int) -> Any:
        if self._writer is None and self._folder is not None:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except (ImportError, TypeError, AttributeError) as error:
                # TypeError, AttributeError: tensorboard and protobuf do not match.
                self._give_up(f"{error}; pip install tensorboard torch")
                return None
            _wait_for_a_later_name(self._folder)
            # Purge the values that an earlier attempt wrote after its last checkpoint.
            self._writer = SummaryWriter(log_dir=str(self._folder), purge_step=train_step)
        return self._writer

    def _give_up(self, reason: str) -> None:
        warn(f"no TensorBoard files: {reason}")
        self._writer, self._folder = None, None


def _wait_for_a_later_name(folder: Path) -> None:
    """Wait for the next second if a file with the name of this second exists.

    TensorBoard reads files in the order of their names, which begin with the second of their
    creation, then host and process. In the wrong order, it would purge the later train steps.
    """
    now = time.time()
    if any(folder.glob(f"events.out.tfevents.{int(now):010d}.*")):
        time.sleep(1 - now % 1)


def add_metrics(job: Job, events: EventLog, train_step: int, metrics: Mapping[str, float]) -> None:
    """Add ``metrics`` to this run's checkpoint of ``train_step``, if it exists, and report that.

    They were logged after its save began, such as those of validation. A new manifest replaces the
    old one by a rename. Never raises. Adopted checkpoints have no metrics.
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
