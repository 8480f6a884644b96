"""Metrics on their way from the train-step loop to events and TensorBoard, about once a second.

A number on a GPU is fetched only when it is written, so that logging in every train step does not
make the CPU wait for the GPU in every train step. A million train steps do not make a million
events; TensorBoard gets every value.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hpcflow.runtime.events import EventLog
from hpcflow.runtime.warn import warn

_EVERY_S = 1.0


class Metrics:
    """What was logged: the latest values, and those that were not written yet.

    Attributes:
        is_news: whether anything was logged since the latest values were asked for.
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
        """Take over the latest values of the attempt before."""
        self._latest.update(metrics)

    def log(self, train_step: int, values: dict[str, Any], **facts: Any) -> None:
        """Take the values of one train step; ``facts`` go into the event beside them.

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
        """Write what waits: the latest value of each metric as one event, all to TensorBoard."""
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
        """The latest value of every metric so far, also where that is no finite number."""
        self.flush()
        self.is_news = False
        return dict(self._latest)

    def close(self) -> None:
        """Write what waits, and nothing after."""
        self.flush()
        self._tensorboard.close()


def held(name: str, value: Any) -> Any:
    """``value`` such that it neither changes later nor keeps a graph alive, still unfetched."""
    if hasattr(value, "detach"):
        if value.numel() != 1:
            raise TypeError(f"metric {name!r} has {value.numel()} values; log one number")
        return value.detach().clone()
    if not hasattr(value, "__float__"):
        raise TypeError(f"metric {name!r} is {type(value).__name__}; log a number")
    return number(value)


def number(value: Any) -> float:
    """``value`` as a float; infinite or NaN where it is a number that no float can hold."""
    try:
        return float(value)
    except OverflowError:  # 10**400
        return math.inf if value > 0 else -math.inf
    except ValueError:  # Decimal("sNaN")
        return math.nan


class _TensorBoard:
    """Scalars for TensorBoard, as long as that works; opened with the first of them."""

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
                # The latter two: a tensorboard whose protobuf is of another version.
                self._give_up(f"{error}; pip install tensorboard torch")
                return None
            _wait_for_a_later_name(self._folder)
            # What an earlier attempt wrote past its last checkpoint is told again from here on.
            self._writer = SummaryWriter(log_dir=str(self._folder), purge_step=train_step)
        return self._writer

    def _give_up(self, reason: str) -> None:
        warn(f"no TensorBoard files: {reason}")
        self._writer, self._folder = None, None


def _wait_for_a_later_name(folder: Path) -> None:
    """Let a second pass when a file of this very second is there.

    TensorBoard reads a folder's files by name, which is the second of their opening, then host and
    process in no order of time. Read in the wrong order, the later train steps would be purged.
    """
    now = time.time()
    if any(folder.glob(f"events.out.tfevents.{int(now):010d}.*")):
        time.sleep(1 - now % 1)
