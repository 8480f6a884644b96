"""How much is in memory, and how much goes out in a second, whoever sends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from hpcflow.clock import Clock


class Memory:
    """So many bytes may be held at once; who wants more waits for others.

    A piece that is larger than all there is gets it, once nobody else holds any.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes, self._held_bytes = limit_bytes, 0
        self._changed = threading.Condition()

    def take(self, size_bytes: int) -> None:
        """Return when ``size_bytes`` are ours."""
        with self._changed:
            self._changed.wait_for(
                lambda: not self._held_bytes or self._held_bytes + size_bytes <= self._limit_bytes
            )
            self._held_bytes += size_bytes

    def give(self, size_bytes: int) -> None:
        """Give back what was taken."""
        with self._changed:
            self._held_bytes -= size_bytes
            self._changed.notify_all()

    @contextmanager
    def holding(self, size_bytes: int) -> Iterator[None]:
        """Have ``size_bytes`` for the length of a ``with`` block."""
        self.take(size_bytes)
        try:
            yield
        finally:
            self.give(size_bytes)


class Bandwidth:
    """Lets bytes through at a rate; None for as fast as they come.

    What was not used is not saved up for more than a second.
    """

    def __init__(self, bytes_s: int | None, clock: Clock) -> None:
        self.bytes_s, self._clock = bytes_s, clock
        self._free_at_s = clock.monotonic()
        self._lock = threading.Lock()

    def wait(self, size_bytes: int) -> None:
        """Return when ``size_bytes`` may be sent."""
        if self.bytes_s is None:
            return
        with self._lock:
            now_s = self._clock.monotonic()
            begin_s = max(self._free_at_s, now_s - 1.0)
            self._free_at_s = begin_s + size_bytes / self.bytes_s
            pause_s = self._free_at_s - now_s
        if pause_s > 0:
            self._clock.sleep(pause_s)
