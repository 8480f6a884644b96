"""Decide when a save is due, by time and by count."""

from __future__ import annotations

import time
from collections.abc import Callable


class Schedule:
    """A save is due every ``interval_s`` seconds, and after ``every_train_steps`` train steps."""

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
        """Return whether the interval has passed; true only once until :meth:`restart`."""
        if self._interval_s is None or self._is_asked_for:
            return False
        self._is_asked_for = self._monotonic() - self._since >= self._interval_s
        return self._is_asked_for

    def is_due_by_count(self, train_step: int) -> bool:
        """Return whether to save after ``train_step``; the same on all ranks."""
        return self._every_train_steps is not None and train_step % self._every_train_steps == 0

    def change_interval(self, interval_s: float) -> None:
        """Set the interval. May be called by another thread."""
        self._interval_s = interval_s

    def restart(self) -> None:
        """Begin a new interval, after a save or when training begins."""
        self._since = self._monotonic()
        self._is_asked_for = False
