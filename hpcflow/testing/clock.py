"""A clock that tests control."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone


class FakeClock:
    """A :class:`hpcflow.clock.Clock` that only :meth:`advance` and :meth:`sleep` move."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now = start or datetime(2026, 1, 1, tzinfo=timezone.utc)
        self._elapsed_s = 0.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._elapsed_s

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
        self._elapsed_s += seconds
