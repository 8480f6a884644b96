"""When a checkpoint is due, by time and by count."""

from __future__ import annotations

import time
from collections.abc import Callable


class Schedule:
    """Due every ``interval_s`` seconds, by one rank's clock, and after every N train steps."""

    def __init__(
        self,
        interval_s: float | None,
        every_train_steps: int | None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._interval_s = interval_s
        self._every_train_steps = every_train_steps
        self._monotonic = monotonic
        self._since = monotonic()
        self._is_asked_for = False

    def is_due_by_time(self) -> bool:
        """Whether the interval has passed; says so once, until :meth:`restart`."""
        if self._interval_s is None or self._is_asked_for:
            return False
        self._is_asked_for = self._monotonic() - self._since >= self._interval_s
        return self._is_asked_for

    def is_due_by_count(self, train_step: int) -> bool:
        """Whether ``train_step`` is one to save after; the same on all ranks."""
        return self._every_train_steps is not None and train_step % self._every_train_steps == 0

    def change_interval(self, interval_s: float) -> None:
        """From now on due every ``interval_s`` seconds. May be called by another thread."""
        self._interval_s = interval_s

    def restart(self) -> None:
        """Begin a new interval: one was saved, or training begins."""
        self._since = self._monotonic()
        self._is_asked_for = False
