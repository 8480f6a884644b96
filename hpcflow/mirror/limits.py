"""How much is in memory, how much goes out in a second, and by how many threads, for all senders
together."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import TracebackType
from typing import Final

from hpcflow.clock import Clock

#: What is read and not sent yet.
MEMORY_BYTES: Final = 128 << 20
_FILES: Final = 16
_REQUESTS: Final = 16


class Loan:
    """Memory for one piece, that threads hand on; who claims it hands it back."""

    def __init__(self, data: bytearray) -> None:
        self.data = data
        self._claim = threading.Lock()

    def claim(self) -> bool:
        """Whether nobody else has, and so it is the caller's."""
        return self._claim.acquire(blocking=False)


class Memory:
    """So many bytes may be held at once; who wants more waits for others.

    A piece that is larger than all there is gets it, once nobody else holds any.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes, self._held_bytes = limit_bytes, 0
        self._changed = threading.Condition()
        self._spare: list[bytearray] = []

    def take(self, size_bytes: int) -> None:
        """Return when ``size_bytes`` are ours."""
        with self._changed:
            self._wait_for(size_bytes)
            self._drop_spare()

    def give(self, size_bytes: int) -> None:
        """Give back what was taken."""
        with self._changed:
            self._held_bytes -= size_bytes
            self._changed.notify_all()

    def lend(self, size_bytes: int) -> Loan:
        """So much memory, to be handed back; what is in it is of the holder before.

        To get it again from the system each time takes as long as to send what is in it.
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
        """Nobody uses what :meth:`lend` gave any more; called once, by who has claimed it."""
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
        """What nobody uses is within the limit, too."""
        while self._spare and self._held_bytes + sum(map(len, self._spare)) > self._limit_bytes:
            del self._spare[0]

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


class Line:
    """What all that send to one server have in common: its limit, their memory and threads.

    Args:
        memory: where it is common to several lines; else its own.
    """

    def __init__(self, bandwidth: Bandwidth, memory: Memory | None = None) -> None:
        self.bandwidth, self.memory = bandwidth, memory or Memory(MEMORY_BYTES)
        self.files = ThreadPoolExecutor(_FILES, "file")
        self.requests = ThreadPoolExecutor(_REQUESTS, "part")

    def __enter__(self) -> Line:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for pool in (self.files, self.requests):
            pool.shutdown(wait=True, cancel_futures=True)
