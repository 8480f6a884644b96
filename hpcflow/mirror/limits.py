"""Common limits of all uploads: memory, bandwidth and threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from hpcflow.clock import Clock

#: Bytes read and not sent yet.
MEMORY_BYTES: Final = 128 << 20
_FILES: Final = 16
_REQUESTS: Final = 16


class Loan:
    """Memory for one piece, passed between threads; the thread that claims it hands it back."""

    def __init__(self, data: bytearray) -> None:
        self.data = data
        self._claim = threading.Lock()

    def claim(self) -> bool:
        """Return True for the first caller only."""
        return self._claim.acquire(blocking=False)


class Memory:
    """A limit on bytes held at once; a caller that exceeds it waits.

    A piece larger than the limit waits until no other is held.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes, self._held_bytes = limit_bytes, 0
        self._changed = threading.Condition()
        self._spare: list[bytearray] = []

    def take(self, size_bytes: int) -> None:
        """Wait until ``size_bytes`` are available, and take them."""
        with self._changed:
            self._wait_for(size_bytes)
            self._drop_spare()

    def give(self, size_bytes: int) -> None:
        with self._changed:
            self._held_bytes -= size_bytes
            self._changed.notify_all()

    def lend(self, size_bytes: int) -> Loan:
        """Return a buffer, to be handed back. Buffers are reused and not cleared.

        Allocating it each time would take as long as sending its content.
        """
        with self._changed:
            self._wait_for(size_bytes)
            for index, spare in enumerate(self._spare):
                if len(spare) == size_bytes:
                    return Loan(self._spare.pop(index))
            self._drop_spare()
        try:
            return Loan(bytearray(size_bytes))
        except BaseException:
            self.give(size_bytes)
            raise

    def hand_back(self, lent: Loan) -> None:
        """Take back a buffer from :meth:`lend`; called once, by the thread that claimed it."""
        with self._changed:
            self._spare.append(lent.data)
            self._held_bytes -= len(lent.data)
            self._drop_spare()
            self._changed.notify_all()

    def _wait_for(self, size_bytes: int) -> None:
        self._changed.wait_for(
            lambda: not self._held_bytes or self._held_bytes + size_bytes <= self._limit_bytes
        )
        self._held_bytes += size_bytes

    def _drop_spare(self) -> None:
        """Free spare buffers until they fit in the limit, too."""
        while self._spare and self._held_bytes + sum(map(len, self._spare)) > self._limit_bytes:
            del self._spare[0]

    @contextmanager
    def holding(self, size_bytes: int) -> Iterator[None]:
        """Hold ``size_bytes`` during a ``with`` block."""
        self.take(size_bytes)
        try:
            yield
        finally:
            self.give(size_bytes)


class Bandwidth:
    """A limit on bytes per second; None for no limit.

    Unused bandwidth is saved for at most a second.
    """

    def __init__(self, bytes_s: int | None, clock: Clock) -> None:
        self.bytes_s, self._clock = bytes_s, clock
        self._free_at_s = clock.monotonic()
        self._lock = threading.Lock()

    def wait(self, size_bytes: int) -> None:
        """Wait until ``size_bytes`` may be sent."""
        if self.bytes_s is None:
            return
        with self._lock:
            now_s = self._clock.monotonic()
            begin_s = max(self._free_at_s, now_s - 1.0)
            self._free_at_s = begin_s + size_bytes / self.bytes_s
            pause_s = self._free_at_s - now_s
        if pause_s > 0:
            self._clock.sleep(pause_s)


class Line:
    """Bandwidth limit, memory and threads that all uploads to one server share.

    Args:
        memory: to share it with other lines.
    """

    def __init__(self, bandwidth: Bandwidth, memory: Memory | None = None) -> None:
        self.bandwidth, self.memory = bandwidth, memory or Memory(MEMORY_BYTES)
        self.files = ThreadPoolExecutor(_FILES, "file")
        self.requests = ThreadPoolExecutor(_REQUESTS, "part")

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        for pool in (self.files, self.requests):
            pool.shutdown(wait=True, cancel_futures=True)
